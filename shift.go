package pawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// shift is one Run of a worker: its claims, and the slots that work on them.
//
//	stream ─▶ receive ─▶ accept ─▶ jobs ─▶ slot (one goroutine each) ─▶ finish ─▶ outbox ─▶ frames ─▶ stream
//	                        sweep: extends leases, ends contexts, sends again ─────────▲
//
// Whatever the stream does, claims has every task from its push until the broker has confirmed its end. A new stream begins with
// what is in there, so a broken one loses nothing.
type shift struct {
	client *Client
	handle Handler
	cfg    WorkerConfig
	hello  *pawlv1.WorkHello
	base   context.Context // of the handlers
	stop   context.CancelCauseFunc
	jobs   chan *hold // to the slots; room for all, so that accept never waits

	// Signals, each with room for one.
	sendMore chan struct{} // to the sender of the stream: the outbox or the grant has changed
	sweepNow chan struct{} // to keep: something is due earlier than it thinks
	calmer   chan struct{} // to drain: a handler or a claim has ended

	mu        sync.Mutex // guards what follows, and the fields of hold that say so
	claims    map[string]*hold
	slots     slots
	out       outbox
	quiet     bool  // draining: take nothing more
	hushed    int64 // version of an operator's word to be quiet, which holds over streams; 0: there is none
	nextSweep time.Time
	stats     WorkerStats
	contact   contact
	place     place
}

// slots counts where the Concurrency slots are; those neither busy nor granted are free.
type slots struct {
	busy    int // a handler runs, or is about to
	granted int // the broker may push a task into it
}

// hold is a claim from its push to the answer that ends it.
type hold struct {
	claim  Claim
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc // gives back the timer of the timeout
	run    observed           // of the handler; owned by the slot, and left alone once it has ended

	span atomic.Pointer[trace.SpanContext] // that of run, for anybody; nil: it has not begun, or belongs to no trace

	// Guarded by shift.mu:
	phase    phase
	end      ending
	lease    time.Duration
	leaseEnd time.Time // by our clock, from the last confirmation
	due      time.Time // running: of the next extension. ended: of the next try after a refusal; zero: no refusal
	extended time.Time // when the extension was sent that has no answer yet
	progress *pawlv1.Progress
	tries    int
	fallback bool      // end replaces one that the broker refused
	told     time.Time // when there was an end to tell; zero: nobody wants to know
}

// phase is where a hold is.
type phase uint8

const (
	running phase = iota // its handler runs
	lapsed               // its handler runs, its lease has ended without confirmation: the token may or may not hold
	lost                 // its handler runs, the broker says that the claim is gone: there is nothing to tell
	ended                // end waits to be sent or confirmed
)

// errGoexit: the handler ended its goroutine, as testing.T.FailNow does.
var errGoexit = errors.New("handler called runtime.Goexit")

func newShift(ctx context.Context, w *Worker, hello *pawlv1.WorkHello) *shift {
	s := &shift{
		client: w.client, handle: w.mux.Handler(), cfg: w.cfg, hello: hello,
		jobs:     make(chan *hold, w.cfg.Concurrency),
		sendMore: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1), calmer: make(chan struct{}, 1),
		claims:  make(map[string]*hold, 2*w.cfg.Concurrency),
		contact: contact{lost: time.Now()}, nextSweep: time.Now().Add(sweepIdle),
	}
	s.base, s.stop = context.WithCancelCause(withoutSpan(context.WithoutCancel(ctx)))
	return s
}

// run works until ctx ends or the broker refuses the worker, and drains.
func (s *shift) run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var background, handlers sync.WaitGroup
	for range s.cfg.Concurrency {
		handlers.Go(func() { s.slot(&handlers) })
	}
	closing, refused := make(chan struct{}), make(chan error, 1)
	background.Go(func() { s.keep(life) })
	background.Go(func() { refused <- s.link(life, closing) })

	var err error
	select {
	case <-ctx.Done():
		err = s.drain(closing, refused)
	case err = <-refused:
		s.giveUp()
	}
	end()
	background.Wait()
	close(s.jobs)
	if s.idle() {
		handlers.Wait()
	}
	s.stop(ErrDraining)
	return err
}

// giveUp ends the contexts of handlers whose broker wants to hear nothing more. Their tasks run again when their leases have ended.
func (s *shift) giveUp() {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	s.stop(ErrDraining)
	s.wait(drainGrace, s.idle)
}

