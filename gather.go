package pawl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxBatchTasks is the broker's limit of one batch.
	maxBatchTasks = 1000
	// maxBatchBytes keeps a batch well below maxMessage, and one round of the broker short.
	maxBatchBytes = 4 << 20
	// eagerRequests may be in flight with however few tasks each; further ones, up to maxRequests, only with fullBatch tasks. Each
	// request is a message and a wake-up on both sides, so many small ones would eat up what gathering saves; too few in flight would wait for
	// the broker's disk one after the other (BenchmarkEnqueueParallel).
	eagerRequests = 2
	fullBatch     = 16
	maxRequests   = 8
)

// gatherer makes batches of enqueues that run at the same time, as a group commit does: while few requests are in flight a call
// goes out at once, by its own goroutine; else it waits, and the next request takes all that wait. So a lone caller pays
// nothing, no timer adds latency, and the batches grow with the load.
//
// The simple way, a request for each call, costs a message each way and the wake-ups of both sides for each task. A timer that collects for a
// millisecond costs every lone caller that millisecond.
type gatherer struct {
	client *Client
	eager  int       // requests in flight whatever they carry
	calls  sync.Pool // of *enqueueCall that nobody else knows

	mu       sync.Mutex // guards what follows, and batch and left of each call
	waiting  []*enqueueCall
	inFlight int
	closed   bool
	senders  sync.WaitGroup
}

// enqueueCall is one task on its way.
type enqueueCall struct {
	spec *pawlv1.TaskSpec
	size int
	done chan struct{} // gets one value when ref or err is set; nil if the sender is the caller
	ref  *Ref
	err  error

	batch *enqueueBatch // that took it
	left  bool          // its caller waits no more
}

// enqueueBatch is what a sender took at once. It lives as long as one of its callers waits.
type enqueueBatch struct {
	calls  []*enqueueCall
	wanted int // calls whose caller waits; guarded by gatherer.mu
	ctx    context.Context
	cancel context.CancelFunc
}

// enqueue sends one task, alone or in a batch, and returns its answer.
func (g *gatherer) enqueue(ctx context.Context, spec *pawlv1.TaskSpec) (*Ref, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := g.newCall(spec)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, ErrClosed
	}
	if g.inFlight < g.eager && len(g.waiting) == 0 {
		g.inFlight++
		g.mu.Unlock()
		return g.alone(ctx, e)
	}
	g.waiting = append(g.waiting, e)
	if g.mayBeginLocked() {
		g.inFlight++
		g.senders.Go(g.sendWaiting)
	}
	g.mu.Unlock()

	select {
	case <-e.done:
		return g.recycle(e)
	case <-ctx.Done():
		g.leave(e)
		return nil, ctx.Err()
	}
}

func (g *gatherer) newCall(spec *pawlv1.TaskSpec) (*enqueueCall, error) {
	size := proto.Size(spec)
	if size > maxMessage-1024 {
		return nil, &Error{Code: codePayloadTooLarge, Field: "payload", Message: fmt.Sprintf("task of %d bytes is beyond a message of %d", size, maxMessage)}
	}
	e, ok := g.calls.Get().(*enqueueCall)
	if !ok {
		e = &enqueueCall{done: make(chan struct{}, 1)}
	}
	e.spec, e.size = spec, size
	return e, nil
}

// alone sends a call by the goroutine of its caller, with the caller's context.
func (g *gatherer) alone(ctx context.Context, e *enqueueCall) (*Ref, error) {
	start := time.Now()
	again, err := g.try(ctx, []*enqueueCall{e})
	g.free()
	if len(again) > 0 {
		g.repeat(ctx, start, again, err)
	}
	<-e.done
	return g.recycle(e)
}

// recycle takes the answer out of a call that nobody else knows any more.
func (g *gatherer) recycle(e *enqueueCall) (*Ref, error) {
	ref, err := e.ref, e.err
	*e = enqueueCall{done: e.done}
	g.calls.Put(e)
	return ref, err
}

// mayBeginLocked reports whether a request for the calls that wait may go out beside those in flight. Whenever something waits,
// something is in flight, and its end asks again.
func (g *gatherer) mayBeginLocked() bool {
	n := len(g.waiting)
	return !g.closed && (n > 0 && g.inFlight < g.eager || n >= fullBatch && g.inFlight < maxRequests)
}

// free ends a request, and begins one for the calls that wait.
func (g *gatherer) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if g.mayBeginLocked() {
		g.inFlight++
		g.senders.Go(g.sendWaiting)
	}
}

// sendWaiting makes one request after the other, until too little waits. It has been counted in inFlight.
func (g *gatherer) sendWaiting() {
	for {
		b := g.take()
		if b == nil {
			return
		}
		start := time.Now()
		again, err := g.try(b.ctx, b.calls)
		if len(again) == 0 {
			b.cancel()
			runtime.Gosched() // the callers just answered may have more: let it gather, or it goes out one by one
			continue
		}
		// Repeats don't count as in flight: the retry budget paces them, and tasks of other shards need not wait for this one.
		g.senders.Go(func() {
			defer b.cancel()
			g.repeat(b.ctx, start, again, err)
		})
	}
}

