// Package work is the loop of a worker: it keeps a stream to the broker, runs what comes in its slots, extends leases and tells how tasks
// ended. It does not know handlers, only jobs, nor how tasks are encrypted.
package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/pawltype"
	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Run is one Run of a worker: its claims, and the slots that work on them.
//
//	stream ─▶ receive ─▶ accept ─▶ jobs ─▶ slot (one goroutine each) ─▶ finish ─▶ outbox ─▶ frames ─▶ stream
//	                        sweep: extends leases, ends contexts, sends again ─────────▲
//
// Whatever the stream does, claims has every task from its push until the broker has confirmed its end. A new stream begins with
// what is in there, so a broken one loses nothing.
type Run struct {
	cfg   Config
	hello *pawlv1.WorkHello
	base  context.Context // of the handlers
	stop  context.CancelCauseFunc
	jobs  chan *heldClaim // to the slots; room for all, so that accept never waits

	// Signals, each with room for one.
	sendMore chan struct{} // to the sender of the stream: the outbox or the grant has changed
	sweepNow chan struct{} // to keep: something is due earlier than it thinks
	calmer   chan struct{} // to drain: a handler or a claim has ended

	mu           sync.Mutex // guards what follows, and the fields of heldClaim that say so
	claims       map[string]*heldClaim
	slots        slots
	out          outbox
	quiet        bool  // draining: take nothing more
	quietVersion int64 // version of an operator's word to be quiet, which holds over streams; 0: there is none
	nextSweep    time.Time
	stats        pawltype.WorkerStats
	contact      contact
	placement    placement
}

// slots counts where the Concurrency slots are; those neither busy nor granted are free.
type slots struct {
	busy    int // a handler runs, or is about to
	granted int // the broker may push a task into it
}

// heldClaim is a claim from its push to the answer that ends it.
type heldClaim struct {
	ref    lease.Claim
	task   *pawlv1.ClaimedTask
	job    Job
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc // gives back the timer of the timeout
	run    telemetry.Span     // of the handler; owned by the slot, and left alone once it has ended

	span atomic.Pointer[trace.SpanContext] // that of run, for anybody; nil: it has not begun, or belongs to no trace

	// Guarded by Run.mu:
	phase    phase
	end      lease.Ending
	lease    time.Duration
	leaseEnd time.Time // by our clock, from the last confirmation
	due      time.Time // running: of the next extension. ended: of the next try after a refusal; zero: no refusal
	extended time.Time // when the extension was sent that has no answer yet
	progress *pawlv1.Progress
	tries    int
	fallback bool      // end replaces one that the broker refused
	told     time.Time // when there was an end to tell; zero: nobody wants to know
}

// phase is where a claim is.
type phase uint8

const (
	running phase = iota // its handler runs
	lapsed               // its handler runs, its lease has ended without confirmation: the token may or may not hold
	lost                 // its handler runs, the broker says that the claim is gone: there is nothing to tell
	ended                // end waits to be sent or confirmed
)

// errGoexit: the handler ended its goroutine, as testing.T.FailNow does.
var errGoexit = errors.New("handler called runtime.Goexit")

// Config is what a Run needs.
type Config struct {
	Caller    *rpc.Caller
	Worker    pawlv1.WorkerServiceClient
	Calls     lease.Calls
	Router    Router // nil: streams go wherever the connection goes
	Telemetry *telemetry.Telemetry
	Log       *slog.Logger

	Hello        *pawlv1.WorkHello // the first frame of each stream
	Name         string
	Concurrency  int
	DrainTimeout time.Duration // for handlers to finish
	// NewJob makes what runs a task. It must be fast.
	NewJob func(p *pawlv1.ClaimedTask, of *Run) Job
}

// Job is a claimed task with its handler.
type Job interface {
	Run(ctx context.Context) error
	// Result is what the task is to have as its result if Run returned nil.
	Result() (data []byte, contentType string)
	// Failed is told of the error of a run that has failed; ctx is that of Run, and has ended.
	Failed(ctx context.Context, err error)
}

// NewRun makes a Run; the contexts of handlers have the values of ctx.
func NewRun(ctx context.Context, cfg Config) *Run {
	s := &Run{
		cfg: cfg, hello: cfg.Hello,
		jobs:     make(chan *heldClaim, cfg.Concurrency),
		sendMore: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1), calmer: make(chan struct{}, 1),
		claims:  make(map[string]*heldClaim, 2*cfg.Concurrency),
		contact: contact{lost: time.Now()}, nextSweep: time.Now().Add(sweepIdle),
	}
	s.base, s.stop = context.WithCancelCause(telemetry.WithoutSpan(context.WithoutCancel(ctx)))
	return s
}

// Stats gives the figures so far.
func (s *Run) Stats() pawltype.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Running = s.slots.busy
	out.Unsettled = max(0, len(s.claims)-s.slots.busy)
	return out
}

