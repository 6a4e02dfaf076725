package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestGoPrograms: programs in the pages are formatted, and vet accepts them; tests among them pass, all in one package.
func TestGoPrograms(t *testing.T) {
	dir, tests, declared := t.TempDir(), map[string]string{}, 0
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if b.lang != "go" || !isProgram(b) {
				continue
			}
			if tidy, err := format.Source([]byte(b.text)); err != nil || string(tidy) != b.text {
				t.Errorf("%s: gofmt: %v; formatted it is\n%s", b, err, tidy)
			}
			name := strings.NewReplacer("/", "_", ":", "_").Replace(b.String()) + "_test.go"
			vet(t, b, write(t, dir, name, b.text))
			if _, rest, _ := strings.Cut(b.text, "\n"); strings.Contains(rest, "\nfunc Test") {
				declared += strings.Count(rest, "\nfunc Test")
				tests[name] = write(t, dir, "tests_"+name, "package page_test\n"+rest)
			}
		}
	}
	args := []string{"test", "-v", "-vet", "off", "-count", "1", "-ldflags", "-s -w", "-overlay", overlay(t, dir, tests), "./testdata/page"}
	out, err := exec.Command("go", args...).CombinedOutput() // #nosec G204 -- files of ours
	if passed := strings.Count("\n"+string(out), "\n--- PASS: "); err != nil || declared == 0 || passed != declared {
		t.Errorf("go %q: %d of %d tests passed: %v: %s", args, passed, declared, err, out)
	}
}

func write(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// vet runs vet on a program without looking at its dependencies, which go vet would do first.
func vet(t *testing.T, b block, file string) {
	t.Helper()
	known, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string]string{}
	for path := range known {
		imports[path] = path
	}
	unit, err := json.Marshal(map[string]any{"ID": "page", "Compiler": "gc", "ImportPath": "page", "GoFiles": []string{file},
		"ImportMap": imports, "PackageFile": known, "VetxOutput": file + ".vetx"})
	if err != nil {
		t.Fatal(err)
	}
	config := write(t, filepath.Dir(file), filepath.Base(file)+".cfg", string(unit))
	if out, err := exec.Command("go", "tool", "vet", config).CombinedOutput(); err != nil { // #nosec G204 -- a file of ours
		t.Errorf("%s: vet: %v: %s", b, err, out)
	}
}

// overlay returns the name of a file that tells the go command of files in the package testdata/page. Its imports
// resolve in the repository's module, and tests that read the repository meanwhile do not see it.
func overlay(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, file := range files {
		replace[filepath.Join(here, "testdata/page", name)] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, dir, "overlay.json", string(text))
}

func isProgram(b block) bool { return strings.HasPrefix(b.text, "package ") }

// TestGoFragments: fragments type-check. What they use but don't declare is declared in testdata, in a file named for the page.
func TestGoFragments(t *testing.T) {
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if b.lang != "go" || isProgram(b) {
				continue
			}
			file := "testdata/" + strings.TrimSuffix(filepath.Base(page), ".md") + ".go"
			given, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s is a fragment, but its declarations can't be read: %v", b, err)
				continue
			}
			// The fragment is the body of a function, in a file that declares what the page takes for granted.
			source := fmt.Sprintf("%s\nfunc _() error {\n//line %s:%d\n%s\nreturn nil\n}\n", given, b.page, b.line+1, b.text)
			for _, err := range typeCheck(t, source) {
				t.Error(err)
			}
		}
	}
}

// typeCheck returns the errors in a file, except those that only fragments have: unused variables and imports, code after a return.
func typeCheck(t *testing.T, source string) (out []error) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "fragment.go", source, parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	config := types.Config{
		Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return exported(path) }),
		Error: func(err error) {
			if wrong := (types.Error{}); errors.As(err, &wrong) && !wrong.Soft {
				out = append(out, err)
			}
		},
	}
	_, _ = config.Check("fragment", set, []*ast.File{file}, nil) // Error has received its errors
	return out
}

// exports are the files with the export data of all packages that programs and fragments may import: those of the
// repository, and what they import.
var exports = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "github.com/pawlq/pawl/...",
		"github.com/standard-webhooks/standard-webhooks/libraries/go")
	var faults bytes.Buffer
	cmd.Stderr = &faults
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &faults)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, nil
})

func exported(path string) (io.ReadCloser, error) {
	files, err := exports()
	if err != nil {
		return nil, err
	}
	if files[path] == "" {
		return nil, fmt.Errorf("package %q is not known", path)
	}
	return os.Open(files[path])
}
