package rest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
)

// Route is one method and path of REST.
type Route struct {
	Method, Path string
	// RPC names the call, as Service/Method; "": the route is not one of the API's calls.
	RPC    string
	handle func(*exchange) error

	Spec  *pawlv1.Route    // nil: the route has no RPC
	takes *apijson.Message // the type of the request
	// inPath are the fields of the request in the path, by their names there.
	inPath map[string]*apijson.Field
	// fixed are the fields of the request that the path of this or another route of the call determines.
	fixed []string
}

// String returns the name under which calls of the route are counted: GET /api/v1/tasks.
func (r *Route) String() string {
	if r.Path == "" {
		return "other"
	}
	return r.Method + " " + r.Path
}

// Routes returns all routes: those of the proto files, and those of the server itself.
var Routes = sync.OnceValue(func() []*Route {
	routes := slices.Clone(serverRoutes)
	calls := contract.Calls()
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		for _, spec := range calls[name].GetRest() {
			routes = append(routes, newRoute(calls[name], spec))
		}
	}
	return routes
})

// special are the routes with a special form of request or answer.
var special = map[string]func(*exchange) error{
	"POST /api/v1/tasks/batch":            enqueueBatch,
	"GET /api/v1/tasks":                   listTasks,
	"GET /api/v1/tasks/{id}":              getTask,
	"PATCH /api/v1/tasks/{id}":            updateTask,
	"POST /api/v1/claim":                  claim,
	"POST /api/v1/tasks/ack":              acks,
	"POST /api/v1/tasks/fail":             fails,
	"POST /api/v1/tasks/extend":           extends,
	"POST /api/v1/tasks/release":          releases,
	"GET /api/v1/queues/{queue}/dead":     listDead,
	"GET /api/v1/queues/{queue}/poisoned": listDead,
	"GET /api/v1/dead":                    groupDead,
	"GET /api/v1/poisoned":                groupDead,
	"POST /api/v1/schedules":              createSchedule,
	"PUT /api/v1/schedules/{name}":        putSchedule,
	"POST /api/v1/operations":             startOperation,
	"GET /api/v1/cluster/nodes":           listNodes,
	"GET /api/v1/cluster/shards":          listShards,
	"GET /api/v1/events":                  watchEvents,
}

func newRoute(call *contract.Call, spec *pawlv1.Route) *Route {
	r := &Route{RPC: call.Name, Spec: spec, takes: apijson.Of(call.Method.Input()), inPath: map[string]*apijson.Field{}}
	r.Method, r.Path = contract.MethodAndPath(spec)
	for _, other := range call.GetRest() {
		r.fixed = append(r.fixed, other.GetSet())
	}
	r.handle = special[r.String()]
	if r.handle == nil {
		r.handle = callRPC
	}
	for _, part := range strings.Split(r.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			r.inPath[name] = r.takes.PathField(name)
		}
	}
	return r
}

// methods are the rpcs of services, which register as with a gRPC server.
type methods map[string]func(ctx context.Context, fill func(any) error) (any, error)

// RegisterService implements grpc.ServiceRegistrar.
func (m methods) RegisterService(d *grpc.ServiceDesc, service any) {
	name := strings.TrimPrefix(d.ServiceName, "pawl.v1.")
	for _, rpc := range d.Methods {
		m[name+"/"+rpc.MethodName] = func(ctx context.Context, fill func(any) error) (any, error) {
			return rpc.Handler(service, ctx, fill, nil)
		}
	}
}

// ask calls an rpc with a request that fill fills in.
func ask[Request, Response proto.Message](x *exchange, rpc string, fill func(Request) error) (got Response, err error) {
	answer, err := x.methods[rpc](x.ctx, func(in any) error { return fill(in.(Request)) })
	if err != nil {
		return got, err
	}
	return answer.(Response), nil
}

// callRPC calls the rpc of the route.
func callRPC(x *exchange) error {
	got, err := ask[proto.Message, proto.Message](x, x.on.RPC, func(in proto.Message) error { return x.request(in) })
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}

// answer writes the rpc's answer, or the one field of it that is the route's answer.
func (x *exchange) answer(got proto.Message) {
	if got.ProtoReflect().Descriptor().Fields().ByName(fieldSecret) != nil {
		x.w.Header().Set("Cache-Control", "no-store") // no cache may store it
	}
	x.status = int(x.on.Spec.GetStatus())
	x.Message(contract.Answer(x.on.Spec, got))
}

const fieldSecret = "secret"
