package internal

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// walkRepository calls fn for every file of the repository with the given suffix.
func walkRepository(t *testing.T, suffix string, fn func(path string, content string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "build" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		b, err := os.ReadFile(path)
		fn(path, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSecurityPageNamesTests checks that every test named in docs/security.md exists, and that each line of its checklist names one
// or says why there is none.
func TestSecurityPageNamesTests(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	walkRepository(t, "_test.go", func(_, content string) {
		for _, m := range function.FindAllStringSubmatch(content, -1) {
			there[m[1]] = true
		}
	})
	walkRepository(t, ".txt", func(path, _ string) {
		if strings.Contains(path, "testdata") {
			there[filepath.Base(path)] = true
		}
	})
	named := regexp.MustCompile("\\b((?:Test|Fuzz)[A-Z]\\w+)\\b|`([a-z-]+\\.txt)`")
	found := 0
	for _, m := range named.FindAllStringSubmatch(string(page), -1) {
		found++
		if name := m[1] + m[2]; !there[name] {
			t.Errorf("docs/security.md names %s, which does not exist", name)
		}
	}
	lines := regexp.MustCompile(`(?m)^\| S(\d+) \|`).FindAllString(string(page), -1)
	if len(lines) != 26 || found < 60 {
		t.Errorf("docs/security.md has %d lines and names %d tests, want 26 and at least 60", len(lines), found)
	}
}

// TestNothingDecodesCode checks that none of our code decodes values into types that the sender names, or loads code.
func TestNothingDecodesCode(t *testing.T) {
	never := regexp.MustCompile(`(?m)^\s*(?:import )?"(encoding/gob|plugin|net/rpc|text/template)"$`)
	walkRepository(t, ".go", func(path, content string) {
		if m := never.FindStringSubmatch(content); m != nil && !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s imports %s", path, m[1])
		}
	})
}

// TestNothingIsReplaced checks that the build uses exactly what go.mod names.
func TestNothingIsReplaced(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^\s*(replace|exclude)\b`).Match(mod) {
		t.Error("go.mod replaces or excludes modules")
	}
}
