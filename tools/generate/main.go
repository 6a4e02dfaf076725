// Program generate writes what the SDKs have from the contract. In Python and TypeScript these are the operators' calls,
// from the list in calls.go, the data types, from that in data.go, the errors, from that in codes.go, and the limits,
// from that in limits.go; in package admin the data types with their converters, from the list in types.go. How a call
// is sent is in the SDKs. It also writes the OpenAPI document of REST, with what openapi.json and openapi_facts.go add.
//
//	go run ./tools/generate
package main

import (
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/pawlq/pawl/api/pawl/v1" // registers the contract
)

func main() {
	for file, code := range generated() {
		if err := os.WriteFile(file, code, 0o644); err != nil { //nolint:gosec // it is source
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// generated returns the files by their names in the repository, which is the working directory.
func generated() map[string][]byte {
	files := golang()
	files["clients/python/src/pawl/_operate.py"] = python()
	files["clients/typescript/src/operate.ts"] = typescript()
	files["clients/python/src/pawl/_codes.py"] = pythonCodes()
	files["clients/typescript/src/codes.ts"] = typescriptCodes()
	files["clients/python/src/pawl/_limits.py"] = pythonLimits()
	files["clients/typescript/src/limits.ts"] = typescriptLimits()
	docs := readComments()
	files["clients/python/src/pawl/_data.py"] = pythonData(docs)
	files["clients/typescript/src/data.ts"] = typescriptData(docs)
	files["internal/rest/openapi.json"] = openAPI(docs)
	return files
}

// arg is an argument of a call.
type arg struct {
	name     string
	field    protoreflect.FieldDescriptor
	required bool
	named    bool   // not by position
	fixed    bool   // it is no argument, but true in each call
	object   string // its type in TypeScript; without a field, the members of the object are the fields
}

// method returns the method of a call in the contract.
func (c *call) method() protoreflect.MethodDescriptor {
	return find(c.rpc).(protoreflect.MethodDescriptor)
}

// find returns what has a name in the contract.
func find(name string) protoreflect.Descriptor {
	d := lookUp(name)
	if d == nil {
		panic(name + " is not in the contract")
	}
	return d
}

// lookUp returns what has a name in the contract, or nil.
func lookUp(name string) protoreflect.Descriptor {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pawl.v1." + name))
	if err != nil {
		return nil
	}
	return d
}

// nameOf returns the name of a message, an enum or a method in the contract: Reason.Rate.
func nameOf(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "pawl.v1.")
}

// parse parses the arguments of a call.
func (c *call) parse(args string) (out []arg) {
	named := false
	for _, word := range strings.Fields(args) {
		if word == "*" {
			named = true
			continue
		}
		word, fixed := strings.CutSuffix(word, "!")
		name, optional := strings.CutSuffix(word, "?")
		name, object, _ := strings.Cut(name, ":")
		name, of, renamed := strings.Cut(name, "=")
		if !renamed {
			of = name
		}
		field := c.method().Input().Fields().ByName(protoreflect.Name(of))
		if field == nil && object == "" {
			panic(fmt.Sprintf("%s: there is no field %q", c.rpc, of))
		}
		out = append(out, arg{name, field, !optional, named, fixed, object})
	}
	return out
}

// missing reports whether the pages of a list say what is missing. Otherwise each item may.
func (c *call) missing() bool {
	page := c.method().Output().Fields()
	return page.ByName("missing") != nil && page.ByName("items").Message().Fields().ByName("missing") == nil
}

// isList reports whether a call returns pages.
func (c *call) isList() bool { return c.method().Input().Fields().ByName("cursor") != nil }
