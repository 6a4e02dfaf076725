package send

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
)

// reading is whether a call reads only, so that it may be made again.
type reading bool

// readingOf tells by the routes of a call whether it reads only.
func readingOf(call string) reading {
	c := contract.Calls()[call]
	if c == nil {
		return false // of another protocol: health, reflection, KEDA
	}
	return reading(slices.ContainsFunc(c.GetRest(), func(r *pawlv1.Route) bool { method, _ := contract.MethodAndPath(r); return method == "GET" }))
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

// unary returns a handler that keeps memory for its answer. An answer that finds no memory at once is dropped, and read again when there is
// some: or any number of calls would wait with theirs.
func (r reading) unary(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		a := of(ctx)
		if a.memory == nil {
			return handle(srv, ctx, dec, i)
		}
		before, pool := a.size(), a.memory.others
		if r {
			pool = a.memory.reads
		}
		var asked proto.Message
		answer, err := handle(srv, ctx, func(into any) error {
			asked, _ = into.(proto.Message)
			return dec(into)
		}, i)
		m, ok := answer.(proto.Message)
		if err != nil || !ok {
			return answer, err
		}
		size := int64(proto.Size(m))
		if size <= contract.SmallMessage {
			a.shrink(before)
			return answer, nil
		}
		ns, caller, copies := callerOf(ctx)
		if a.size() > before { // by Take, for an estimate: that must do, since what the call has changed can't wait for more
			a.shrink(before + size*copies)
			return answer, nil
		}
		switch {
		case a.try(pool, ns, caller, size*copies):
			return answer, nil
		case !bool(r):
			return answer, a.reserve(ctx, pool, ns, caller, size*copies)
		}
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
