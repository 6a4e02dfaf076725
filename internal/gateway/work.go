package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/send"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxSlots bounds the slots that a worker may grant in total.
	maxSlots = 10_000
	// workWait is how long one claim of a stream waits. Then the shards of the queues are looked up again.
	workWait = time.Minute
	// pushPause is the shortest pause before a claim that was refused for now is repeated, pushPauseMax the longest.
	pushPause    = 100 * time.Millisecond
	pushPauseMax = 2 * time.Second
	// maxNotices is how many notifications of lost claims may wait to be sent. The worker learns of further ones when it settles or
	// extends.
	maxNotices = 1024
)

// work is one Work stream.
//
// Two goroutines serve it, to keep an idle worker cheap: receive reads frames, the handler's own claims tasks for the
// free slots. More run on demand: one for each shard that frames settle claims of, and one that notifies the worker of
// lost claims. Any failure ends the stream; the handler waits for all but receive, which ends with the stream.
type work struct {
	g      *workerService
	stream pawlv1.WorkerService_WorkServer
	keep   func() (give func()) // keeps the memory of the current frame
	ns     string
	claim  broker.ClaimCall
	watch  ClaimWatch
	quiet  quietState
	held   tasktrace.Holdings

	sending sync.Mutex // a stream allows one sender at a time

	mu    sync.Mutex
	slots int           // granted and unused
	lost  []broker.Lost // to be sent
	lanes map[uint32]*settleLane
	// The lanes have been told to stop, and new ones don't start.
	lanesEnd bool

	more     chan struct{} // capacity 1: slots were granted
	notifier onDemand
	pushing  context.Context
	stopPush context.CancelFunc
	ended    chan struct{} // closed at the first failure
	endOnce  sync.Once
	err      error // why it ended; read after ended is closed
}

// Work serves one worker for as long as its stream lasts.
func (g *workerService) Work(stream pawlv1.WorkerService_WorkServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	w := &work{g: g, stream: stream, ns: callinfo.Namespace(stream.Context()), more: make(chan struct{}, 1),
		ended: make(chan struct{})}
	from := callinfo.Of(stream.Context()).Receiver
	w.keep = func() func() { return from.Keep().Give }
	if w.claim, err = helloOf(w.ns, first.GetHello(), g.limits); err != nil {
		return err
	}
	w.claim.Stream = true
	if err := mayClaim(stream.Context(), w.claim.Queues); err != nil {
		return err
	}
	if err := checkInstance("hello.instance", first.GetHello().GetInstance()); err != nil {
		return err
	}
	if n := first.GetHello().GetSlots(); n < 0 || n > maxSlots {
		return task.Invalid("hello.slots", "%d is not between 0 and %d", n, maxSlots)
	}
	g.sendNode(stream)
	return w.serve(first)
}

// sendNode tells a worker which of several nodes its stream goes to: it may know a better one.
func (g *workerService) sendNode(stream pawlv1.WorkerService_WorkServer) {
	if g.nodes == nil {
		return
	}
	if m := g.nodes.Map(stream.Context()); m != nil && len(m.Members()) > 1 {
		_ = stream.SetHeader(metadata.Pairs(callinfo.HeaderNode, g.node)) // fails only if the stream has ended
	}
}

// helloOf decodes what a worker wants to claim.
func helloOf(ns string, h *pawlv1.WorkHello, l task.Limits) (broker.ClaimCall, error) {
	if h == nil {
		return broker.ClaimCall{}, task.Invalid("hello", "is required in the first frame")
	}
	for _, f := range []struct{ field, value string }{{"hello.host", h.GetHost()}, {"hello.version", h.GetVersion()}} {
		if err := task.CheckName(f.field, f.value, l); err != nil {
			return broker.ClaimCall{}, err
		}
	}
	return apiproto.ClaimOf(ns, &pawlv1.ClaimRequest{Queues: h.GetQueues(), Order: h.GetOrder(), Types: h.GetTypes(),
		MaxBytes: h.GetMaxBytes(), Lease: h.GetLease(), Worker: h.GetWorker()}, l)
}

func (w *work) serve(first *pawlv1.WorkRequest) error {
	ctx := w.stream.Context()
	w.pushing, w.stopPush = context.WithCancel(ctx)
	w.notifier.do = func() { w.failIf(w.notify) }
	w.watch = w.g.broker.WatchClaims(w.onLost)
	defer w.watch.Close()
	w.register(first.GetHello())
	defer func() { w.quiet.me.Leave(errors.Is(w.err, io.EOF)) }()

	go w.failIf(func() error { return w.receive(ctx, first) })
	w.failIf(w.push)
	w.failIf(w.stay)
	w.finishSettles()
	w.notifier.stop()
	if errors.Is(w.err, io.EOF) {
		return nil
	}
	return w.err
}

