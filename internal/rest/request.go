package rest

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

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
	return r.takes != nil && r.takes.repeats(name)
}

func (m *message) repeats(name string) bool {
	return slices.ContainsFunc(m.fields, func(f *field) bool {
		return f.inline && f.inner.repeats(name) || f.name == name && f.d.IsList()
	})
}

// headers are the fields that a header can set.
var headers = map[string]string{"idempotency_key": headerIdempotencyKey, "request_id": headerRequestID}

var inHeaders = slices.Sorted(maps.Keys(headers))

// request fills the request of the route's rpc: from the path, from the query (GET and DELETE) or the body (other methods), and
// from headers. The route itself reads the parameters named in others.
func (x *exchange) request(in proto.Message, others ...string) error {
	m, to := x.on.takes, in.ProtoReflect()
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
	if name := x.on.spec.GetSet(); name != "" {
		to.Set(named(to.Descriptor().Fields(), name), protoreflect.ValueOfBool(true))
	}
	if err := x.fromHeaders(m, to); err != nil {
		return err
	}
	if d := x.on.extraTime(to); d > 0 {
		x.extendDeadline(d)
	}
	return nil
}

func (x *exchange) fromPath(to protoreflect.Message) error {
	for name, f := range x.on.inPath {
		text := x.r.PathValue(name)
		switch {
		case f == nil: // the route reads it
		case f.inline:
			in := to.Mutable(f.d).Message()
			in.Set(f.inner.byName[name].d, protoreflect.ValueOfString(text))
		case f.kind == unsigned:
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return task.Invalid(name, "%q is not the number of a %s", task.Cut(text, 64), name)
			}
			to.Set(f.d, protoreflect.ValueOfUint32(uint32(n)))
		default:
			to.Set(f.d, protoreflect.ValueOfString(text))
		}
	}
	return nil
}

// fromBody reads the body. It must not contain fields that are in the path.
func (x *exchange) fromBody(to protoreflect.Message) error {
	if _, err := x.query(); err != nil {
		return err
	}
	m := x.on.takes
	err := x.readFields(to, x.on.reads)
	if err == nil {
		err = x.idInPath()
	}
	for _, f := range m.fields {
		if err == nil && f.needed != "" && !to.Has(f.d) {
			err = task.Invalid(f.name, "is required; %s", f.needed)
		}
	}
	return err
}

// readInto reads a body that is a message.
func (x *exchange) readInto(p proto.Message) error {
	return x.readFields(p.ProtoReflect(), func(string) bool { return false })
}

// readFields reads the fields of a message from the body, except for those that but refuses.
func (x *exchange) readFields(to protoreflect.Message, but func(name string) bool) error {
	m := messageOf(to.Descriptor())
	return x.fields(func(r *jsonReader, name string) error {
		if but(name) {
			return unknown("", name)
		}
		return r.field(m, to, "", name)
	})
}

// reads reports whether the path determines a field of the request.
func (r *Route) reads(name string) bool {
	if slices.Contains(r.fixed, name) {
		return true
	}
	for in, f := range r.inPath {
		if f != nil && (f.inline && in == name || !f.inline && f.name == name) {
			return true
		}
	}
	return false
}

// fromQuery reads the parameters of a request without a body.
func (x *exchange) fromQuery(to protoreflect.Message, others []string) error {
	q, err := x.query(append(x.on.takes.parameters(x.on), others...)...)
	if err == nil {
		err = x.on.takes.fromQuery(to, q)
	}
	if err == nil {
		err = x.idInPath()
	}
	return err
}

// parameters returns the names that a query may have.
func (m *message) parameters(on *Route) (names []string) {
	for _, f := range m.fields {
		switch {
		case f.inline:
			names = append(names, f.inner.parameters(on)...)
		case !f.hidden && !on.reads(f.name):
			names = append(names, f.name)
		}
	}
	return names
}