// Disconnected is for how long the broker has been out of reach; 0: it is not.
func (s *Run) Disconnected(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Connected && s.contact.solid(now) {
		return 0
	}
	return now.Sub(s.contact.lost)
}

// Do works until ctx ends or the broker refuses the worker, and drains.
func (s *Run) Do(ctx context.Context) error {
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
	s.stop(pawltype.ErrDraining)
	return err
}

// giveUp ends the contexts of handlers whose broker wants to hear nothing more. Their tasks run again when their leases have ended.
func (s *Run) giveUp() {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	s.stop(pawltype.ErrDraining)
	s.wait(drainGrace, s.idle)
}

// accept takes what the broker pushed.
func (s *Run) accept(tasks []*pawlv1.ClaimedTask, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range tasks {
		s.slots.granted = max(s.slots.granted-1, 0)
		if s.claims[p.GetClaimToken()] != nil {
			continue // pushed again: it runs already, or its end is on the way
		}
		h := s.newHold(p, now)
		s.claims[h.ref.Token] = h
		s.placement.count(h.ref.TaskID)
		if s.quiet || s.slots.busy >= s.cfg.Concurrency {
			h.close()
			s.endLocked(h, lease.Release(h.ref, 0))
			continue
		}
		s.slots.busy++
		s.sweepAt(h.due)
		s.jobs <- h
	}
	signal(s.sendMore)
}

func (s *Run) newHold(p *pawlv1.ClaimedTask, now time.Time) *heldClaim {
	h := &heldClaim{ref: lease.Claim{TaskID: p.GetTaskId(), Type: p.GetType(), Token: p.GetClaimToken()}, task: p, job: s.cfg.NewJob(p, s)}
	h.ctx, h.cancel = context.WithCancelCause(s.cfg.Telemetry.Arrive(s.base, h.traced()))
	if timeout := p.GetTimeout().AsDuration(); timeout > 0 {
		h.ctx, h.free = context.WithTimeout(h.ctx, timeout)
	}
	h.lease = p.GetLease().AsDuration()
	if h.lease <= 0 {
		h.lease = defaultLease
	}
	h.leaseEnd, h.due = now.Add(h.lease), now.Add(h.lease/3)
	return h
}

func (h *heldClaim) traced() telemetry.Task { return telemetry.TaskOf(h.task) }

// ending is what the handler's return means.
func (h *heldClaim) ending(err error) lease.Ending {
	result, contentType := h.job.Result()
	return lease.EndingOf(h.ref, result, contentType, err)
}

// close gives back what the context holds.
func (h *heldClaim) close() {
	h.cancel(nil)
	if h.free != nil {
		h.free()
	}
}

// slot runs one handler after the other.
func (s *Run) slot(handlers *sync.WaitGroup) {
	for h := range s.jobs {
		s.finish(h, s.attempt(h, handlers))
	}
}

// attempt runs the handler and turns a panic into an error. After a Goexit it finishes the task and gives the slot to a new goroutine.
func (s *Run) attempt(h *heldClaim, handlers *sync.WaitGroup) (err error) {
	returned := false
	ctx, run := s.cfg.Telemetry.Process(h.ctx, h.traced(), s.cfg.Name)
	h.run = run
	if span := run.SpanContext(); span.IsValid() {
		kept := span // only then does it cost memory
		h.span.Store(&kept)
	}
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &pawltype.PanicError{Value: v, Stack: debug.Stack()}
			return
		}
		s.finish(h, errGoexit)
		handlers.Go(func() { s.slot(handlers) })
	}()
	err = h.job.Run(ctx)
	returned = true
	return err
}

// finish frees the slot and queues what the broker must be told.
func (s *Run) finish(h *heldClaim, err error) {
	cause := context.Cause(h.ctx)
	h.close()
	var told time.Time
	if h.run.Wanted() {
		told = time.Now()
	}
	outcome := s.outcome(h, err, cause)
	h.run.Processed(outcome, err)
	s.mu.Lock()
	s.slots.busy--
	s.count(outcome, err)
	switch h.phase {
	case running, lapsed:
		s.endLocked(h, h.verdict(err, cause))
		h.told = told
	case lost:
		delete(s.claims, h.ref.Token)
	case ended: // drain has released it
	}
	quiet := s.quiet
	s.mu.Unlock()
	signal(s.sendMore)
	if quiet {
		signal(s.calmer)
	}
	s.logEnd(h, outcome, err)
	if outcome.Failed() {
		h.job.Failed(h.ctx, err)
	}
}

func (s *Run) count(o pawltype.Outcome, err error) {
	switch {
	case err == nil:
		s.stats.Succeeded++
	case o.Failed() || o == pawltype.OutcomeDiscarded:
		s.stats.Failed++
	}
}

