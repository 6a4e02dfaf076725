package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is one fault.
type mutant struct {
	id      int    // by which the code knows it, from 1
	name    string // where it is and what, without the line, so that it stays the same while the code around it changes
	file    *source
	line    int
	covered int   // the line whose coverage counts
	rebuilt *edit // of a mutant that can't be switched on as the program runs

	same       bool // as the code, for certain
	skip       bool // not wanted
	equivalent bool
	outcome    outcome
}

// edit replaces a part of a file.
type edit struct {
	start, end int
	text       string
}

// Mutants are planted all at once, each behind a switch that an environment variable turns on, so that a package is compiled once
// and not thousands of times. So an edit only wraps code, adding no lines, in something that always compiles. What can't be
// wrapped, constants and lists of cases, is rebuilt each time.

// wrap puts code around a part of a file.
type wrap struct {
	start, end    int
	before, after string
	inner         *edit // an operator that became a comma, a name that became another
	ids           []int
}

// finder goes through a file.
type finder struct {
	*pkg
	file    *source
	fn      string     // the function it is in
	path    []ast.Node // from the file to the node
	fixed   map[types.Object]bool
	wraps   []wrap
	mutants []*mutant
	next    *int
	seen    map[string]int // mutants by name
}

// find finds the mutants of a package, and the wraps that plant them.
func find(p *pkg) ([]*mutant, error) {
	var all []*mutant
	next, seen := 1, map[string]int{}
	fixed := p.fixed()
	for _, f := range p.files {
		if ast.IsGenerated(f.syntax) {
			continue
		}
		v := &finder{pkg: p, file: f, fixed: fixed, next: &next, seen: seen}
		for _, d := range f.syntax.Decls {
			v.fn = nameOf(d)
			ast.Inspect(d, v.visit)
		}
		f.wraps = v.wraps
		all = append(all, slices.DeleteFunc(v.mutants, func(m *mutant) bool { return m.same })...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: nothing to mutate", p.Name)
	}
	return all, nil
}

func nameOf(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	switch {
	case !ok:
		return "-"
	case f.Recv == nil:
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return of.(*ast.Ident).Name + "." + f.Name.Name
}

// fixed are the functions that always return the same bool: what is not built in.
func (p *pkg) fixed() map[types.Object]bool {
	all := map[types.Object]bool{}
	for _, f := range p.files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || fn.Body == nil || len(fn.Body.List) != 1 {
				continue
			}
			if r, ok := fn.Body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				if x, ok := r.Results[0].(*ast.Ident); ok && (x.Name == "true" || x.Name == "false") {
					all[p.types.Scope().Lookup(fn.Name.Name)] = true
				}
			}
		}
	}
	return all
}

func (v *finder) visit(n ast.Node) bool {
	if n == nil {
		v.path = v.path[:len(v.path)-1]
		return true
	}
	v.mutate(n)
	v.path = append(v.path, n)
	return true
}

// parent is the node around the one that is visited.
func (v *finder) parent() ast.Node {
	if len(v.path) == 0 {
		return nil
	}
	return v.path[len(v.path)-1]
}

func (v *finder) mutate(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		v.condition(n.Cond, !onlyPanics(n.Body), true)
	case *ast.ForStmt:
		if n.Cond != nil {
			v.condition(n.Cond, true, false)
		}
	case *ast.CaseClause:
		v.cases(n)
	case *ast.BinaryExpr:
		v.binary(n)
	case *ast.CallExpr:
		v.call(n)
	case *ast.ExprStmt:
		v.statement(n, n.X)
	case *ast.DeferStmt:
		v.statement(n, n.Call)
	case *ast.ReturnStmt:
		v.results(n)
	case *ast.BasicLit:
		v.number(n)
	case *ast.Ident:
		v.boolean(n)
	case *ast.IncDecStmt:
		v.step(n)
	case *ast.AssignStmt:
		v.assignment(n)
	case *ast.CompositeLit:
		v.fields(n)
	}
}