// take makes a batch of what waits, within the limits. If that is too little it ends the sender and returns nil.
func (g *gatherer) take() *enqueueBatch {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if !g.mayBeginLocked() {
		return nil
	}
	b := &enqueueBatch{}
	size, n := 0, 0
	for ; n < min(len(g.waiting), maxBatchTasks); n++ {
		if size += g.waiting[n].size; n > 0 && size > maxBatchBytes {
			break
		}
		g.waiting[n].batch = b
	}
	b.calls = slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.inFlight++
	b.wanted = len(b.calls)
	b.ctx, b.cancel = context.WithCancel(g.client.ctx)
	return b
}

// leave is for a caller whose context ended. A batch that nobody waits for any more is given up.
func (g *gatherer) leave(e *enqueueCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.left = true
	if e.batch == nil {
		if i := slices.Index(g.waiting, e); i >= 0 {
			g.waiting = slices.Delete(g.waiting, i, i+1)
		}
		return
	}
	if e.batch.wanted--; e.batch.wanted == 0 {
		e.batch.cancel()
	}
}

// send is for a caller who has a whole batch: it returns when each call has its answer.
func (g *gatherer) send(ctx context.Context, calls []*enqueueCall) {
	start := time.Now()
	if again, err := g.try(ctx, calls); len(again) > 0 {
		g.repeat(ctx, start, again, err)
	}
}

// repeat tries calls again, with the same request ids, until each is answered or there is no more time.
func (g *gatherer) repeat(ctx context.Context, start time.Time, calls []*enqueueCall, err error) {
	for try := 0; len(calls) > 0; try++ {
		if time.Since(start) >= g.client.retryFor {
			finishAll(calls, err)
			return
		}
		if stop := g.client.pause(ctx, try, err); stop != nil {
			finishAll(calls, stop)
			return
		}
		calls, err = g.try(ctx, g.wanted(calls))
	}
}

// wanted leaves out the calls whose callers wait no more.
func (g *gatherer) wanted(calls []*enqueueCall) []*enqueueCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*enqueueCall, 0, len(calls))
	for _, e := range calls {
		if !e.left {
			out = append(out, e)
		}
	}
	return out
}

// try sends calls once and finishes those that got an answer. It returns the others, which a repeat may help, and why.
func (g *gatherer) try(ctx context.Context, calls []*enqueueCall) (again []*enqueueCall, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	req := &pawlv1.EnqueueBatchRequest{Tasks: make([]*pawlv1.TaskSpec, len(calls))}
	for i, e := range calls {
		req.Tasks[i] = e.spec
	}
	resp, err := g.client.producer.EnqueueBatch(ctx, req)
	if err != nil {
		return g.refused(ctx, calls, err)
	}
	if len(resp.GetResults()) != len(calls) {
		finishAll(calls, &Error{Code: codeInternal, Message: fmt.Sprintf("batch of %d tasks got %d answers", len(calls), len(resp.GetResults()))})
		return nil, nil
	}
	g.client.budget.succeeded()
	for i, r := range resp.GetResults() {
		switch {
		case r.GetError() == nil:
			calls[i].finish(g.client.refOf(r.GetTask()), nil)
		case r.GetError().GetCode() == codeUnavailable:
			again, err = append(again, calls[i]), errorOf(r.GetError())
		default:
			calls[i].finish(nil, errorOf(r.GetError()))
		}
	}
	return again, err
}

// refused sorts out calls that failed as a whole.
func (g *gatherer) refused(ctx context.Context, calls []*enqueueCall, err error) ([]*enqueueCall, error) {
	err = g.client.failed(callError(ctx, err))
	if errors.Is(err, ErrUnavailable) {
		return calls, err
	}
	finishAll(calls, err)
	return nil, nil
}

func finishAll(calls []*enqueueCall, err error) {
	for _, e := range calls {
		e.finish(nil, err)
	}
}

func (e *enqueueCall) finish(ref *Ref, err error) {
	e.ref, e.err = ref, err
	if e.done != nil {
		e.done <- struct{}{}
	}
}

// close refuses new calls, ends those that wait, and returns when the senders have ended. Client.cancel comes before.
func (g *gatherer) close() {
	g.mu.Lock()
	g.closed = true
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	finishAll(waiting, ErrClosed)
	g.senders.Wait()
}

func (c *Client) refOf(p *pawlv1.Enqueued) *Ref {
	return &Ref{
		ID:        p.GetTaskId(),
		State:     stateOf(p.GetState()),
		CreatedAt: timeOf(p.GetCreatedAt()),
		Duplicate: p.GetDuplicate(),
		client:    c,
	}
}
