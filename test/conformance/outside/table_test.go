package outside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	page       = "../../../docs/sdks.md"
	tableBegin = "<!-- The table is made from test/conformance/outside/features.json: PAWL_UPDATE=1 go test ./test/conformance/outside " +
		"-run Table -->\n"
	tableEnd = "<!-- end of the table -->\n"
)

// TestTableMatchesFeatures compares docs/sdks.md with features.json. PAWL_UPDATE=1 rewrites it.
func TestTableMatchesFeatures(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(data, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !found || !ended {
		t.Fatalf("%s has no markers for the table", page)
	}
	want := bytes.Join([][]byte{before, []byte(tableBegin), []byte(table(readFeatures(t))), []byte(tableEnd), after}, nil)
	if bytes.Equal(data, want) {
		return
	}
	if os.Getenv("PAWL_UPDATE") == "" {
		t.Fatalf("the table of %s does not match features.json: run PAWL_UPDATE=1 go test ./test/conformance/outside -run Table", page)
	}
	if err := os.WriteFile(page, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

func table(features []feature) string {
	var b strings.Builder
	b.WriteString("\n| | Go | Python | TypeScript | REST |\n|---|---|---|---|---|\n")
	for _, f := range features {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.What, cell(f.Go), cell(f.Python), cell(f.TypeScript), cell(f.REST))
	}
	b.WriteString("\n")
	for _, f := range features {
		if f.Note != "" {
			fmt.Fprintf(&b, "- %s: %s.\n", f.What, f.Note)
		}
	}
	b.WriteString("\n")
	return b.String()
}

func cell(s string) string {
	if s == "" {
		return "–"
	}
	return "`" + s + "`"
}

// TestGoNamesExist: what the table names for Go is exported.
func TestGoNamesExist(t *testing.T) {
	names := map[string]bool{}
	for pkg, dir := range map[string]string{"pawl": ".", "admin": "admin", "pawltest": "pawltest", "outbox": "outbox"} {
		files, err := filepath.Glob(filepath.Join("../../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				exported(pkg, d, func(name string) { names[name] = true })
			}
		}
	}
	for _, f := range readFeatures(t) {
		if f.Go != "" && !names[f.Go] {
			t.Errorf("feature %q: %s is not exported", f.ID, f.Go)
		}
	}
}

// exported calls add with the names that a declaration makes: pkg.Func, pkg.Type, pkg.Type.Method, pkg.Type.Field.
func exported(pkg string, d ast.Decl, add func(string)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(pkg + "." + d.Name.Name)
			return
		}
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if id, ok := of.(*ast.Ident); ok {
			add(pkg + "." + id.Name + "." + d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					add(pkg + "." + name.Name)
				}
			case *ast.TypeSpec:
				add(pkg + "." + s.Name.Name)
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						for _, name := range field.Names {
							add(pkg + "." + s.Name.Name + "." + name.Name)
						}
					}
				}
			}
		}
	}
}

// TestRESTNamesExist: what the table names for REST is in the OpenAPI document: a call, a field of a schema, or a header.
func TestRESTNamesExist(t *testing.T) {
	data, err := os.ReadFile("../../../internal/rest/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Info       struct{ Description string }
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range readFeatures(t) {
		if f.REST == "" {
			continue
		}
		if method, path, ok := strings.Cut(f.REST, " "); ok {
			if method == "header" {
				if !strings.Contains(doc.Info.Description, path) {
					t.Errorf("feature %q: the document does not describe the header %s", f.ID, path)
				}
				continue
			}
			if doc.Paths[path][strings.ToLower(method)] == nil {
				t.Errorf("feature %q: %s is not in the document", f.ID, f.REST)
			}
			continue
		}
		if schema, field, _ := strings.Cut(f.REST, "."); doc.Components.Schemas[schema].Properties[field] == nil {
			t.Errorf("feature %q: %s is not in the document", f.ID, f.REST)
		}
	}
}
