package pawl_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeCompiles checks that each Go program in the README is formatted and compiles unchanged, in a folder of the
// clone and in a separate module that is created as the README describes.
func TestReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(programs) == 0 {
		t.Error("the README has no Go program")
	}
	for _, p := range programs {
		if tidy, err := format.Source(p[1]); err != nil || string(tidy) != string(p[1]) {
			t.Errorf("gofmt: %v, want\n%s", err, tidy)
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, p[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil { // #nosec G204 -- a file of ours
			t.Errorf("%v: %s in\n%s", err, out, p[1])
		}
		compileBeside(t, string(readme), p[1])
	}
}

// compileBeside compiles a program in its own module. Its dependencies are verified by the checksums of this one, without the network.
func compileBeside(t *testing.T, readme string, program []byte) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"main.go": program, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := regexp.MustCompile(`(?m)^go mod (?:init|edit) .*$`).FindAllString(readme, -1)
	if len(commands) != 2 {
		t.Fatalf("the README creates a module with the commands %q, want two", commands)
	}
	for _, c := range append(commands, "go vet -mod=mod .") {
		words := strings.Fields(strings.ReplaceAll(c, "=../pawl", "="+root))
		cmd := exec.Command(words[0], words[1:]...) // #nosec G204 -- a file of ours
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", c, err, out)
		}
	}
}
