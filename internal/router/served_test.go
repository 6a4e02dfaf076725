package router

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every method that a node calls on others is registered. A method that is not registered would panic when it is called.
func TestEveryMethodIsServed(t *testing.T) {
	made, registered := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && (nameOf(call.Fun) == "Register" || nameOf(call.Fun) == "replace") && len(call.Args) == 2 && isMethod(call.Args[1]) {
				registered++
			}
			if e, ok := n.(ast.Expr); ok && isMethod(e) {
				made++
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if made < 10 || made != registered {
		t.Errorf("the source creates %d methods and registers %d of them, want all registered", made, registered)
	}
}

// isMethod reports whether an expression creates a method: &Method[…]{…}, or &claimMethod{…} of a name for it.
func isMethod(e ast.Expr) bool {
	at, ok := e.(*ast.UnaryExpr)
	if !ok {
		return false
	}
	lit, ok := at.X.(*ast.CompositeLit)
	if !ok {
		return false
	}
	of := lit.Type
	if generic, ok := of.(*ast.IndexListExpr); ok {
		of = generic.X
	}
	return strings.HasSuffix(nameOf(of), "Method")
}

// nameOf returns the last part of a name, or "" for other expressions.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
