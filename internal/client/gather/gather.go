// Package gather batches enqueues that run at the same time and go to the same place. It knows neither these places nor
// what a task contains.
package gather

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// MaxTasks is the broker's limit for one batch.
	MaxTasks = 1000
	// MaxBytes keeps a batch well below rpc.MaxMessage, and one round of the broker short.
	MaxBytes = 4 << 20
	// eagerRequests may be in flight with any number of tasks each; further ones, up to maxRequests, only with fullBatch
	// tasks. Each request is a message and a wake-up on both sides, so many small ones would cancel out what gathering
	// saves; with too few in flight, requests would wait for the broker's disk one after the other
	// (BenchmarkEnqueueParallel).
	eagerRequests = 2
	fullBatch     = 16
	maxRequests   = 8
)

// maxIdleLanes bounds the lanes that are kept while they are idle.
const maxIdleLanes = 64

// New returns a Gatherer. laneOf returns the lane of a queue: tasks of one lane are batched together.
func New(caller *rpc.Caller, producer pawlv1.ProducerServiceClient, laneOf func(queue string) Lane) *Gatherer {
	return &Gatherer{caller: caller, producer: producer, eager: eagerRequests, laneOf: laneOf, lanes: map[Lane]*lane{}}
}

// Lane names what tasks have in common that are batched together: where they go.
type Lane struct {
	Shard uint32
	Queue string // of a queue whose shard is not known
}

// NewCall returns a call for one task of a whole batch, for Send.
func NewCall(spec *pawlv1.TaskSpec) *Call {
	return &Call{spec: spec}
}

// Outcome returns the outcome of a call that was sent.
func (e *Call) Outcome() (*pawlv1.Enqueued, error) { return e.answer, e.err }

// Gatherer batches enqueues that run at the same time, as a group commit does: while few requests are in flight, a call
// is sent immediately, by its own goroutine; else it waits, and the next request takes all that are waiting. So a lone
// caller pays nothing, no timer adds latency, and the batches grow with the load.
//
// Each lane has requests of its own, so that a shard that does not answer holds up no tasks of other shards.
//
// The simple way, a request for each call, costs a message each way and the wake-ups of both sides for each task. A
// timer that collects for a millisecond costs every lone caller that millisecond.
type Gatherer struct {
	caller   *rpc.Caller
	producer pawlv1.ProducerServiceClient
	eager    int // requests in flight in a lane regardless of their size
	laneOf   func(queue string) Lane
	calls    sync.Pool // of *Call that nothing else refers to

	mu      sync.Mutex // guards the fields below and all lanes, and batch, lane and left of each call
	lanes   map[Lane]*lane
	closed  bool
	senders sync.WaitGroup
}

// lane is the tasks that go to one place.
type lane struct {
	g        *Gatherer
	key      Lane
	waiting  []*Call
	inFlight int // requests
}

// Call is the enqueue of one task.
type Call struct {
	spec   *pawlv1.TaskSpec
	size   int           // of a call that may wait
	done   chan struct{} // gets one value when answer or err is set; nil if the sender is the caller
	answer *pawlv1.Enqueued
	err    error

	lane  *lane  // in which it waits, or has waited
	batch *batch // that includes it
	left  bool   // its caller no longer waits
}

// batch is the calls that a sender took together. It is cancelled when none of their callers waits any more.
type batch struct {
	calls  []*Call
	wanted int // calls whose callers still wait; guarded by Gatherer.mu
	ctx    context.Context
	cancel context.CancelFunc
}

// Enqueue sends one task, alone or in a batch, and returns its result.
func (g *Gatherer) Enqueue(ctx context.Context, spec *pawlv1.TaskSpec) (*pawlv1.Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := g.newCall(spec)
	if err != nil {
		return nil, err
	}
	key := g.laneOf(convert.QueueName(spec))
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, pawltype.ErrClosed
	}
	l := g.laneLocked(key)
	if l.inFlight < g.eager && len(l.waiting) == 0 {
		l.inFlight++
		g.mu.Unlock()
		return g.alone(ctx, l, e)
	}
	e.lane = l
	l.waiting = append(l.waiting, e)
	l.beginLocked()
	g.mu.Unlock()

	select {
	case <-e.done:
		return g.recycle(e)
	case <-ctx.Done():
		g.leave(e)
		return nil, ctx.Err()
	}
}

