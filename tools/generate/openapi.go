package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
)

// base is what the OpenAPI document has from nowhere else: its introduction, routes and schemas that are not those of
// an rpc and its messages. An operation in it lacks what the contract says; a schema is complete.
//
//go:embed openapi.json
var base []byte

// examplesFile has a request and an answer of each operation, by operation id. go test ./test/docs -rewrite asks a real server for them.
const examplesFile = "internal/rest/examples.json"

type object = map[string]any

// document is the OpenAPI description of REST, while it is made.
type document struct {
	docs      comments
	schemas   object
	inRequest map[protoreflect.FullName]bool // messages that requests may have
	rpcs      map[string]bool
	examples  map[string]struct {
		Request, Answer json.RawMessage
		Status          int
		Stamped         bool // the answer says which state of a shard it reflects
	}
}

// openAPI returns the OpenAPI description of REST: the routes with their requests and answers as apijson reads and writes them, the
// comments of the contract, and what openapi.json and openapi_facts.go add.
func openAPI(docs comments) []byte {
	var doc object
	parseJSON(base, &doc)
	expand(doc)
	d := &document{docs: docs, schemas: section(section(doc, "components"), "schemas"), inRequest: map[protoreflect.FullName]bool{},
		rpcs: map[string]bool{}}
	text, err := os.ReadFile(examplesFile)
	if err != nil {
		panic(err)
	}
	parseJSON(text, &d.examples)
	calls := contract.Calls()
	for _, call := range calls {
		d.rpcs[string(call.Method.Name())] = true
	}
	for _, r := range rest.Routes() {
		if r.RPC != "" && hasBody(r) {
			d.mark(calls[r.RPC].Method.Input())
		}
	}
	ours, paths := section(doc, "paths"), object{}
	for _, r := range rest.Routes() {
		method := strings.ToLower(r.Method)
		op := section(section(ours, r.Path), method)
		if op == nil {
			op = object{}
		}
		delete(section(ours, r.Path), method)
		if r.RPC != "" {
			d.operation(op, r, calls[r.RPC].Method)
		}
		section(op, "responses")["default"] = object{"$ref": "#/components/responses/Refused"}
		d.example(op)
		if paths[r.Path] == nil {
			paths[r.Path] = object{}
		}
		paths[r.Path].(object)[method] = op
	}
	for path, item := range ours {
		if len(item.(object)) > 0 {
			panic("openapi.json describes what is not served at " + path)
		}
	}
	doc["paths"] = paths
	d.addSchemas(doc)
	var b bytes.Buffer
	layOut(&b, "", doc, "\n")
	b.WriteByte('\n')
	return b.Bytes()
}

// addSchemas adds the schemas that are not of a body or an answer.
func (d *document) addSchemas(doc object) {
	var codes []string
	for _, e := range errorClasses {
		codes = append(codes, string(e.code))
	}
	d.schemas["Code"] = object{"type": "string", "description": "Why a request was refused. Stable.", "enum": codes}
	d.complete(doc)
	d.refer("Event") // the data of a server-sent event
	problem := section(section(d.schemas, "Problem"), "properties")
	maps.Copy(problem, section(section(d.schemas, "Error"), "properties"))
	delete(problem, "message") // it is the detail
}

// expand replaces what the base writes shorter: "$Name" is a schema by its name, a response with a schema has it as JSON.
func expand(v any) any {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "$"); ok {
			return apijson.Ref(name)
		}
	case []any:
		for i, item := range v {
			v[i] = expand(item)
		}
	case object:
		for name, value := range v {
			if name != "$ref" {
				v[name] = expand(value)
			}
		}
		for status, response := range section(v, "responses") {
			if of := response.(object); of["description"] == nil {
				v["responses"].(object)[status] = object{"description": "Done.", "content": asJSON(of)}
			} else if of["schema"] != nil {
				of["content"] = asJSON(of["schema"].(object))
				delete(of, "schema")
			}
		}
		if schema, ok := v["requestBody"].(object); ok {
			v["requestBody"] = object{"required": true, "content": asJSON(schema)}
		}
	}
	return v
}

// section returns the object with a name in an object; nil: there is none.
func section(of object, name string) object {
	inner, _ := of[name].(object)
	return inner
}

func parseJSON(text []byte, to any) {
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
}

// hasBody reports whether a request has its fields in a body, and not in the query.
func hasBody(r *rest.Route) bool { return r.Method != http.MethodGet && r.Method != http.MethodDelete }

// mark marks a message of requests and those within it.
func (d *document) mark(m protoreflect.MessageDescriptor) {
	if d.inRequest[m.FullName()] {
		return
	}
	d.inRequest[m.FullName()] = true
	for _, f := range apijson.Of(m).All() {
		d.mark(f.D.ContainingMessage())
		if inner := f.Inner(); inner != nil {
			d.mark(inner)
		}
	}
}

