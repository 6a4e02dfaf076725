package router

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every table of verbs has a part of a node that runs them. A verb that has none would fail when it is called.
func TestEveryVerbIsServed(t *testing.T) {
	tables, served := map[string]bool{}, map[string]bool{}
	declared := regexp.MustCompile(`(?m)^var (\w+) verb\.Table\[`)
	bound := regexp.MustCompile(`(?m)^\t(?:(?:(\w+)\.)?(\w+)\.Serve\(|serve\(&(?:(\w+)\.)?(\w+),)`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		pkg := filepath.Base(filepath.Dir(path))
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			tables[pkg+"."+m[1]] = true
		}
		for _, m := range bound.FindAllStringSubmatch(string(source), -1) {
			served[cmp.Or(m[1], m[3], pkg)+"."+m[2]+m[4]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 15 {
		t.Errorf("the source declares %d tables of verbs", len(tables))
	}
	for name := range tables {
		if !served[name] {
			t.Errorf("no node serves the verbs of %s", name)
		}
	}
}
