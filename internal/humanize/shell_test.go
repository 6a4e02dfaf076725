package humanize

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestShellQuoting(t *testing.T) {
	for s, want := range map[string]string{"mail.welcome": "mail.welcome", "": "''", "it's $HOME": `'it'\''s $HOME'`,
		"=ls": "'=ls'", "~": "'~'", "a\nb": `$'a\nb'`, "\x1b[8mé\t'\\": `$'\033[8mé\t\047\\'`, "a\u202eb": `$'a\342\200\256b'`,
		"a\xffb": `$'a\377b'`, "\u00852": `$'\302\2052'`, "a\u3164": `$'a\343\205\244'`} {
		if got := ShellWord(s); got != want {
			t.Errorf("ShellWord(%q) = %s, want %s", s, got, want)
		}
	}
}

// A shell that runs a command calls pawl with the arguments and the values of flags, and does nothing else. A terminal shows all of the
// command, on one line. A shell without $'…' runs nothing else either.
func TestCommandsInAShell(t *testing.T) {
	dir := t.TempDir()
	const recorder = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\" >>args; done\n"
	if err := os.WriteFile(filepath.Join(dir, "pawl"), []byte(recorder), 0o700); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	for _, s := range []string{"plain", "", "-", "--", "-h", "--all", "x; touch PWNED;", "$(touch PWNED)", "`touch PWNED`", "a'b",
		"'; touch PWNED; '", `"; touch PWNED; "`, `\`, `a\'b`, "a b  c", " a ", "*", "~", "a&touch PWNED", "a|touch PWNED", ">PWNED",
		"a\ntouch PWNED", "#x", "!!", "{a,b}", "=x", "é€", "a=b;touch PWNED", "--x=$(touch PWNED)", "a\r\ntouch PWNED\n",
		"'\n;touch PWNED;'", `\'` + "\n;touch PWNED #", "\\\n", "\x1b[8m$(touch PWNED)\x1b[0m", "\x1b7", "\t\x7f1",
		"\u202e\u200b\u2028é\u00a0", "\xff\xfe", "\x1b[200~!x\x1b[201~"} {
		dashed := strings.HasPrefix(s, "-")
		args := []string{"queue", "set", s, "b"}
		flags := []string{"--for-key=" + s, "--max-running", "N"}
		want := append(args, flags...)
		if dashed {
			want = append(append(append([]string{"queue", "set"}, flags...), "--"), s, "b")
		}
		line := Command("queue set", []string{s, "b"}, "--for-key="+s, "--max-running N")
		if strings.ContainsFunc(line, func(c rune) bool { return !unicode.IsPrint(c) || c == utf8.RuneError }) {
			t.Errorf("%q has characters that terminals don't show", line)
		}
		for _, shell := range []string{"sh", "bash"} {
			_ = os.Remove(filepath.Join(dir, "args"))
			run := exec.Command(shell, "-c", line) // #nosec G204 -- what is tested
			run.Dir, run.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "args"))
			if knows := shell == "bash" || !strings.Contains(line, "$'"); err != nil || knows && string(got) != strings.Join(want, "\x00")+
				"\x00" {
				t.Errorf("%s: %s calls pawl with %q, %v, want %q", shell, line, got, err, want)
			}
			if _, err := os.Stat(filepath.Join(dir, "PWNED")); err == nil {
				t.Fatalf("%s: %s ran what %q contains", shell, line, s)
			}
		}
	}
}