// failIf ends the stream with the error of fn, or with its panic.
func (w *work) failIf(fn func() error) {
	if err := parallel.Safely(fn); err != nil {
		w.endOnce.Do(func() {
			w.err = err
			close(w.ended)
			w.stopPush()
		})
	}
}

// stay waits for the end of the stream, and tells the worker once if the server shuts down.
func (w *work) stay() error {
	ctx := w.stream.Context()
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done(): // the worker is gone, or its token has ended
		return ctx.Err()
	case <-w.g.broker.Draining():
	}
	if err := w.send(&pawlv1.WorkResponse{Draining: true}); err != nil {
		return err
	}
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// onDemand runs do in its own goroutine while there is something to do.
type onDemand struct {
	do func() // does everything there is

	mu      sync.Mutex
	running bool
	again   bool // there may be more since do began
	stopped bool
	run     sync.WaitGroup
}

// poke signals that there is something to do. It reports false if nothing will be done any more.
func (o *onDemand) poke() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	o.again = true
	if !o.running {
		o.running = true
		o.run.Go(o.loop)
	}
	return true
}

func (o *onDemand) loop() {
	for {
		o.mu.Lock()
		o.running = o.again
		o.again = false
		goOn := o.running
		o.mu.Unlock()
		if !goOn {
			return
		}
		o.do()
	}
}

// stop waits until do has returned, and prevents further runs.
func (o *onDemand) stop() {
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	o.run.Wait()
}

// receive reads frames until the worker closes its side, which ends the stream once everything is answered.
func (w *work) receive(ctx context.Context, frame *pawlv1.WorkRequest) error {
	for {
		if err := w.accept(ctx, frame); err != nil {
			return err
		}
		var err error
		if frame, err = w.stream.Recv(); err != nil {
			return err
		}
		if frame.GetHello() != nil {
			return task.Invalid("hello", "is given twice")
		}
	}
}

// accept processes one frame.
func (w *work) accept(ctx context.Context, frame *pawlv1.WorkRequest) error {
	w.quiet.me.Saw(time.Now())
	if frame.GetQuiet() {
		w.quiet.me.Drains()
		w.stopPush()
	}
	if s := frame.GetSettle(); s != nil {
		if err := w.settle(ctx, s); err != nil {
			return err
		}
	}
	return w.grant(frame.GetGrant())
}

func (w *work) grant(n int32) error {
	if n == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < 0 || w.slots+int(n) > maxSlots {
		return task.Invalid("grant", "%d on top of %d is not between 1 and %d", n, w.slots, maxSlots)
	}
	w.slots += int(n)
	w.quiet.me.Slots(w.slots)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return nil
}

// push claims tasks for the free slots and sends them, one claim at a time: slots that become free meanwhile make the next claim
// larger.
func (w *work) push() error {
	lacking := 0
	for {
		slots := w.free()
		if slots == 0 {
			return nil
		}
		var err error
		if lacking, err = w.pushTo(slots, lacking); err != nil {
			return err
		}
	}
}

// pushTo makes one claim and sends its tasks. It returns the bytes of tasks that it has released because there was no memory to send them;
// lacked is what it returned last.
func (w *work) pushTo(slots, lacked int) (lacking int, err error) {
	c := w.claim
	c.Max = min(slots, task.MaxClaim)
	ctx, done := w.quiet.claiming(w.pushing)
	got, room, err := w.take(ctx, c, lacked)
	defer room.Release()
	hushed := ctx.Err() != nil
	done()
	switch {
	case err != nil && hushed: // free decides whether to continue
	// a worker of a node that is not ready goes to another one
	case errors.Is(err, task.ErrUnavailable) && !errors.Is(err, task.ErrNotReady):
		w.pause(err)
	case err != nil:
		return 0, err
	case len(got) > 0:
		if err := w.deliver(got, room); !errors.Is(err, errNoRoom) {
			return 0, err
		}
		_, lacking = apiproto.Fitting(got)
	}
	return lacking, nil
}

