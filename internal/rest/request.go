package rest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// Headers that set fields of a request.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerRequestID      = "Pawl-Request-Id"
)

// repeats reports whether a query may repeat a parameter.
func (r *Route) repeats(name string) bool {
	return r.takes != nil && r.takes.Repeats(name)
}

// Headers are the fields that a header can set.
var Headers = map[string]string{"idempotency_key": headerIdempotencyKey, "request_id": headerRequestID}

var inHeaders = slices.Sorted(maps.Keys(Headers))

// request fills the request of the route's rpc: from the path, from the query (GET and DELETE) or the body (other methods), and
// from headers. The route itself reads the parameters named in others.
func (x *exchange) request(in proto.Message, others ...string) error {
	to := in.ProtoReflect()
	if err := x.fromPath(to); err != nil {
		return err
	}
	var err error
	if x.on.Method == "GET" || x.on.Method == "DELETE" {
		err = x.fromQuery(to, others)
	} else {
		err = x.fromBody(to)
	}
	if err != nil {
		return err
	}
	if name := x.on.Spec.GetSet(); name != "" {
		to.Set(to.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOfBool(true))
	}
	if err := x.fromHeaders(to); err != nil {
		return err
	}
	if d := x.on.extraTime(to); d > 0 {
		x.extendDeadline(d)
	}
	return nil
}

func (x *exchange) fromPath(to protoreflect.Message) error {
	for name, f := range x.on.inPath {
		if f == nil {
			continue // the route reads it
		}
		if err := f.FromPath(to, name, x.r.PathValue(name)); err != nil {
			return err
		}
	}
	return nil
}

// fromBody reads the body. It must not contain fields that are in the path.
func (x *exchange) fromBody(to protoreflect.Message) error {
	if _, err := x.query(); err != nil {
		return err
	}
	err := x.readFields(to, x.on.Reads)
	if err == nil {
		err = x.idInPath()
	}
	if err != nil {
		return err
	}
	return x.on.takes.Each(to, func(in protoreflect.Message, f *apijson.Field) error {
		if hint := f.Needed(); hint != "" && !in.Has(f.D) {
			return task.Invalid(f.Name(), "is required; %s", hint)
		}
		return nil
	})
}

// readInto reads a body that is a message.
func (x *exchange) readInto(p proto.Message) error {
	return x.readFields(p.ProtoReflect(), func(string) bool { return false })
}

// readFields reads the fields of a message from the body, except for those that but refuses.
func (x *exchange) readFields(to protoreflect.Message, but func(name string) bool) error {
	return x.fields(func(r *apijson.Reader, name string) error {
		if but(name) {
			return apijson.Unknown("", name)
		}
		return r.Field(to, name)
	})
}

// Reads reports whether the path determines a field of the request.
func (r *Route) Reads(name string) bool {
	if slices.Contains(r.fixed, name) {
		return true
	}
	for in, f := range r.inPath {
		if f != nil && f.InPath(in, name) {
			return true
		}
	}
	return false
}

// fromQuery reads the parameters of a request without a body.
func (x *exchange) fromQuery(to protoreflect.Message, others []string) error {
	q, err := x.query(append(x.on.takes.Parameters(x.on.Reads), others...)...)
	if err == nil {
		err = x.on.takes.FromQuery(to, q)
	}
	if err == nil {
		err = x.idInPath()
	}
	return err
}

// ignored refuses what the call would ignore: whoever sends it relies on its effect.
func (x *exchange) ignored() error {
	if x.on.RPC == "" {
		return nil
	}
	if (x.on.Method == "GET" || x.on.Method == "DELETE") && x.r.ContentLength != 0 {
		err := x.fields(func(_ *apijson.Reader, name string) error {
			return task.Invalid(task.Cut(name, 64), "the body of a %s request has no fields: its parameters are in the query", x.on.Method)
		})
		if err != nil {
			return err
		}
	}
	for _, header := range []string{"If-Match", "If-Unmodified-Since"} {
		if len(x.r.Header.Values(header)) > 0 {
			return task.Invalid(header, "no call takes this header: where a condition is possible, it is the field if_etag")
		}
	}
	for _, name := range inHeaders {
		if header := Headers[name]; x.on.Method != "GET" && len(x.r.Header.Values(header)) > 0 && !x.on.takes.Has(name) {
			return task.Invalid(header, "this call has no %s for all that it does", name)
		}
	}
	return nil
}

// fromHeaders sets fields from headers. It refuses a header that contradicts the body.
func (x *exchange) fromHeaders(to protoreflect.Message) error {
	return x.on.takes.Each(to, func(in protoreflect.Message, f *apijson.Field) error {
		header := Headers[f.Name()]
		values := x.r.Header.Values(header)
		if header == "" || len(values) == 0 {
			return nil
		}
		switch inBody := in.Get(f.D).String(); {
		case len(values) > 1:
			return task.Invalid(f.Name(), "the header %s is given %d times", header, len(values))
		case values[0] == "":
			return task.Invalid(f.Name(), "the header %s is empty: leave it out for none", header)
		case inBody != "" && inBody != values[0] && !(header == headerRequestID && strings.EqualFold(inBody, values[0])):
			return task.Invalid(f.Name(), "%q differs from the header %s", task.Cut(inBody, 64), header)
		}
		in.Set(f.D, protoreflect.ValueOfString(values[0]))
		return nil
	})
}

// foundByID names what an id in a path stands for: a malformed id there means that it is not found.
var foundByID = map[string]string{"group_id": "group", "operation_id": "operation"}

func (x *exchange) idInPath() error {
	f := x.on.inPath["id"]
	if f == nil || foundByID[f.Name()] == "" {
		return nil
	}
	if _, err := task.ParseID(x.r.PathValue("id")); err != nil {
		return task.NotFound(foundByID[f.Name()], x.r.PathValue("id"))
	}
	return nil
}

// extraTime returns how much more time than usual the answer to a request may take.
func (r *Route) extraTime(to protoreflect.Message) time.Duration {
	if r.Spec.GetSlow() {
		return slowTime
	}
	if f := r.takes.Field("wait"); f != nil && to.Has(f.D) {
		wait := to.Get(f.D).Message().Interface().(*durationpb.Duration)
		return min(wait.AsDuration(), contract.MaxWait) // the call refuses a longer one
	}
	return 0
}

// slowTime is how long a call on many tasks may take.
const slowTime = 10 * time.Minute
