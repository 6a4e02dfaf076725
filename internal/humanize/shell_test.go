package humanize

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestShellQuoting(t *testing.T) {
	for s, want := range map[string]string{"mail.welcome": "mail.welcome", "": "''", "it's $HOME": `'it'\''s $HOME'`, "=ls": "'=ls'", "~": "'~'"} {
		if got := ShellWord(s); got != want {
			t.Errorf("ShellWord(%q) = %s, want %s", s, got, want)
		}
	}
}

// A shell that runs a command calls pawl with the arguments and the values of flags, and does nothing else.
func TestCommandsInAShell(t *testing.T) {
	dir := t.TempDir()
	const recorder = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\" >>args; done\n"
	if err := os.WriteFile(filepath.Join(dir, "pawl"), []byte(recorder), 0o700); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	for _, s := range []string{"plain", "", "-", "--", "-h", "--all", "x; touch PWNED;", "$(touch PWNED)", "`touch PWNED`", "a'b", "'; touch PWNED; '", `"; touch PWNED; "`,
		`\`, `a\'b`, "a b  c", " a ", "*", "~", "a&touch PWNED", "a|touch PWNED", ">PWNED", "a\ntouch PWNED", "#x", "!!", "{a,b}", "=x", "é€", "a=b;touch PWNED", "--x=$(touch PWNED)"} {
		dashed := strings.HasPrefix(s, "-")
		args := []string{"queue", "set", s, "b"}
		flags := []string{"--for-key=" + s, "--max-running", "N"}
		want := append(args, flags...)
		if dashed {
			want = append(append(append([]string{"queue", "set"}, flags...), "--"), s, "b")
		}
		line := Command("queue set", []string{s, "b"}, "--for-key="+s, "--max-running N")
		_ = os.Remove(filepath.Join(dir, "args"))
		run := exec.Command("sh", "-c", line) // #nosec G204 -- what is tested
		run.Dir, run.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", line, err, out)
		}
		got, err := os.ReadFile(filepath.Join(dir, "args"))
		if err != nil || string(got) != strings.Join(want, "\x00")+"\x00" {
			t.Errorf("%s calls pawl with %q, %v, want %q", line, got, err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "PWNED")); err == nil {
			t.Fatalf("%s ran what %q contains", line, s)
		}
	}
}
