package send

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/contract"
)

const (
	// itemBytes is what an item of a list without payloads is expected to take at most, contentBytes one with them, pageBytes a page.
	itemBytes    = 4 << 10
	contentBytes = 2 << 20
	pageBytes    = contract.MaxMessage
)

// reading is what is known of a call's answers.
type reading struct {
	repeats bool // the call reads only: it may be made again
	lists   bool // it returns lists
	content bool // of what users store: payloads, results
}

// readingOf describes a call by the descriptions of its routes and its answer.
func readingOf(call string) (r reading) {
	c := contract.Calls()[call]
	if c == nil {
		return r // of another protocol: health, reflection, KEDA
	}
	for _, route := range c.GetRest() {
		if method, _ := contract.MethodAndPath(route); method == "GET" {
			r.repeats = true
		}
	}
	r.lists, r.content = holds(c.Method.Output(), map[protoreflect.FullName]bool{})
	return r
}

// holds reports whether a message, or one in it, has a list of messages, and content of users.
func holds(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) (lists, content bool) {
	if seen[m.FullName()] {
		return false, false
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		content = content || f.Kind() == protoreflect.BytesKind
		if inner := f.Message(); inner != nil {
			innerLists, innerContent := holds(inner, seen)
			lists, content = lists || innerLists || f.IsList(), content || innerContent
		}
	}
	return lists, content
}

// expects returns how many bytes the answer to a request is expected to take at most. A call that waits may wait long, so nothing is
// reserved for it until it has its answer.
func (r reading) expects(request protoreflect.Message) int64 {
	fields := request.Descriptor().Fields()
	if !r.repeats || !r.lists || fields.ByName("wait") != nil {
		return 0
	}
	items := int64(contract.DefaultPage)
	if limit := fields.ByName("limit"); limit != nil && request.Get(limit).Int() > 0 {
		items = min(request.Get(limit).Int(), contract.MaxPage)
	}
	if asked := fields.ByName("with_payload"); !r.content || asked != nil && !request.Get(asked).Bool() {
		return items * itemBytes
	}
	return min(items*contentBytes, pageBytes)
}

// Registrar returns a registrar that registers services with another one so that their answers take bounded memory.
func (m *Memory) Registrar(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return registrar{s} }

type registrar struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, service any) {
	with := *d
	with.Methods = slices.Clone(d.Methods)
	for i := range with.Methods {
		m := &with.Methods[i]
		m.Handler = readingOf(strings.TrimPrefix(d.ServiceName, "pawl.v1.") + "/" + m.MethodName).unary(m.Handler)
	}
	r.ServiceRegistrar.RegisterService(&with, service)
}

// unary returns a handler that reserves memory before it reads, and keeps what its answer takes. An answer that finds no memory at once is
// dropped, and read again when there is some: or any number of calls would wait with theirs.
func (r reading) unary(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		a := of(ctx)
		if a.memory == nil {
			return handle(srv, ctx, dec, i)
		}
		before, pool := a.size(), a.memory.others
		if r.repeats {
			pool = a.memory.reads
		}
		var asked proto.Message
		answer, err := handle(srv, ctx, func(into any) error {
			if err := dec(into); err != nil {
				return err
			}
			asked, _ = into.(proto.Message)
			if n := r.expects(asked.ProtoReflect()); n > 0 {
				ns, caller, _ := callerOf(ctx)
				return a.reserve(ctx, pool, ns, caller, n)
			}
			return nil
		}, i)
		m, ok := answer.(proto.Message)
		if err != nil || !ok {
			return answer, err
		}
		ns, caller, copies := callerOf(ctx)
		size := int64(proto.Size(m))
		if size <= contract.SmallMessage {
			a.shrink(before)
			return answer, nil
		}
		more := before + size*copies - a.size()
		switch {
		case more <= 0:
			a.shrink(before + size*copies)
			return answer, nil
		case a.try(pool, ns, caller, more):
			return answer, nil
		case !r.repeats:
			return answer, a.reserve(ctx, pool, ns, caller, more)
		}
		a.shrink(before)
		answer, m = nil, nil
		if err := a.reserve(ctx, pool, ns, caller, size*copies); err != nil {
			return nil, err
		}
		return handle(srv, ctx, func(into any) error {
			proto.Merge(into.(proto.Message), asked)
			return nil
		}, i)
	}
}
