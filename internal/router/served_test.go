package router

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// Every call that a node makes to others is one that it answers. A method that is not served would work on a single node, and in a cluster
// return only what this node knows.
func TestEveryMethodIsServed(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	made, servedHere := 0, 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && named(call.Fun, "serve") && len(call.Args) == 1 && isMethod(call.Args[0]) {
				servedHere++
			}
			if e, ok := n.(ast.Expr); ok && isMethod(e) {
				made++
			}
			return true
		})
	}
	if made < 10 || made != servedHere+1 { // that of OnShard is in the router's own table
		t.Errorf("the source makes %d methods and serves %d of them", made, servedHere)
	}
}

// isMethod reports whether an expression creates a method: &method[…]{…}.
func isMethod(e ast.Expr) bool {
	at, ok := e.(*ast.UnaryExpr)
	if !ok {
		return false
	}
	lit, ok := at.X.(*ast.CompositeLit)
	if !ok {
		return false
	}
	generic, ok := lit.Type.(*ast.IndexListExpr)
	return ok && named(generic.X, "method")
}

func named(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
