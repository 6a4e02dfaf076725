package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// comments has the comments of the contract, as the messages in Go have them: of Queue, Queue.BreakersOpen and Action_ACTION_MOVE.
type comments map[string]string

// readComments reads the generated messages.
func readComments() comments {
	c := comments{}
	files, err := filepath.Glob("api/pawl/v1/*.pb.go")
	if err != nil || len(files) == 0 {
		panic("run this in the root of the repository: no files match api/pawl/v1/*.pb.go")
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if spec, ok := n.Specs[0].(*ast.TypeSpec); ok {
					c[spec.Name.Name] = text(n.Doc)
					for _, f := range fieldsOf(spec.Type) {
						c[spec.Name.Name+"."+f.Names[0].Name] = text(f.Doc, f.Comment)
					}
				}
			case *ast.ValueSpec:
				c[n.Names[0].Name] = text(n.Doc, n.Comment)
			case *ast.FuncDecl:
				return false
			}
			return true
		})
	}
	return c
}

// fieldsOf returns the fields of a struct, or the methods of an interface: the client of a service has the comments of its rpcs.
func fieldsOf(typ ast.Expr) []*ast.Field {
	switch typ := typ.(type) {
	case *ast.StructType:
		return typ.Fields.List
	case *ast.InterfaceType:
		return slices.DeleteFunc(typ.Methods.List, func(f *ast.Field) bool { return len(f.Names) == 0 })
	}
	return nil
}

// text joins the lines of comments. Paragraphs remain.
func text(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		if t := strings.TrimSpace(g.Text()); t != "" {
			all = append(all, t)
		}
	}
	paragraphs := strings.Split(strings.Join(all, " "), "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// of returns the comment of a type for a message or enum, which must have one.
func (c comments) of(d protoreflect.Descriptor, name string, own *goStruct) string {
	in := strings.ReplaceAll(nameOf(d), ".", "_")
	doc, found := strings.CutPrefix(c[in], in+" ")
	if !found {
		panic(in + " needs a comment that begins with its name")
	}
	return inGo(name+" "+doc, d, own)
}

// absent are the words for a field that is not set, if what that means follows.
var absent = regexp.MustCompile(`\b(?i:absent|empty|none|unset|unspecified):`)

// field returns the comment of a field.
func (c comments) field(f goField, own *goStruct) string {
	zero := "0:"
	switch {
	case f.typ == "time.Time":
		zero = "zero:"
	case strings.ContainsAny(f.typ[:1], "*[") || strings.HasPrefix(f.typ, "map[") || f.typ == "json.RawMessage":
		zero = "nil:"
	case f.field.Kind() == protoreflect.StringKind || f.field.Kind() == protoreflect.EnumKind:
		zero = `"":`
	}
	doc := c[strings.ReplaceAll(nameOf(f.field.Parent()), ".", "_")+"."+camel(f.field)]
	return inGo(absent.ReplaceAllString(doc, zero), f.field, own)
}

var (
	unit  = regexp.MustCompile(`\b(\d+)(ms|s|m|h|d)\b`)
	units = map[string]string{"ms": "ms", "s": "s", "m": "min", "h": "h", "d": "days"}
	term  = regexp.MustCompile(`\b[A-Za-z0-9]+(_[A-Za-z0-9]+)*\b`)
)

// zero finds the words for a field that is not set, in a sentence.
var zero = regexp.MustCompile(`\b((?:is|are) )(?:absent|unset)\b|\babsent( for)\b`)

// inGo writes the names in the comment of d as in package admin, and durations as in prose.
func inGo(doc string, d protoreflect.Descriptor, own *goStruct) string {
	doc = unit.ReplaceAllStringFunc(doc, func(d string) string {
		m := unit.FindStringSubmatch(d)
		return m[1] + " " + units[m[2]]
	})
	doc = zero.ReplaceAllString(doc, "${1}zero$2")
	return term.ReplaceAllStringFunc(doc, func(name string) string { return cmp.Or(nameInGo(name, d, own), name) })
}

// nameInGo returns the name in Go of a message, of the value of an enum, or of a field in the file of d whose name has several words.
func nameInGo(name string, d protoreflect.Descriptor, own *goStruct) string {
	for _, t := range goTypes {
		if slices.Contains(strings.Fields(t.messages), name) {
			return t.name
		}
	}
	for _, e := range goEnums {
		if find(e.name).(protoreflect.EnumDescriptor).Values().ByName(protoreflect.Name(name)) != nil {
			return e.prefix + goName(strings.ToLower(strings.TrimPrefix(name, e.valuePrefix())))
		}
	}
	if !strings.Contains(name, "_") {
		return ""
	}
	if own != nil {
		for _, f := range own.fields {
			if f.field != nil && string(f.field.Name()) == name {
				return f.name
			}
		}
	}
	messages := d.ParentFile().Messages()
	for i := range messages.Len() {
		if messages.Get(i).Fields().ByName(protoreflect.Name(name)) != nil {
			return goName(name)
		}
	}
	return ""
}

// lines returns a text as lines of a comment.
func lines(text string) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString("//\n")
		}
		line := "//"
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+1+len(word) > 118 {
				b.WriteString(line + "\n")
				line = "//"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