// onlyPanics says that a body is there for what can't happen.
func onlyPanics(b *ast.BlockStmt) bool {
	if len(b.List) != 1 {
		return false
	}
	s, ok := b.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	c, ok := s.X.(*ast.CallExpr)
	return ok && isNamed(c.Fun, "panic")
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

func (v *finder) condition(cond ast.Expr, never, always bool) {
	if !v.isBool(cond) || v.isFixed(cond) {
		return
	}
	if never {
		id := v.add(cond, "never")
		v.wrap(cond, fmt.Sprintf("(!mutantOn(%d) && (", id), "))", id)
	}
	if always {
		id := v.add(cond, "always")
		v.wrap(cond, fmt.Sprintf("(mutantOn(%d) || (", id), "))", id)
	}
}

// cases takes each case of a switch without a tag as a condition, and forgets each of several values of one with a tag.
func (v *finder) cases(c *ast.CaseClause) {
	if len(v.path) < 2 {
		return
	}
	s, ok := v.path[len(v.path)-2].(*ast.SwitchStmt)
	v.path = append(v.path, c)
	defer func() { v.path = v.path[:len(v.path)-1] }()
	if ok && s.Tag == nil {
		for _, x := range c.List {
			v.condition(x, !onlyPanics(&ast.BlockStmt{List: c.Body}), true)
		}
		return
	}
	if len(c.List) < 2 {
		return
	}
	for i, x := range c.List {
		if v.isFixed(x) {
			continue
		}
		start, end := v.at(x.Pos()), v.at(x.End())
		if i+1 < len(c.List) {
			end = v.at(c.List[i+1].Pos())
		} else {
			start = v.at(c.List[i-1].End())
		}
		v.addRebuilt(x, "case forgotten", edit{start, end, ""})
	}
}

func (v *finder) binary(b *ast.BinaryExpr) {
	if v.isConst(b) {
		return
	}
	switch b.Op {
	case token.LAND, token.LOR:
		v.sides(b)
	case token.LSS, token.GTR, token.LEQ, token.GEQ:
		v.order(b)
	case token.EQL, token.NEQ:
		if !v.isTested(b) && v.isBool(b) {
			id := v.add(b, "negated")
			v.wrap(b, fmt.Sprintf("(mutantOn(%d) != (", id), "))", id)
		}
	case token.ADD, token.SUB:
		if t, ok := v.info.TypeOf(b).Underlying().(*types.Basic); ok && t.Info()&types.IsNumeric != 0 {
			id := v.add(b, map[token.Token]string{token.ADD: "+ becomes -", token.SUB: "- becomes +"}[b.Op])
			v.operator(b, map[token.Token]string{token.ADD: "mutantAdd", token.SUB: "mutantSub"}[b.Op], id, id)
		}
	}
}

// isTested says that an expression is a condition of its own or a side of && or ||, which is mutated as such.
func (v *finder) isTested(x ast.Expr) bool {
	switch p := v.parent().(type) {
	case *ast.IfStmt:
		return p.Cond == x
	case *ast.ForStmt:
		return p.Cond == x
	case *ast.CaseClause:
		return true
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	case *ast.UnaryExpr:
		return p.Op == token.NOT
	}
	return false
}

// sides drops each side of && and ||, of a chain each part once.
func (v *finder) sides(b *ast.BinaryExpr) {
	if !v.isBool(b) {
		return
	}
	what, before := "&& without", "(mutantOn(%d) || ("
	if b.Op == token.LOR {
		what, before = "|| without", "(!mutantOn(%d) && ("
	}
	for _, side := range []ast.Expr{b.X, b.Y} {
		if inner, ok := side.(*ast.BinaryExpr); ok && inner.Op == b.Op || v.isFixed(side) || !v.isBool(side) {
			continue
		}
		id := v.add(side, what)
		v.wrap(side, fmt.Sprintf(before, id), "))", id)
	}
}

// order moves the boundary of a comparison, and makes < and > to !=, <= and >= to ==.
func (v *finder) order(b *ast.BinaryExpr) {
	names := map[token.Token][3]string{token.LSS: {"mutantLess", "< becomes <=", "< becomes !="}, token.GTR: {"mutantGreater",
		"> becomes >=", "> becomes !="},
		token.LEQ: {"mutantAtMost", "<= becomes <", "<= becomes =="}, token.GEQ: {"mutantAtLeast", ">= becomes >", ">= becomes =="}}[b.Op]
	first := v.add(b, names[1])
	second := v.add(b, names[2])
	if v.isAtLeast0(b.X) && v.isZero(b.Y) || v.isZero(b.X) && v.isAtLeast0(b.Y) {
		v.mutants[len(v.mutants)-1].same = true
	}
	v.operator(b, names[0], first, second)
}

// isAtLeast0 says that an expression is a length, or has no sign: what is more than 0 is what is not 0.
func (v *finder) isAtLeast0(x ast.Expr) bool {
	if c, ok := x.(*ast.CallExpr); ok {
		if name, ok := v.builtin(c); ok && name == "len" {
			return true
		}
	}
	t, ok := v.info.TypeOf(x).Underlying().(*types.Basic)
	return ok && t.Info()&types.IsUnsigned != 0
}

func (v *finder) isZero(x ast.Expr) bool {
	c := v.info.Types[x].Value
	return c != nil && c.String() == "0"
}

// operator makes a call of an operator.
func (v *finder) operator(b *ast.BinaryExpr, function string, first, last int) {
	ids := []int{first}
	if last != first {
		ids = append(ids, last)
	}
	comma := &edit{v.at(b.OpPos), v.at(b.OpPos) + len(b.Op.String()), ","}
	v.wraps = append(v.wraps, wrap{v.at(b.Pos()), v.at(b.End()), fmt.Sprintf("%s(%d, ", function, first), ")", comma, ids})
}

func (v *finder) call(c *ast.CallExpr) {
	if b, ok := v.builtin(c); ok && (b == "min" || b == "max") && !v.isConst(c) && len(c.Args) > 1 {
		id := v.add(c, "min and max swapped")
		start, args := v.at(c.Pos()), v.at(c.Lparen)+1
		v.wraps = append(v.wraps, wrap{start, v.at(c.End()), "", "", &edit{start, args, fmt.Sprintf("mutantM%s(%d, ", b[1:], id)},
			[]int{id}})
		return
	}
	if v.failsOnly(c) {
		id := v.add(c, "not called")
		v.wrap(c, fmt.Sprintf("func() error { if mutantOn(%d) { return nil }; return ", id), " }()", id)
	}
}

func (v *finder) builtin(c *ast.CallExpr) (string, bool) {
	id, ok := c.Fun.(*ast.Ident)
	if !ok {
		return "", false
	}
	b, ok := v.info.Uses[id].(*types.Builtin)
	if !ok {
		return "", false
	}
	return b.Name(), true
}

// failsOnly says that a call does something and returns nothing but an error, which is looked at: it can be left out.
func (v *finder) failsOnly(c *ast.CallExpr) bool {
	t, ok := v.info.Types[c]
	if !ok || t.Type == nil || t.Type.String() != "error" || v.makesErrors(c) {
		return false
	}
	switch p := v.parent().(type) {
	case *ast.AssignStmt, *ast.ReturnStmt:
		return true
	case *ast.CallExpr:
		return v.makesErrors(p)
	}
	return false
}

// makesErrors says that a function of another package, or a conversion, only makes an error of its arguments.
func (v *finder) makesErrors(c *ast.CallExpr) bool {
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			if pkg, ok := v.info.Uses[x].(*types.PkgName); ok {
				path := pkg.Imported().Path()
				return path == "fmt" || path == "errors" || strings.HasSuffix(path, "/internal/task")
			}
		}
	case *ast.FuncLit:
		return true
	}
	t, ok := v.info.Types[c.Fun]
	return ok && t.IsType()
}

