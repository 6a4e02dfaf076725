package contract

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Call is an rpc with its options from api/pawl/v1/*.proto.
type Call struct {
	Name string // Service/Method
	*pawlv1.Call
	Method protoreflect.MethodDescriptor
}

// Calls returns all rpcs of the API by their names.
var Calls = sync.OnceValue(func() map[string]*Call {
	calls := map[string]*Call{}
	protoregistry.GlobalFiles.RangeFilesByPackage("pawl.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				c := &Call{Name: string(service.Name()) + "/" + string(m.Name()), Call: &pawlv1.Call{}, Method: m}
				if call, ok := proto.GetExtension(m.Options(), pawlv1.E_Call).(*pawlv1.Call); ok && call != nil {
					c.Call = call
				}
				calls[c.Name] = c
			}
		}
		return true
	})
	return calls
})

// MethodAndPath returns the HTTP method and path of a REST route.
func MethodAndPath(r *pawlv1.Route) (method, path string) {
	switch a := r.GetAddress().(type) {
	case *pawlv1.Route_Get:
		return "GET", a.Get
	case *pawlv1.Route_Post:
		return "POST", a.Post
	case *pawlv1.Route_Put:
		return "PUT", a.Put
	case *pawlv1.Route_Patch:
		return "PATCH", a.Patch
	case *pawlv1.Route_Delete:
		return "DELETE", a.Delete
	}
	return "", ""
}

// Answer returns what a route answers: an rpc's response, or the one field of it that the route names.
func Answer(r *pawlv1.Route, response proto.Message) proto.Message {
	if r.GetAnswer() == "" {
		return response
	}
	m := response.ProtoReflect()
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(r.GetAnswer()))).Message().Interface()
}
