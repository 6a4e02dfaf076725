package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// The REST API reference, rendered from its OpenAPI document: a page that lists all operations, and one page for each.
func apiPages(openAPI func() []byte) []web.Page {
	read := apiReader(openAPI)
	return []web.Page{
		{Path: "/docs/api", Template: "api", Nav: "/settings", Show: func(*web.Request) (*web.Screen, error) { return showAPI(read) }},
		{Path: "/docs/api/{operation}", Template: "api_operation", Nav: "/settings", Show: func(req *web.Request) (*web.Screen, error) {
			return showAPIOperation(req, read)
		}},
	}
}

// apiDocument is the content of the pages.
type apiDocument struct {
	About      []string // paragraphs that apply to all calls
	Groups     []apiGroup
	operations map[string]*apiOperation
}

type apiGroup struct {
	Title      string
	Operations []*apiOperation
}

type apiOperation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []apiField
	Request                                *apiBody // nil: the call has none
	Answer                                 apiBody
	Objects                                []apiObject // that the request and the response consist of
}

// apiBody is a request or response body.
type apiBody struct {
	Status  string // of a response
	Type    string
	Ref     string // an object on the same page
	Example string // indented
	Curl    string // of a request: the complete call
}

// apiObject is a schema with its fields.
type apiObject struct {
	Name, Description string
	Fields            []apiField
}

type apiField struct {
	Name, In, Type, Ref, Description string
	Required                         bool
}

// The parts of the OpenAPI document that the pages use.
type openAPI struct {
	Info  struct{ Description string }
	Tags  []struct{ Name string }
	Paths map[string]map[string]struct {
		OperationID, Summary, Description string
		Tags                              []string
		Parameters                        []struct {
			Name, In, Description string
			Required              bool
			Schema                *openAPISchema
		}
		RequestBody *struct{ Content map[string]openAPIMedia }
		Responses   map[string]struct{ Content map[string]openAPIMedia }
	}
	Components struct{ Schemas map[string]*openAPISchema }
}

const schemaPrefix = "#/components/schemas/"

type openAPIMedia struct {
	Schema  *openAPISchema
	Example json.RawMessage
}

type openAPISchema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Description          string
	Enum                 []any
	Items                *openAPISchema
	OneOf, AllOf         []*openAPISchema
	Properties           map[string]*openAPISchema
	Required             []string
	AdditionalProperties json.RawMessage
	Minimum, Maximum     *json.Number
	MaxLength            *json.Number
	Format               string
	ContentEncoding      string
}

// apiReader returns a function that parses the document on its first call.
func apiReader(document func() []byte) func() (*apiDocument, error) {
	return sync.OnceValues(func() (*apiDocument, error) {
		if document == nil {
			return nil, fmt.Errorf("the program has no OpenAPI document")
		}
		var doc openAPI
		if err := json.Unmarshal(document(), &doc); err != nil {
			return nil, fmt.Errorf("the OpenAPI document: %w", err)
		}
		return doc.read(), nil
	})
}