// kept are calls without which nothing goes on, or which tests need not see.
var kept = regexp.MustCompile(`^(panic|print|println|Lock|RLock|Unlock|RUnlock|Done|Debug|Info|Warn|Error|Log|LogAttrs)$`)

// statement leaves out a call, deferred or not.
func (v *finder) statement(s ast.Stmt, x ast.Expr) {
	c, ok := x.(*ast.CallExpr)
	if !ok {
		return
	}
	switch v.parent().(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
	default:
		return
	}
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		if kept.MatchString(f.Name) {
			return
		}
	case *ast.SelectorExpr:
		if kept.MatchString(f.Sel.Name) {
			return
		}
		if t := v.info.TypeOf(f.X); t != nil && f.Sel.Name == "Stop" && (t.String() == "*time.Timer" || t.String() == "*time.Ticker") {
			return
		}
	case *ast.FuncLit:
		return // its body is mutated
	}
	if t := v.info.TypeOf(c.Fun); t == nil || t.String() == "context.CancelFunc" {
		return
	}
	id := v.add(s, "not called")
	v.wrap(s, fmt.Sprintf("if !mutantOn(%d) { ", id), " }", id)
}

// results swaps two results of one type.
func (v *finder) results(r *ast.ReturnStmt) {
	if len(r.Results) != 2 {
		return
	}
	a, b := r.Results[0], r.Results[1]
	if v.text(a) == v.text(b) || v.isNil(a) || v.isNil(b) || !types.Identical(v.info.TypeOf(a), v.info.TypeOf(b)) {
		return
	}
	id := v.add(r, "results swapped")
	v.wrapAt(v.at(a.Pos()), v.at(b.End()), fmt.Sprintf("mutantSwap(%d, ", id), ")", id)
}

func (v *finder) isNil(x ast.Expr) bool { t, ok := v.info.Types[x]; return ok && t.IsNil() }