// take claims tasks. After some found no memory it waits for as much, and then claims what there is at once: a claim
// that waits must hold no memory, and one that is repeated without it would claim and release the same tasks again and
// again.
func (w *work) take(ctx context.Context, c broker.ClaimCall, lacked int) ([]broker.Claimed, *send.Answer, error) {
	room, err := send.Await(ctx, lacked, w.g.broker.Draining())
	if err != nil {
		return nil, room, err
	}
	wait := workWait
	if lacked > 0 {
		wait = 0
	}
	got, err := w.g.take(ctx, c, wait)
	if err != nil {
		room.Release()
	}
	return got, room, err
}

// free waits for free slots; 0 when nothing should be pushed any more.
func (w *work) free() int {
	for {
		if w.pushing.Err() != nil || w.g.isDraining() {
			return 0
		}
		w.mu.Lock()
		n := w.slots
		w.mu.Unlock()
		if n > 0 && !w.quiet.isQuiet() {
			return n
		}
		select {
		case <-w.more:
		case <-w.pushing.Done():
		case <-w.g.broker.Draining():
		}
	}
}

// pause waits before repeating a claim that was refused for now.
func (w *work) pause(err error) {
	pause := pushPause
	if e, ok := task.AsError(err); ok {
		pause = min(max(e.RetryAfter, pushPause), pushPauseMax)
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.pushing.Done():
	case <-w.g.broker.Draining():
	}
}

var errNoRoom = errors.New("there is no memory to send the tasks")

// deliver sends claims to the worker. They are watched before they are sent, and a notification can't overtake them, because both
// hold the lock for sending. room is the memory that was awaited for them.
func (w *work) deliver(claimed []broker.Claimed, room *send.Answer) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	// If tasks are allowed again, the worker must hear that first. It or an operator may also just have quieted it.
	if err := w.sendNotice(); err != nil || w.pushing.Err() != nil || w.quiet.isQuiet() {
		w.g.giveBack(claimed)
		return err
	}
	if _, size := apiproto.Fitting(claimed); send.Take(w.stream.Context(), size, room) != nil {
		w.g.giveBack(claimed)
		return errNoRoom
	}
	w.mu.Lock()
	w.slots -= len(claimed)
	w.quiet.me.Slots(w.slots)
	w.mu.Unlock()
	now := time.Now()
	w.quiet.me.Took(registryRuns(claimed, now), now)
	for i := range claimed {
		w.watch.Add(broker.Hold{Namespace: claimed[i].Namespace, ID: claimed[i].ID, Token: claimed[i].Token})
	}
	w.g.spans.Held(&w.held, claimed)
	for len(claimed) > 0 {
		n, _ := apiproto.Fitting(claimed)
		frame := &pawlv1.WorkResponse{Tasks: make([]*pawlv1.ClaimedTask, n)}
		for i := range n {
			frame.Tasks[i] = apiproto.ClaimedProto(&claimed[i])
		}
		if err := w.stream.Send(frame); err != nil {
			w.g.giveBack(claimed)
			return err
		}
		claimed = claimed[n:]
	}
	return nil
}

func (w *work) send(frame *pawlv1.WorkResponse) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.stream.Send(frame)
}

// sendNotice sends the operator's order if the worker does not have it. The caller holds the lock for sending: no task comes between the
// order and its frame.
func (w *work) sendNotice() error {
	if word := w.quiet.takeNotice(); word != nil {
		return w.stream.Send(&pawlv1.WorkResponse{Quiet: word})
	}
	return nil
}

// onLost queues the notification of a lost claim.
func (w *work) onLost(l broker.Lost) {
	w.mu.Lock()
	room := len(w.lost) < maxNotices
	if room {
		w.lost = append(w.lost, l)
	}
	w.mu.Unlock()
	if room {
		w.notifier.poke()
	}
}

// notify sends the worker an operator's order, and its lost claims.
func (w *work) notify() error {
	w.sending.Lock()
	err := w.sendNotice()
	w.sending.Unlock()
	if err != nil {
		return err
	}
	w.mu.Lock()
	lost := w.lost
	w.lost = nil
	w.mu.Unlock()
	if len(lost) == 0 {
		return nil
	}
	notices := make([]*pawlv1.LostClaim, len(lost))
	for i, l := range lost {
		w.watch.Remove(l.ID, l.Token)
		w.quiet.me.Taken(l.ID, l.Token, l.Reason == task.StaleExpired)
		w.held.Take(l.ID)
		notices[i] = &pawlv1.LostClaim{TaskId: l.ID.String(), ClaimToken: l.Token.String(), Reason: l.Reason}
	}
	return w.send(&pawlv1.WorkResponse{Lost: notices})
}