// accept takes what the broker pushed.
func (s *shift) accept(tasks []*pawlv1.ClaimedTask, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range tasks {
		s.slots.granted = max(s.slots.granted-1, 0)
		if s.claims[p.GetClaimToken()] != nil {
			continue // pushed again: it runs already, or its end is on the way
		}
		h := s.newHold(p, now)
		s.claims[h.claim.Token] = h
		s.place.count(h.claim.ID)
		if s.quiet || s.slots.busy >= s.cfg.Concurrency {
			h.close()
			s.endLocked(h, ending{release: releaseOf(&h.claim, 0)})
			continue
		}
		s.slots.busy++
		s.sweepAt(h.due)
		s.jobs <- h
	}
	signal(s.sendMore)
}

func (s *shift) newHold(p *pawlv1.ClaimedTask, now time.Time) *hold {
	h := &hold{}
	h.claim.set(p, s)
	s.client.lock(&h.claim)
	h.ctx, h.cancel = context.WithCancelCause(s.client.observe.arrive(s.base, &h.claim))
	if h.claim.Timeout > 0 {
		h.ctx, h.free = context.WithTimeout(h.ctx, h.claim.Timeout)
	}
	h.lease = h.claim.Lease
	if h.lease <= 0 {
		h.lease = defaultLease
	}
	h.leaseEnd, h.due = now.Add(h.lease), now.Add(h.lease/3)
	return h
}

// close gives back what the context holds.
func (h *hold) close() {
	h.cancel(nil)
	if h.free != nil {
		h.free()
	}
}

// slot runs one handler after the other.
func (s *shift) slot(handlers *sync.WaitGroup) {
	for h := range s.jobs {
		s.finish(h, s.attempt(h, handlers))
	}
}

// attempt runs the handler and turns a panic into an error. After a Goexit it finishes the task and gives the slot to a new goroutine.
func (s *shift) attempt(h *hold, handlers *sync.WaitGroup) (err error) {
	returned := false
	ctx, run := s.client.observe.process(h.ctx, &h.claim, s.cfg.Name)
	h.run = run
	if span := run.span.SpanContext(); span.IsValid() {
		kept := span // only then does it cost memory
		h.span.Store(&kept)
	}
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		s.finish(h, errGoexit)
		handlers.Go(func() { s.slot(handlers) })
	}()
	if err = h.claim.locked; err == nil {
		err = s.handle(ctx, &h.claim)
	}
	returned = true
	return err
}

// finish frees the slot and queues what the broker must be told.
func (s *shift) finish(h *hold, err error) {
	cause := context.Cause(h.ctx)
	h.close()
	var told time.Time
	if h.run.wanted() {
		told = time.Now()
	}
	outcome := s.outcome(h, err, cause)
	h.run.processed(outcome, err)
	s.mu.Lock()
	s.slots.busy--
	s.count(outcome, err)
	switch h.phase {
	case running, lapsed:
		s.endLocked(h, h.verdict(err, cause))
		h.told = told
	case lost:
		delete(s.claims, h.claim.Token)
	case ended: // drain has released it
	}
	quiet := s.quiet
	s.mu.Unlock()
	signal(s.sendMore)
	if quiet {
		signal(s.calmer)
	}
	s.logEnd(h, outcome, err)
}

func (s *shift) count(o Outcome, err error) {
	switch {
	case err == nil:
		s.stats.Succeeded++
	case o.Failed() || o == OutcomeDiscarded:
		s.stats.Failed++
	}
}

