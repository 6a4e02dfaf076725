package router

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Every call that a node makes of others is one that it answers. A method that is forgotten in the table works on one node, and on
// several finds out no more than this one knows.
func TestEveryMethodIsServed(t *testing.T) {
	made := methodsInSource(t)
	if len(made) < len(served) {
		t.Fatalf("the source makes %d methods, and %d are served: some were not found", len(made), len(served))
	}
	for _, name := range made {
		if served[name] == nil {
			t.Errorf("the method %q is not served", name)
		}
	}
}

// methodsInSource are the names of the methods that variables of the package are made of.
func methodsInSource(t *testing.T) (names []string) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if vars, ok := d.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				ast.Inspect(vars, func(n ast.Node) bool {
					if name := methodName(n); name != "" {
						names = append(names, name)
					}
					return true
				})
			}
		}
	}
	return names
}

// methodName is the name of the method that an expression makes: onBroker("name", …), onSystem("name", …) or method[…]{name: "name", …}.
func methodName(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		fn := n.Fun
		if generic, ok := fn.(*ast.IndexListExpr); ok {
			fn = generic.X
		}
		if id, ok := fn.(*ast.Ident); ok && strings.HasPrefix(id.Name, "on") && len(n.Args) > 0 {
			return stringIn(n.Args[0])
		}
	case *ast.KeyValueExpr:
		if id, ok := n.Key.(*ast.Ident); ok && id.Name == "name" {
			return stringIn(n.Value)
		}
	}
	return ""
}

func stringIn(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}