func (g *Gatherer) laneLocked(key Lane) *lane {
	l := g.lanes[key]
	if l == nil {
		l = &lane{g: g, key: key}
		g.lanes[key] = l
	}
	return l
}

func (g *Gatherer) newCall(spec *pawlv1.TaskSpec) (*Call, error) {
	size := proto.Size(spec)
	if size > rpc.MaxMessage-1024 {
		return nil, &pawltype.Error{Code: pawltype.ErrPayloadTooLarge, Field: "payload",
			Message: fmt.Sprintf("task of %d bytes exceeds the message limit of %d", size, rpc.MaxMessage)}
	}
	e, ok := g.calls.Get().(*Call)
	if !ok {
		e = &Call{done: make(chan struct{}, 1)}
	}
	e.spec, e.size = spec, size
	return e, nil
}

// alone sends a call on the goroutine of its caller, with the caller's context.
func (g *Gatherer) alone(ctx context.Context, l *lane, e *Call) (*pawlv1.Enqueued, error) {
	start := time.Now()
	again, err := g.try(ctx, []*Call{e})
	l.free()
	g.repeat(ctx, start, again, err)
	<-e.done
	return g.recycle(e)
}

// recycle returns the result of a call that nothing else refers to any more, and puts the call back into the pool.
func (g *Gatherer) recycle(e *Call) (*pawlv1.Enqueued, error) {
	answer, err := e.answer, e.err
	*e = Call{done: e.done}
	g.calls.Put(e)
	return answer, err
}

// mayBeginLocked reports whether a request for the waiting calls may be sent in addition to those in flight. Whenever a
// call waits, a request is in flight, and its end checks again.
func (l *lane) mayBeginLocked() bool {
	n := len(l.waiting)
	return n > 0 && l.inFlight < l.g.eager || n >= fullBatch && l.inFlight < maxRequests
}

// beginLocked starts a request for the waiting calls, if one may be sent.
func (l *lane) beginLocked() {
	if l.mayBeginLocked() {
		l.inFlight++
		l.g.senders.Go(l.sendWaiting)
	}
}

// free ends a request, and starts one for the waiting calls.
func (l *lane) free() {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	l.inFlight--
	l.beginLocked()
	l.forgetLocked()
}

// forgetLocked drops an idle lane if there are many.
func (l *lane) forgetLocked() {
	if l.inFlight == 0 && len(l.g.lanes) > maxIdleLanes {
		delete(l.g.lanes, l.key)
	}
}

// sendWaiting sends one request after the other, until too few calls wait. It has been counted in inFlight.
func (l *lane) sendWaiting() {
	g := l.g
	for {
		b := l.take()
		if b == nil {
			return
		}
		start := time.Now()
		again, err := g.try(b.ctx, b.calls)
		if len(again) == 0 {
			b.cancel()
			runtime.Gosched() // the callers just answered may have more: let it gather, or it is sent one by one
			continue
		}
		// Retries don't count as in flight: the retry budget paces them, and tasks of other shards need not wait for this one.
		g.senders.Go(func() {
			defer b.cancel()
			g.repeat(b.ctx, start, again, err)
		})
	}
}

// take makes a batch of the waiting calls, within the limits. If there are too few, it ends the sender and returns nil.
func (l *lane) take() *batch {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	l.inFlight--
	if !l.mayBeginLocked() {
		l.forgetLocked()
		return nil
	}
	b := &batch{}
	size, n := 0, 0
	for ; n < min(len(l.waiting), MaxTasks); n++ {
		if size += l.waiting[n].size; n > 0 && size > MaxBytes {
			break
		}
		l.waiting[n].batch = b
	}
	b.calls = slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.inFlight++
	b.wanted = len(b.calls)
	b.ctx, b.cancel = context.WithCancel(l.g.caller.Context())
	return b
}