// outcome says what came of a run, as spans, metrics and logs tell it. cause is why the context had ended, nil if it had not.
func (s *shift) outcome(h *hold, err, cause error) Outcome {
	if err == nil && cause == nil {
		return OutcomeSucceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.outcome(err, cause)
}

// outcome is shift.outcome. A claim that is gone, or goes back, is no failure of its handler, whatever that returned: verdict has the same cases.
func (h *hold) outcome(err, cause error) Outcome {
	var unknown *unknownType
	steered := err == nil || steerOf(err) != nil
	switch {
	case h.phase == ended: // drain has released it
		return OutcomeReleased
	case errors.Is(cause, ErrCancelled) && (h.phase == lost || !steered):
		return OutcomeCancelled
	case h.phase == lost || h.phase == lapsed && !steered:
		return OutcomeLeaseLost
	case !steered && (errors.As(err, &unknown) || errors.Is(cause, ErrDraining)):
		return OutcomeReleased
	}
	return OutcomeOf(err)
}

// verdict is how the claim ends. cause is why the context had ended, nil if it had not.
func (h *hold) verdict(err, cause error) ending {
	if err == nil || steerOf(err) != nil {
		return endingOf(&h.claim, err) // the handler knows what it says, whatever became of its context
	}
	var unknown *unknownType
	switch {
	case errors.As(err, &unknown):
		return ending{release: releaseOf(&h.claim, notOurs)}
	case h.phase == lapsed || errors.Is(cause, ErrDraining):
		return ending{release: releaseOf(&h.claim, 0)} // not the task's fault: no attempt is used
	case errors.Is(cause, context.DeadlineExceeded):
		return endingOf(&h.claim, &timeoutError{limit: h.claim.Timeout, err: err})
	}
	return endingOf(&h.claim, err)
}

// timeoutError is what a handler returned after the timeout of its task.
type timeoutError struct {
	limit time.Duration
	err   error
}

// Error names the limit.
func (e *timeoutError) Error() string {
	return fmt.Sprintf("timeout of %s is over: %v", e.limit, e.err)
}

// Unwrap gives what the handler returned, and DeadlineExceeded.
func (e *timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }

// endLocked makes e the end of h and queues it for the stream.
func (s *shift) endLocked(h *hold, e ending) {
	h.phase, h.end, h.due = ended, e, time.Time{}
	s.out.endings = append(s.out.endings, h)
}

// lose is for the claims that the broker says are gone.
func (s *shift) lose(token, reason string) {
	s.mu.Lock()
	h := s.claims[token]
	if h == nil || h.phase == ended || h.phase == lost { // the answer to its end tells more
		s.mu.Unlock()
		return
	}
	h.phase = lost
	if reason != "cancelled" {
		s.stats.LeasesLost++
	}
	s.mu.Unlock()
	h.cancel(lossOf(reason))
	level := slog.LevelWarn
	if reason == "cancelled" {
		level = slog.LevelInfo // somebody wanted it so
	}
	s.log(h).Log(h.ctx, level, "claim lost", "reason", reason)
}

// lossOf is the cause of the handler's context for the reason of a stale claim.
func lossOf(reason string) error {
	if reason == "cancelled" {
		return ErrCancelled
	}
	return fmt.Errorf("%w: %s", ErrLeaseLost, reason)
}

// progress implements holder: the next extension carries it, a second after the last one at the latest.
func (s *shift) progress(_ context.Context, c *Claim, p *pawlv1.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.claims[c.Token]
	if h == nil || h.phase != running {
		return nil
	}
	h.progress = p
	soon := time.Now()
	if next := h.extended.Add(time.Second); soon.Before(next) {
		soon = next
	}
	if soon.Before(h.due) {
		h.due = soon
	}
	s.sweepAt(h.due)
	return nil
}

// checkpoint implements holder, by a call of its own that waits for the answer.
func (s *shift) checkpoint(ctx context.Context, c *Claim, data []byte) error {
	sent := time.Now()
	_, err := s.client.Claims().Extend(ctx, c, Extension{Checkpoint: data})
	var refusal *Error
	switch {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		if h := s.claims[c.Token]; h != nil {
			h.confirm(sent)
		}
	case errors.As(err, &refusal) && refusal.Code == codeStaleClaim:
		s.lose(c.Token, refusal.Reason)
	}
	return err
}

// confirm moves the end of the lease to what an extension sent at that time has reached at least.
func (h *hold) confirm(sent time.Time) {
	if end := sent.Add(h.lease); end.After(h.leaseEnd) {
		h.leaseEnd = end
	}
}

// log is for lines about a task: in the trace of its run, or before that of who enqueued it.
func (s *shift) log(h *hold) *slog.Logger {
	log := s.cfg.Logger.With("task_id", h.claim.ID, "queue", h.claim.Queue, "type", h.claim.Type, "attempt", h.claim.Attempt)
	if span := h.span.Load(); span != nil {
		return logTrace(log, *span)
	}
	return logTrace(log, trace.SpanContextFromContext(h.ctx))
}

func (s *shift) logEnd(h *hold, o Outcome, err error) {
	level := slog.LevelInfo
	switch {
	case o.Failed():
		level = slog.LevelWarn
	case o == OutcomeSucceeded:
		level = slog.LevelDebug
	}
	if !s.cfg.Logger.Enabled(h.ctx, level) {
		return
	}
	var attrs []any
	if err != nil {
		attrs = []any{"error", err}
	}
	s.log(h).Log(h.ctx, level, "task "+string(o), attrs...)
}

// signal sets a signal that has room for one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