// number adds one to a number, and takes one away. Numbers in larger constants, as 10 * time.Second, are measures and not conditions.
func (v *finder) number(l *ast.BasicLit) {
	if l.Kind != token.INT {
		return
	}
	switch p := v.parent().(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.ParenExpr:
		if v.isConst(p.(ast.Expr)) {
			return
		}
	case *ast.ArrayType, *ast.KeyValueExpr, *ast.Field:
		return
	case *ast.CallExpr:
		if name, ok := v.builtin(p); ok && name == "make" || strings.HasPrefix(v.text(p.Fun), "strconv.") || v.isConst(p) {
			return
		}
	}
	t, ok := v.info.TypeOf(l).(*types.Basic)
	for _, n := range v.path {
		if d, isDecl := n.(*ast.GenDecl); isDecl && d.Tok == token.CONST {
			v.addRebuilt(l, l.Value+" plus 1", edit{v.at(l.Pos()), v.at(l.End()), "(" + l.Value + " + 1)"})
			return
		}
	}
	if !ok || t.Info()&types.IsUntyped != 0 {
		return
	}
	plus := v.add(l, l.Value+" plus 1")
	v.wrap(l, "(", fmt.Sprintf(" + %s(mutantOne(%d)))", t.Name(), plus), plus)
	if l.Value != "0" {
		minus := v.add(l, l.Value+" minus 1")
		v.wrap(l, "(", fmt.Sprintf(" - %s(mutantOne(%d)))", t.Name(), minus), minus)
	}
}

// boolean turns true and false around.
func (v *finder) boolean(x *ast.Ident) {
	if x.Name != "true" && x.Name != "false" || v.info.Uses[x] != types.Universe.Lookup(x.Name) {
		return
	}
	for _, n := range v.path {
		if d, isDecl := n.(*ast.GenDecl); isDecl && d.Tok == token.CONST {
			return
		}
	}
	if f, ok := v.path[0].(*ast.FuncDecl); ok && v.fixed[v.types.Scope().Lookup(f.Name.Name)] {
		return
	}
	if t, ok := v.info.TypeOf(x).(*types.Basic); !ok || t.Kind() != types.Bool && t.Kind() != types.UntypedBool {
		return
	}
	id := v.add(x, x.Name+" negated")
	v.wrap(x, fmt.Sprintf("(mutantOn(%d) != ", id), ")", id)
}

// step counts the other way.
func (v *finder) step(s *ast.IncDecStmt) {
	if f, ok := v.parent().(*ast.ForStmt); ok && f.Post == s {
		return
	}
	other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
	id := v.add(s, "becomes "+other)
	v.wrap(s, fmt.Sprintf("if mutantOn(%d) { %s%s } else { ", id, v.text(s.X), other), " }", id)
}

// assignment leaves out an assignment to what exists already. That of a call's only error is left out with the call.
func (v *finder) assignment(s *ast.AssignStmt) {
	switch v.parent().(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
	default:
		return
	}
	if s.Tok == token.DEFINE || !slices.ContainsFunc(s.Lhs, func(x ast.Expr) bool { return !isNamed(x, "_") }) {
		return
	}
	if c, ok := s.Rhs[0].(*ast.CallExpr); ok && len(s.Lhs) == 1 {
		if t := v.info.TypeOf(c); t != nil && t.String() == "error" && !v.makesErrors(c) {
			return
		}
	}
	id := v.add(s, "not assigned")
	v.wrap(s, fmt.Sprintf("if !mutantOn(%d) { ", id), " }", id)
}

// fields leaves out each named field of a new struct. Texts of other modules' structs are descriptions, as of a command.
func (v *finder) fields(c *ast.CompositeLit) {
	of, ok := v.info.TypeOf(c).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for _, x := range c.Elts {
		kv, ok := x.(*ast.KeyValueExpr)
		if !ok || v.isZeroValue(kv.Value) || v.isText(kv.Value) && !v.isOwn(v.info.TypeOf(c)) {
			continue
		}
		var field types.Type
		for f := range of.Fields() {
			if isNamed(kv.Key, f.Name()) {
				field = f.Type()
			}
		}
		t, named := v.typeText(field)
		if !named {
			continue
		}
		v.path = append(v.path, c)
		id := v.add(kv, "not set")
		v.path = v.path[:len(v.path)-1]
		v.wrap(kv.Value, fmt.Sprintf("mutantZero[%s](%d, ", t, id), ")", id)
	}
}

func (v *finder) isText(x ast.Expr) bool {
	t, ok := v.info.TypeOf(x).Underlying().(*types.Basic)
	return ok && t.Info()&types.IsString != 0 && v.isConst(x)
}