// outcome says what came of a run, as spans, metrics and logs tell it. cause is why the context had ended, nil if it had not.
func (s *Run) outcome(h *heldClaim, err, cause error) pawltype.Outcome {
	if err == nil && cause == nil {
		return pawltype.OutcomeSucceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.outcome(err, cause)
}

// outcome is Run.outcome. A claim that is gone, or goes back, is no failure of its handler, whatever that returned: verdict has the same cases.
func (h *heldClaim) outcome(err, cause error) pawltype.Outcome {
	steered := err == nil || outcome.SteerOf(err) != nil
	switch {
	case h.phase == ended: // drain has released it
		return pawltype.OutcomeReleased
	case errors.Is(cause, pawltype.ErrCancelled) && (h.phase == lost || !steered):
		return pawltype.OutcomeCancelled
	case h.phase == lost || h.phase == lapsed && !steered:
		return pawltype.OutcomeLeaseLost
	case !steered && errors.Is(cause, pawltype.ErrDraining):
		return pawltype.OutcomeReleased
	}
	return outcome.Of(err)
}

// verdict is how the claim ends. cause is why the context had ended, nil if it had not.
func (h *heldClaim) verdict(err, cause error) lease.Ending {
	if err == nil || outcome.SteerOf(err) != nil {
		return h.ending(err) // the handler knows what it says, whatever became of its context
	}
	var unknown *outcome.UnknownType
	switch {
	case errors.As(err, &unknown):
		return lease.Release(h.ref, lease.NotOurs)
	case h.phase == lapsed || errors.Is(cause, pawltype.ErrDraining):
		return lease.Release(h.ref, 0) // not the task's fault: no attempt is used
	case errors.Is(cause, context.DeadlineExceeded):
		return lease.Fail(h.ref, &timeoutError{limit: h.task.GetTimeout().AsDuration(), err: err})
	}
	return h.ending(err)
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
func (s *Run) endLocked(h *heldClaim, e lease.Ending) {
	h.phase, h.end, h.due = ended, e, time.Time{}
	s.out.endings = append(s.out.endings, h)
}

// lose is for the claims that the broker says are gone.
func (s *Run) lose(token, reason string) {
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
		return pawltype.ErrCancelled
	}
	return fmt.Errorf("%w: %s", pawltype.ErrLeaseLost, reason)
}

// Progress has the next extension tell how far a handler is, a second after the last one at the latest.
func (s *Run) Progress(_ context.Context, c lease.Claim, p *pawlv1.Progress) error {
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

// Checkpoint stores a checkpoint by a call of its own, and waits for the answer.
func (s *Run) Checkpoint(ctx context.Context, c lease.Claim, data []byte) error {
	sent := time.Now()
	_, err := s.cfg.Calls.Extend(ctx, c, 0, nil, data)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h := s.claims[c.Token]; h != nil {
			h.confirm(sent)
		}
	}
	return s.heed(c, err)
}

// BeginOnce asks for a once key.
func (s *Run) BeginOnce(ctx context.Context, c lease.Claim, key string) (pawltype.OnceAnswer, error) {
	a, err := s.cfg.Calls.BeginOnce(ctx, c, key)
	return a, s.heed(c, err)
}

// FinishOnce records that an effect is there.
func (s *Run) FinishOnce(ctx context.Context, c lease.Claim, key string, result []byte, ttl time.Duration) error {
	_, err := s.cfg.Calls.FinishOnce(ctx, c, key, result, ttl)
	return s.heed(c, err)
}

// AbandonOnce says that an effect did not come about.
func (s *Run) AbandonOnce(ctx context.Context, c lease.Claim, key string) error {
	_, err := s.cfg.Calls.AbandonOnce(ctx, c, key)
	return s.heed(c, err)
}

// heed ends the handler of a claim that is gone, if that is what an error says.
func (s *Run) heed(c lease.Claim, err error) error {
	if refusal, ok := errors.AsType[*pawltype.Error](err); ok && refusal.Code == pawltype.ErrStaleClaim {
		s.lose(c.Token, refusal.Reason)
	}
	return err
}

// confirm moves the end of the lease to what an extension sent at that time has reached at least.
func (h *heldClaim) confirm(sent time.Time) {
	if end := sent.Add(h.lease); end.After(h.leaseEnd) {
		h.leaseEnd = end
	}
}

// log is for lines about a task: in the trace of its run, or before that of who enqueued it.
func (s *Run) log(h *heldClaim) *slog.Logger {
	log := s.cfg.Log.With("task_id", h.ref.TaskID, "queue", h.task.GetQueue(), "type", h.ref.Type, "attempt", h.task.GetAttempt())
	if span := h.span.Load(); span != nil {
		return telemetry.LogTrace(log, *span)
	}
	return telemetry.LogTrace(log, trace.SpanContextFromContext(h.ctx))
}

func (s *Run) logEnd(h *heldClaim, o pawltype.Outcome, err error) {
	level := slog.LevelInfo
	switch {
	case o.Failed():
		level = slog.LevelWarn
	case o == pawltype.OutcomeSucceeded:
		level = slog.LevelDebug
	}
	if !s.cfg.Log.Enabled(h.ctx, level) {
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

const (
	defaultLease = 30 * time.Second // if a claim doesn't say
)