func (doc *openAPI) read() *apiDocument {
	out := &apiDocument{About: strings.Split(doc.Info.Description, "\n\n"), operations: map[string]*apiOperation{}}
	groups := map[string]int{}
	for _, tag := range doc.Tags {
		groups[tag.Name] = len(out.Groups)
		out.Groups = append(out.Groups, apiGroup{Title: tag.Name})
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			o := &apiOperation{ID: op.OperationID, Method: strings.ToUpper(method), Path: path, Summary: op.Summary,
				Description: op.Description}
			refs := map[string]bool{}
			for _, p := range op.Parameters {
				f := doc.field(p.Name, p.Schema, p.Required, refs)
				f.In = p.In
				if p.Description != "" {
					f.Description = p.Description
				}
				o.Parameters = append(o.Parameters, f)
			}
			if op.RequestBody != nil {
				body := doc.body(op.RequestBody.Content, refs)
				body.Curl = curlOf(o, body.Example)
				o.Request = &body
			}
			for status, answer := range op.Responses {
				if status == "200" || status[0] == '2' && o.Answer.Status == "" {
					o.Answer = doc.body(answer.Content, refs)
					o.Answer.Status = status
				}
			}
			o.Objects = doc.objects(refs, o)
			out.operations[o.ID] = o
			if len(op.Tags) > 0 {
				g := &out.Groups[groups[op.Tags[0]]]
				g.Operations = append(g.Operations, o)
			}
		}
	}
	for _, g := range out.Groups {
		slices.SortFunc(g.Operations, func(a, b *apiOperation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	}
	return out
}

func (doc *openAPI) body(content map[string]openAPIMedia, refs map[string]bool) apiBody {
	media, ok := content["application/json"]
	if !ok {
		for kind := range content {
			return apiBody{Type: kind}
		}
		return apiBody{}
	}
	f := doc.field("", media.Schema, false, refs)
	b := apiBody{Type: f.Type, Ref: f.Ref}
	if len(media.Example) > 0 {
		var text bytes.Buffer
		if json.Indent(&text, media.Example, "", "  ") == nil {
			b.Example = text.String()
		}
	}
	return b
}

// field describes a value, and adds the objects that it consists of to refs.
func (doc *openAPI) field(name string, s *openAPISchema, required bool, refs map[string]bool) apiField {
	f := apiField{Name: name, Required: required}
	if s == nil {
		return f
	}
	f.Description = s.Description
	f.Type, f.Ref = doc.typeOf(s, refs)
	if to := doc.Components.Schemas[strings.TrimPrefix(s.Ref, schemaPrefix)]; f.Description == "" && to != nil {
		f.Description = to.Description
	}
	return f
}

// typeOf returns a type in words, and the object that it is or contains.
func (doc *openAPI) typeOf(s *openAPISchema, refs map[string]bool) (words, ref string) {
	if name, ok := strings.CutPrefix(s.Ref, schemaPrefix); ok {
		to := doc.Components.Schemas[name]
		if to == nil {
			return name, ""
		}
		if len(to.Properties) == 0 { // a simple value: its type says more than its name
			if words, ref = doc.typeOf(to, refs); words == "string" {
				words = strings.ToLower(name) // for example Duration, which is defined by the pattern of its text
			}
			return words, ref
		}
		refs[name] = true
		return name, name
	}
	switch {
	case len(s.OneOf) > 0:
		return doc.several(s.OneOf, " or ", refs)
	case len(s.AllOf) > 0:
		return doc.several(s.AllOf, " and ", refs)
	case s.Items != nil:
		words, ref = doc.typeOf(s.Items, refs)
		return "list of " + words, ref
	case len(s.Enum) > 0:
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprint(v))
		}
		return strings.Join(values, ", "), ""
	}
	words = "any JSON"
	if s.Type != nil {
		words = strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Type), " ", " or "), "[]")
	}
	switch {
	case s.ContentEncoding != "":
		words = "text in " + s.ContentEncoding
	case s.Format != "":
		words = s.Format
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		words += fmt.Sprintf(", %s to %s", *s.Minimum, *s.Maximum)
	case s.Minimum != nil && *s.Minimum != "0":
		words += ", from " + s.Minimum.String()
	case s.MaxLength != nil:
		words += fmt.Sprintf(", at most %s characters", *s.MaxLength)
	}
	return words, ""
}

func (doc *openAPI) several(of []*openAPISchema, between string, refs map[string]bool) (words, ref string) {
	var all []string
	for _, s := range of {
		w, r := doc.typeOf(s, refs)
		all = append(all, w)
		if r != "" {
			ref = r
		}
	}
	return strings.Join(all, between), ref
}

// objects returns the named schemas and those that they consist of, with the request's and the response's first.
func (doc *openAPI) objects(refs map[string]bool, of *apiOperation) (out []apiObject) {
	done := map[string]bool{}
	for len(done) < len(refs) {
		for name := range refs {
			if done[name] {
				continue
			}
			done[name] = true
			s := doc.Components.Schemas[name]
			o := apiObject{Name: name, Description: s.Description}
			for field, of := range s.Properties {
				o.Fields = append(o.Fields, doc.field(field, of, slices.Contains(s.Required, field), refs))
			}
			slices.SortFunc(o.Fields, func(a, b apiField) int {
				if a.Required != b.Required {
					return map[bool]int{true: -1, false: 1}[a.Required]
				}
				return strings.Compare(a.Name, b.Name)
			})
			out = append(out, o)
		}
	}
	rank := func(o apiObject) int {
		switch {
		case of.Request != nil && o.Name == of.Request.Ref:
			return 0
		case o.Name == of.Answer.Ref:
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b apiObject) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.Name, b.Name)) })
	return out
}

// curlOf returns a call as a curl command line.
func curlOf(o *apiOperation, example string) string {
	if example == "" {
		return ""
	}
	var short bytes.Buffer
	if json.Compact(&short, []byte(example)) != nil {
		return ""
	}
	method := ""
	if o.Method != http.MethodPost {
		method = " -X " + o.Method
	}
	return fmt.Sprintf("curl%s http://127.0.0.1:7295%s \\\n  -d %s", method, o.Path, humanize.ShellWord(short.String()))
}

func showAPI(read func() (*apiDocument, error)) (*web.Screen, error) {
	doc, err := read()
	if err != nil {
		return nil, err
	}
	return &web.Screen{Title: "REST API", Data: doc, NoRefresh: true}, nil
}

func showAPIOperation(req *web.Request, read func() (*apiDocument, error)) (*web.Screen, error) {
	doc, err := read()
	if err != nil {
		return nil, err
	}
	o, ok := doc.operations[req.PathValue("operation")]
	if !ok {
		return nil, &pawltype.Error{Code: pawltype.ErrNotFound, Message: fmt.Sprintf("operation %q: not found", req.PathValue("operation"))}
	}
	return &web.Screen{Title: o.Summary, Data: o, NoRefresh: true}, nil
}