// isOwn reports whether a struct's type is of the module, or has no name.
func (v *finder) isOwn(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return !ok || n.Obj().Pkg() == nil || n.Obj().Pkg().Path() == v.module || strings.HasPrefix(n.Obj().Pkg().Path(), v.module+"/")
}

// isZeroValue reports whether an expression is the zero of its type for certain.
func (v *finder) isZeroValue(x ast.Expr) bool {
	if v.isNil(x) {
		return true
	}
	c := v.info.Types[x].Value
	return c != nil && (c.String() == "0" || c.String() == "false" || c.String() == `""`)
}

// foreign matches a name that only its own package can use.
var foreign = regexp.MustCompile(`\.[^A-Z\s.]`)

// typeText writes a type as the file could. A type of a package that the file does not import, or that is not exported, has no name there.
func (v *finder) typeText(t types.Type) (text string, named bool) {
	named = true
	text = types.TypeString(t, func(p *types.Package) string {
		if p == v.types {
			return ""
		}
		for _, i := range v.file.syntax.Imports {
			switch path, _ := strconv.Unquote(i.Path.Value); {
			case path != p.Path():
			case i.Name != nil:
				return i.Name.Name
			default:
				return p.Name()
			}
		}
		named = false
		return p.Name()
	})
	return text, named && !foreign.MatchString(text)
}

func (v *finder) isBool(x ast.Expr) bool {
	t, ok := v.info.TypeOf(x).(*types.Basic)
	return ok && (t.Kind() == types.Bool || t.Kind() == types.UntypedBool) && !v.isConst(x)
}

func (v *finder) isConst(x ast.Expr) bool { return v.info.Types[x].Value != nil }

// isFixed says that an expression, negated or not, is a call of a function that always returns the same.
func (v *finder) isFixed(x ast.Expr) bool {
	if not, ok := x.(*ast.UnaryExpr); ok {
		x = not.X
	}
	c, ok := ast.Unparen(x).(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := c.Fun.(*ast.Ident)
	return ok && v.fixed[v.info.Uses[id]]
}

func (v *finder) at(p token.Pos) int { return v.fset.Position(p).Offset }

var spaces = regexp.MustCompile(`\s+`)

func (v *finder) text(n ast.Node) string { return string(v.file.text[v.at(n.Pos()):v.at(n.End())]) }

// maxSnippet bounds the code in a mutant's name.
const maxSnippet = 100

func (v *finder) add(n ast.Node, what string) (id int) {
	shown := n
	switch n.(type) {
	case *ast.BasicLit, *ast.Ident: // by what is around it
		if p := v.parent(); p != nil && strings.HasPrefix(what, v.text(n)+" ") {
			shown = p
		}
	}
	snippet := spaces.ReplaceAllString(v.text(shown), " ")
	if len(snippet) > maxSnippet {
		snippet = snippet[:maxSnippet] + "…"
	}
	name := fmt.Sprintf("%s %s: %s: %s", filepath.Base(v.file.path), v.fn, snippet, what)
	if v.seen[name]++; v.seen[name] > 1 {
		name = fmt.Sprintf("%s #%d", name, v.seen[name])
	}
	m := &mutant{id: *v.next, name: name, file: v.file, line: v.fset.Position(n.Pos()).Line, covered: v.fset.Position(v.reached(n)).Line}
	*v.next++
	v.mutants = append(v.mutants, m)
	return m.id
}

// reached returns the position at which a coverage profile shows whether tests execute a node: the start of its
// statement. A profile shows nothing about what follows a function literal in a statement. It counts a case once its
// body runs; the condition of a case counts with the statement around it.
func (v *finder) reached(n ast.Node) token.Pos {
	for i := len(v.path) - 1; i > 1; i-- {
		var colon token.Pos
		switch around := v.path[i].(type) {
		case *ast.CaseClause:
			colon = around.Colon
		case *ast.CommClause:
			colon = around.Colon
		case *ast.BlockStmt:
			return n.Pos()
		case ast.Stmt:
			n = around
			continue
		default:
			continue
		}
		if n.Pos() < colon {
			return v.path[i-2].Pos()
		}
		return n.Pos()
	}
	return n.Pos()
}

func (v *finder) addRebuilt(n ast.Node, what string, e edit) {
	v.add(n, what)
	v.mutants[len(v.mutants)-1].rebuilt = &e
}

func (v *finder) wrap(n ast.Node, before, after string, ids ...int) {
	v.wrapAt(v.at(n.Pos()), v.at(n.End()), before, after, ids...)
}

func (v *finder) wrapAt(start, end int, before, after string, ids ...int) {
	v.wraps = append(v.wraps, wrap{start, end, before, after, nil, ids})
}
