package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pkg is a package whose tests are tested, parsed and typed.
type pkg struct {
	Name    string // its directory relative to the module's root
	Root    string // of the module
	Dir     string
	Path    string         // import path
	module  string         // path of the module
	Tests   string         // directory of the package whose tests run: its own, unless another is given
	without *regexp.Regexp // tests that don't run; nil: all do
	fset    *token.FileSet
	files   []*source
	info    *types.Info
	types   *types.Package
}

// source is a file of a package, except for tests and generated files.
type source struct {
	path   string
	text   []byte
	syntax *ast.File
	wraps  []wrap
}

// listed is the output of `go list` for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  struct{ Dir, Path string }
	DepOnly                 bool
}

// load returns the packages that match the patterns in the module of a directory, in the order of their import paths.
func load(ctx context.Context, dir string, patterns ...string) ([]*pkg, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module,DepOnly"}
	cmd := exec.CommandContext(ctx, "go", append(args,
		patterns...)...) // #nosec G204 -- packages that a test, or whoever runs this program, names
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	exports := map[string]string{}
	var matches []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly {
			matches = append(matches, l)
		}
	}
	slices.SortFunc(matches, func(a, b listed) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	var all []*pkg
	for _, l := range matches {
		p := &pkg{Root: l.Module.Dir, Dir: l.Dir, Path: l.ImportPath, module: l.Module.Path, Tests: l.Dir, Name: ".",
			fset: token.NewFileSet()}
		if l.ImportPath != l.Module.Path {
			p.Name = strings.TrimPrefix(l.ImportPath, l.Module.Path+"/")
		}
		for _, name := range l.GoFiles {
			if err := p.parse(filepath.Join(l.Dir, name)); err != nil {
				return nil, err
			}
		}
		if err := p.check(l.ImportPath, exports); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// loadOne returns the only package that matches the pattern.
func loadOne(ctx context.Context, dir, pattern string) (*pkg, error) {
	all, err := load(ctx, dir, pattern)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%s: %d packages, want one", pattern, len(all))
	}
	return all[0], nil
}

// directory returns the directory of a package.
func directory(ctx context.Context, pattern string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f={{.Dir}}", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", pattern, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (p *pkg) parse(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(p.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.files = append(p.files, &source{path: path, text: text, syntax: syntax})
	return nil
}

// check type-checks the package, with imports from the compiler's export data.
func (p *pkg) check(path string, exports map[string]string) error {
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})}
	var files []*ast.File
	for _, f := range p.files {
		files = append(files, f.syntax)
	}
	var err error
	p.types, err = conf.Check(path, p.fset, files, p.info)
	return err
}
