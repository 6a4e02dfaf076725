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

// TestDocsNameTests checks that every test named in a page exists, in full unless "…" follows the name or it is the
// argument of -run, and that each line of the checklist in docs/security.md names one or says why there is none.
func TestDocsNameTests(t *testing.T) {
	there, names := map[string]bool{}, strings.Builder{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	tests := func(_, content string) {
		for _, m := range function.FindAllStringSubmatch(content, -1) {
			there[m[1]] = true
			names.WriteString(" " + m[1])
		}
	}
	walkRepository(t, "_test.go", tests)
	walkRepository(t, ".md", tests) // examples
	walkRepository(t, ".txt", func(path, _ string) {
		if strings.Contains(path, "testdata") {
			there[filepath.Base(path)] = true
		}
	})
	named := regexp.MustCompile("(-run '?)?([/\\w]?)\\b((?:Test|Fuzz)[A-Z]\\w+)(…)?|`([a-z-]+\\.txt)`")
	found := map[string]int{}
	walkRepository(t, ".md", func(path, content string) {
		for _, m := range named.FindAllStringSubmatch(content, -1) {
			if m[2] == "/" { // a call of the API
				continue
			}
			found[path]++
			begins := (m[1] != "" || m[4] != "") && strings.Contains(names.String(), " "+m[3])
			if name := m[3] + m[5]; !there[name] && !begins {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
	})
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^\| S(\d+) \|`).FindAllString(string(page), -1)
	if n := found["../docs/security.md"]; len(lines) != 26 || n < 60 || len(found) < 5 {
		t.Errorf("docs/security.md has %d lines and names %d tests, and %d pages name some, want 26, at least 60 and at least 5",
			len(lines), n, len(found))
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