// leave removes a call whose context has ended. A batch with no callers left is cancelled.
func (g *Gatherer) leave(e *Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.left = true
	if e.batch == nil {
		if i := slices.Index(e.lane.waiting, e); i >= 0 {
			e.lane.waiting = slices.Delete(e.lane.waiting, i, i+1)
		}
		return
	}
	if e.batch.wanted--; e.batch.wanted == 0 {
		e.batch.cancel()
	}
}

// Send sends a whole batch of one caller, and returns when each call has its result.
func (g *Gatherer) Send(ctx context.Context, calls []*Call) {
	start := time.Now()
	again, err := g.try(ctx, calls)
	g.repeat(ctx, start, again, err)
}

// repeat retries calls, with the same request ids, until each has a result or the time is up.
func (g *Gatherer) repeat(ctx context.Context, start time.Time, calls []*Call, err error) {
	for try := 0; len(calls) > 0; try++ {
		if time.Since(start) >= g.caller.RetryFor() {
			finishAll(calls, err)
			return
		}
		if stop := g.caller.Pause(ctx, try, err); stop != nil {
			finishAll(calls, stop)
			return
		}
		calls, err = g.try(ctx, g.wanted(calls))
	}
}

// wanted leaves out the calls whose callers no longer wait.
func (g *Gatherer) wanted(calls []*Call) []*Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Call, 0, len(calls))
	for _, e := range calls {
		if !e.left {
			out = append(out, e)
		}
	}
	return out
}

// try sends calls once and finishes those that got a result. It returns the others, which can be retried, and why.
func (g *Gatherer) try(ctx context.Context, calls []*Call) (again []*Call, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	req := &pawlv1.EnqueueBatchRequest{Tasks: make([]*pawlv1.TaskSpec, len(calls))}
	for i, e := range calls {
		req.Tasks[i] = e.spec
	}
	resp, err := g.producer.EnqueueBatch(ctx, req)
	if err != nil {
		return g.refused(ctx, calls, err)
	}
	if len(resp.GetResults()) != len(calls) {
		finishAll(calls, &pawltype.Error{Code: pawltype.ErrInternal, Message: fmt.Sprintf("batch of %d tasks got %d answers", len(calls),
			len(resp.GetResults()))})
		return nil, nil
	}
	g.caller.Succeeded()
	for i, r := range resp.GetResults() {
		switch {
		case r.GetError() == nil:
			calls[i].finish(r.GetTask(), nil)
		case pawltype.ErrorCode(r.GetError().GetCode()) == pawltype.ErrUnavailable:
			again, err = append(again, calls[i]), convert.Error(r.GetError())
		default:
			calls[i].finish(nil, convert.Error(r.GetError()))
		}
	}
	return again, err
}

// refused decides what to do with calls that failed as a whole: retry or finish them.
func (g *Gatherer) refused(ctx context.Context, calls []*Call, err error) ([]*Call, error) {
	err = g.caller.Failed(convert.CallError(ctx, err))
	if errors.Is(err, pawltype.ErrUnavailable) {
		return calls, err
	}
	finishAll(calls, err)
	return nil, nil
}

func finishAll(calls []*Call, err error) {
	for _, e := range calls {
		e.finish(nil, err)
	}
}

func (e *Call) finish(answer *pawlv1.Enqueued, err error) {
	e.answer, e.err = answer, err
	if e.done != nil {
		e.done <- struct{}{}
	}
}

// Close rejects new calls, ends those that wait, and returns when the senders have ended. Caller.End must have been called.
func (g *Gatherer) Close() {
	g.mu.Lock()
	g.closed = true
	var waiting []*Call
	for _, l := range g.lanes {
		waiting = append(waiting, l.waiting...)
		l.waiting = nil
	}
	g.mu.Unlock()
	finishAll(waiting, pawltype.ErrClosed)
	g.senders.Wait()
}