func (m *message) fromQuery(to protoreflect.Message, q url.Values) error {
	for _, f := range m.fields {
		var err error
		switch {
		case f.inline:
			err = f.inner.fromQuery(to.Mutable(f.d).Message(), q)
		case !f.hidden && q.Has(f.name):
			err = f.fromParameter(to, q[f.name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fromParameter reads a parameter. One that is a list may be repeated, and may have several items separated by commas.
func (f *field) fromParameter(to protoreflect.Message, values []string) error {
	if f.colon {
		for _, s := range values {
			if err := f.addPair(to.Mutable(f.d).List(), f.name, s); err != nil {
				return err
			}
		}
		return nil
	}
	if f.d.IsList() {
		list := to.Mutable(f.d).List()
		for s := range strings.SplitSeq(strings.Join(values, ","), ",") {
			v, err := f.fromText(f.name, s)
			if err == nil {
				err = f.notEmpty(s == "", f.name)
			}
			if err != nil {
				return err
			}
			list.Append(v)
		}
		return nil
	}
	v, err := f.fromWord(values[0])
	if err == nil {
		err = f.notEmpty(f.isText() && values[0] == "", f.name)
	}
	if err == nil && v.IsValid() {
		to.Set(f.d, v)
	}
	return err
}

func (f *field) fromWord(s string) (v protoreflect.Value, err error) {
	switch f.kind {
	case booleans:
		on, err := flagText(f.name, s)
		return protoreflect.ValueOfBool(on), err
	case integers, unsigned:
		least, most := f.bounds()
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < least || n > most {
			return v, task.Invalid(f.name, "%q is not between %d and %d", task.Cut(s, 64), least, most)
		}
		return f.number(n), nil
	}
	return f.fromText(f.name, s)
}

// flagText parses a boolean parameter.
func flagText(name, s string) (bool, error) {
	switch s {
	case "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, task.Invalid(name, "%q is neither true nor false", task.Cut(s, 64))
}

// ignored refuses what the call would ignore: whoever sends it relies on its effect.
func (x *exchange) ignored() error {
	if x.on.RPC == "" {
		return nil
	}
	if (x.on.Method == "GET" || x.on.Method == "DELETE") && x.r.ContentLength != 0 {
		err := x.fields(func(_ *jsonReader, name string) error {
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
		if header := headers[name]; x.on.Method != "GET" && len(x.r.Header.Values(header)) > 0 && !x.on.takes.has(name) {
			return task.Invalid(header, "this call has no %s for all that it does", name)
		}
	}
	return nil
}

// fromHeaders sets fields from headers. It refuses a header that contradicts the body.
func (x *exchange) fromHeaders(m *message, to protoreflect.Message) error {
	for _, f := range m.fields {
		if f.inline && !f.d.IsList() {
			if err := x.fromHeaders(f.inner, to.Mutable(f.d).Message()); err != nil {
				return err
			}
			continue
		}
		header := headers[f.name]
		values := x.r.Header.Values(header)
		if header == "" || len(values) == 0 {
			continue
		}
		switch inBody := to.Get(f.d).String(); {
		case len(values) > 1:
			return task.Invalid(f.name, "the header %s is given %d times", header, len(values))
		case values[0] == "":
			return task.Invalid(f.name, "the header %s is empty: leave it out for none", header)
		case inBody != "" && inBody != values[0] && !(header == headerRequestID && strings.EqualFold(inBody, values[0])):
			return task.Invalid(f.name, "%q differs from the header %s", task.Cut(inBody, 64), header)
		}
		to.Set(f.d, protoreflect.ValueOfString(values[0]))
	}
	return nil
}

// foundByID names what an id in a path stands for: a malformed id there means that it is not found.
var foundByID = map[string]string{"group_id": "group", "operation_id": "operation"}

func (x *exchange) idInPath() error {
	f := x.on.inPath["id"]
	if f == nil || foundByID[f.name] == "" {
		return nil
	}
	if _, err := task.ParseID(x.r.PathValue("id")); err != nil {
		return task.NotFound(foundByID[f.name], x.r.PathValue("id"))
	}
	return nil
}

// extraTime returns how much more time than usual the answer to a request may take.
func (r *Route) extraTime(to protoreflect.Message) time.Duration {
	if r.spec.GetSlow() {
		return slowTime
	}
	if f := r.takes.byName["wait"]; f != nil && to.Has(f.d) {
		return min(spanOf(to.Get(f.d).Message()), contract.MaxWait) // the call refuses a longer one
	}
	return 0
}

// slowTime is how long a call on many tasks may take.
const slowTime = 10 * time.Minute

func spanOf(m protoreflect.Message) time.Duration {
	return m.Interface().(*durationpb.Duration).AsDuration()
}
