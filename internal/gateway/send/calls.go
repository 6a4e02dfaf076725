package send

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// reading is whether a call reads only, so that it may be made again.
type reading bool

// readingOf tells by the routes of a call whether it reads only.
func readingOf(call string) reading {
	c := contract.Calls()[call]
	if c == nil {
		return false // of another protocol: health, reflection, KEDA
	}
	return reading(slices.ContainsFunc(c.GetRest(), func(r *pawlv1.Route) bool {
		method, _ := contract.MethodAndPath(r)
		return method == "GET"
	}))
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

// unary returns a handler that keeps memory for its answer. A call that reads takes it while it reads, and its pages
// end early when there is none. An answer for which there is too little is dropped, and read again once there is
// enough: otherwise any number of calls would wait with their answers in memory.
func (r reading) unary(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		a := of(ctx)
		if a.memory == nil {
			return handle(srv, ctx, dec, i)
		}
		var asked proto.Message
		first := func(into any) error {
			asked, _ = into.(proto.Message)
			return dec(into)
		}
		if !r {
			return a.changed(ctx, func() (any, error) { return handle(srv, ctx, first, i) })
		}
		before := a.size()
		answer, lacks, err := a.read(ctx, 0, func(ctx context.Context) (any, error) { return handle(srv, ctx, first, i) })
		if lacks == 0 {
			return answer, err
		}
		a.shrink(before)
		ns, caller, _ := callerOf(ctx)
		if err := a.reserve(ctx, a.memory.reads, ns, caller, lacks); err != nil {
			return nil, err
		}
		again := func(into any) error {
			proto.Merge(into.(proto.Message), asked)
			return nil
		}
		answer, _, err = a.read(ctx, a.size()-before, func(ctx context.Context) (any, error) { return handle(srv, ctx, again, i) })
		return answer, err
	}
}

// read makes a call that only reads. It may use the bytes that are held for it, and more if they are free. If they are
// not, there is no answer, and lacks is how many bytes it takes.
func (a *Answer) read(ctx context.Context, held int64, call func(context.Context) (any, error)) (answer any, lacks int64, err error) {
	before := a.size() - held
	b := &building{spare: held}
	func() {
		defer func() { a.held = append(a.held, b.end()...) }() // also if the call panics: its caller recovers
		answer, err = call(task.WithRoom(ctx, func(n int) bool { return b.take(ctx, a.memory.reads, int64(n)) }))
	}()
	m, ok := answer.(proto.Message)
	if err != nil || !ok {
		a.shrink(before)
		return answer, 0, err
	}
	ns, caller, copies := callerOf(ctx)
	need := int64(proto.Size(m)) * copies
	if need <= contract.SmallMessage*copies {
		need = 0
	}
	if more := min(need, a.memory.reads.PerCaller()) - (a.size() - before); held == 0 && more > 0 &&
		!a.try(a.memory.reads, ns, caller, more) {
		return nil, need, nil
	}
	a.shrink(before + need)
	return answer, 0, nil
}

// changed makes a call that changes something: its answer waits for memory.
func (a *Answer) changed(ctx context.Context, call func() (any, error)) (any, error) {
	before := a.size()
	answer, err := call()
	m, ok := answer.(proto.Message)
	if err != nil || !ok {
		return answer, err
	}
	size := int64(proto.Size(m))
	ns, caller, copies := callerOf(ctx)
	switch {
	case size <= contract.SmallMessage:
		a.shrink(before)
	case a.size() > before: // by Take, for an estimate: that must do, since what the call has changed can't wait for more
		a.shrink(before + size*copies)
	case !a.try(a.memory.others, ns, caller, size*copies):
		return answer, a.reserve(ctx, a.memory.others, ns, caller, size*copies)
	}
	return answer, nil
}

// building is the memory of an answer while it is read, also by goroutines that the call no longer waits for.
type building struct {
	mu    sync.Mutex
	spare int64 // reserved before, and not used yet
	taken Answer
	ended bool
}

// take takes memory for n bytes that were read, if it is free.
func (b *building) take(ctx context.Context, pool *admission.MemoryPool, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ns, caller, copies := callerOf(ctx)
	if n *= copies; b.ended || n <= b.spare {
		b.spare -= n
		return !b.ended
	}
	return b.taken.try(pool, ns, caller, n)
}

// end returns what was taken. No more can be.
func (b *building) end() []*admission.Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.taken.held
}
