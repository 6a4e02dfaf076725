package pawl_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestReadmeCompiles: each Go program of the README is formatted and compiles as it stands there.
func TestReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(programs) == 0 {
		t.Error("the README has no program")
	}
	for _, p := range programs {
		if tidy, err := format.Source(p[1]); err != nil || string(tidy) != string(p[1]) {
			t.Errorf("gofmt: %v; it would be\n%s", err, tidy)
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, p[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil { // #nosec G204 -- a file of ours
			t.Errorf("%v: %s in\n%s", err, out, p[1])
		}
	}
}