// operation adds to the operation of a route what the contract says.
func (d *document) operation(op object, r *rest.Route, m protoreflect.MethodDescriptor) {
	set := func(name string, value any) {
		if _, ok := op[name]; !ok && value != "" {
			op[name] = value
		}
	}
	service := string(m.Parent().Name())
	summary, description, _ := strings.Cut(d.docs[service+"Client."+string(m.Name())], ". ")
	_, summary, _ = strings.Cut(summary, " ")
	set("operationId", lowerFirst(string(m.Name())))
	set("tags", []any{tagOf(service)})
	set("summary", strings.TrimSuffix(d.sentence(summary), "."))
	set("description", d.sentence(description))
	others, _ := op["parameters"].([]any)
	if all := append(d.parameters(r, apijson.Of(m.Input()).All()), others...); len(all) > 0 {
		op["parameters"] = all
	}
	if hasBody(r) && op["requestBody"] == nil {
		op["requestBody"] = d.body(r, alone(m.Input()))
	}
	out := m.Output()
	if name := r.Spec.GetAnswer(); name != "" {
		out = out.Fields().ByName(protoreflect.Name(name)).Message()
	}
	schema := apijson.Ref(apijson.SchemaName(alone(out)))
	if out.Fields().Len() == 0 {
		schema = apijson.Ref("Nothing")
	}
	status := strconv.Itoa(max(int(r.Spec.GetStatus()), http.StatusOK))
	set("responses", object{status: object{"description": "Done.", "content": asJSON(schema)}})
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// parameters describes what a route takes in its path, its query and its headers.
func (d *document) parameters(r *rest.Route, fields []*apijson.Field) (all []any) {
	for _, m := range inPath.FindAllStringSubmatch(r.Path, -1) {
		p := d.parameter(pathField(fields, m[1]), "path")
		p["name"], p["required"] = m[1], true
		all = append(all, p)
	}
	for _, f := range fields {
		header := rest.Headers[f.Name()]
		if r.Reads(f.Name()) || hasBody(r) && header == "" {
			continue
		}
		p := d.parameter(f, "query")
		if p == nil {
			continue
		}
		if hasBody(r) {
			p["in"], p["name"] = "header", header
		}
		all = append(all, p)
	}
	return all
}

// pathField returns the field that a path parameter stands for.
func pathField(fields []*apijson.Field, name string) *apijson.Field {
	for _, f := range fields {
		if f.Name() == name || f.Name() == name+"_id" {
			return f
		}
	}
	return fields[0]
}

// alsoInBody are fields that a body may repeat from the path.
var alsoInBody = map[string]bool{"PUT /api/v1/schedules/{name} name": true}

// body describes the body of a request, which has what is not in the path.
func (d *document) body(r *rest.Route, m protoreflect.MessageDescriptor) object {
	name := apijson.SchemaName(m)
	s := d.message(name, m, func(field string) bool { return r.Reads(field) && !alsoInBody[r.String()+" "+field] })
	if s["properties"] == nil {
		delete(d.schemas, name)
		name = "Nothing"
	}
	return object{"required": s["required"] != nil || s["minProperties"] != nil || s["anyOf"] != nil, "content": asJSON(apijson.Ref(name))}
}

// alone returns the only message that is inlined in one without other fields, or that one itself.
func alone(m protoreflect.MessageDescriptor) protoreflect.MessageDescriptor {
	if all := apijson.Of(m).All(); m.Fields().Len() == 1 && len(all) > 0 {
		return all[0].D.ContainingMessage()
	}
	return m
}

func asJSON(schema object) object { return object{"application/json": object{"schema": schema}} }

// tagOf returns the group of calls that a service belongs to.
func tagOf(service string) string {
	switch service {
	case "ProducerService", "GroupService":
		return "Producers"
	case "WorkerService":
		return "Workers"
	}
	return "Operators"
}

// parameter describes a field in a path, a query or a header; nil: REST does not have it.
func (d *document) parameter(f *apijson.Field, in string) object {
	s := d.field(f, true)
	if s == nil {
		return nil
	}
	p := object{"name": f.Name(), "in": in, "schema": s}
	if doc := s["description"]; doc != nil {
		p["description"] = doc
		delete(s, "description")
	}
	if f.D.IsList() {
		p["style"], p["explode"] = "form", true
		if s["$ref"] == nil {
			p["schema"] = object{"type": "array", "items": object{"type": "string"}}
			p["description"] = strings.TrimSpace(fmt.Sprint(p["description"], " Repeated, or separated by commas."))
		}
	}
	return p
}

// example adds the example of an operation to its request and its answer, with the headers that the server's answer had.
func (d *document) example(op object) {
	e, ok := d.examples[op["operationId"].(string)]
	if !ok {
		return
	}
	put := func(to object, value json.RawMessage) {
		if media := section(section(to, "content"), "application/json"); media != nil && value != nil {
			media["example"] = value
		}
	}
	put(section(op, "requestBody"), e.Request)
	answer := section(section(op, "responses"), strconv.Itoa(e.Status))
	put(answer, e.Answer)
	if e.Stamped {
		if answer["headers"] == nil {
			answer["headers"] = object{}
		}
		for _, h := range []string{"Pawl-Shard", "Pawl-Index", "Pawl-Time"} {
			section(answer, "headers")[h] = object{"$ref": "#/components/headers/" + h}
		}
	}
}

// layOut writes a value, on one line if it is short or an example.
func layOut(b *bytes.Buffer, name string, value any, newline string) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	if line.Truncate(line.Len() - 1); line.Len() <= 120 || name == "example" {
		b.Write(line.Bytes())
		return
	}
	inner, between := newline+"  ", ""
	switch value := value.(type) {
	case object:
		b.WriteByte('{')
		for _, key := range slices.SortedFunc(maps.Keys(value), byPlace) {
			fmt.Fprintf(b, "%s%s%q: ", between, inner, key)
			layOut(b, key, value[key], inner)
			between = ","
		}
		b.WriteString(newline + "}")
	case []any:
		b.WriteByte('[')
		for _, item := range value {
			b.WriteString(between + inner)
			layOut(b, "", item, inner)
			between = ","
		}
		b.WriteString(newline + "]")
	default:
		b.Write(line.Bytes())
	}
}

// first are the names that come before others in an object.
var first = strings.Fields("openapi info servers security tags paths operationId summary name in type description parameters requestBody")

func byPlace(a, b string) int {
	place := func(name string) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	if n := place(a) - place(b); n != 0 {
		return n
	}
	return strings.Compare(a, b)
}
