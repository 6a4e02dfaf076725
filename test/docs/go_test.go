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

// TestGoPrograms: programs in the pages are formatted and compile, and tests among them pass.
func TestGoPrograms(t *testing.T) {
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			if b.lang != "go" || !isProgram(b) {
				continue
			}
			t.Run(strings.ReplaceAll(b.String(), "/", "_"), func(t *testing.T) {
				if tidy, err := format.Source([]byte(b.text)); err != nil || string(tidy) != b.text {
					t.Errorf("gofmt: %v; formatted it is\n%s", err, tidy)
				}
				name, verb := "main.go", []string{"vet"}
				if strings.Contains(b.text, "\nfunc Test") {
					name, verb = "main_test.go", []string{"test", "-count", "1"}
				}
				verb = append(verb, "-overlay", asPackage(t, name, b.text), "./testdata/page")
				if out, err := exec.Command("go", verb...).CombinedOutput(); err != nil { // #nosec G204 -- a file of ours
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	}
}

// asPackage returns an overlay in which a file is the whole package in testdata/page. Its imports resolve in the
// repository's module, and tests that read the repository meanwhile do not see it.
func asPackage(t *testing.T, name, text string) (overlay string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, name), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "testdata/page", name): file}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		t.Fatal(err)
	}
	return overlay
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

// exports are the files with the export data of all packages that fragments may import.
var exports = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "std", "github.com/pawlq/pawl/...",
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
