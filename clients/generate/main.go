// Program generate writes the operators' calls of the SDKs from the contract and the list in calls.go. It knows their names and signatures;
// how a call is sent and how messages become objects is in the SDKs.
//
//	go run ./clients/generate
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
	for file, code := range map[string][]byte{
		"clients/python/src/pawl/_operate.py": python(),
		"clients/typescript/src/operate.ts":   typescript(),
	} {
		if err := os.WriteFile(file, code, 0o644); err != nil { //nolint:gosec // it is source
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
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
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("pawl.v1." + c.rpc))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", c.rpc, err))
	}
	return d.(protoreflect.MethodDescriptor)
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
