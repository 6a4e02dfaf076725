// Package work is the loop of a worker: it keeps a stream to the broker, runs pushed tasks in its slots, extends leases and reports how
// tasks ended. It does not know handlers, only jobs, nor how tasks are encrypted.
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

// Run is one run of a worker: its claims, and the slots that work on them.
//
//	stream ─▶ receive ─▶ accept ─▶ jobs ─▶ slot (one goroutine each) ─▶ finish ─▶ outbox ─▶ frames ─▶ stream
//	                        sweep: extends leases, ends contexts, resends ─────────────▲
//
// Whatever happens to the stream, claims has every task from its push until the broker has confirmed its ending. A new stream starts with
// their endings and extensions, so a broken one loses nothing.
type Run struct {
	cfg   Config
	hello *pawlv1.WorkHello
	base  context.Context // of the handlers
	stop  context.CancelCauseFunc
	jobs  chan *heldClaim // to the slots; has room for all, so that accept never waits

	placement placement

	// Signals, each with room for one.
	sendMore    chan struct{} // to the sender of the stream: the outbox or the grant has changed
	sweepNow    chan struct{} // to keep: something is due earlier than it expects
	idleChanged chan struct{} // to drain: a handler or a claim has ended

	mu           sync.Mutex // guards the fields below, and the fields of heldClaim that say so
	claims       map[string]*heldClaim
	slots        slots
	out          outbox
	quiet        bool  // draining: take no more tasks
	quietVersion int64 // version of an operator's order to be quiet, which outlives streams; 0: none
	nextSweep    time.Time
	stats        pawltype.WorkerStats
	contact      contact
}

// slots counts the Concurrency slots by use; those neither busy nor granted are free.
type slots struct {
	busy    int // a handler runs, or is about to
	granted int // the broker may push a task into it
}

// heldClaim is a claim from its push to the confirmation of its ending.
type heldClaim struct {
	ref    lease.Claim
	task   *pawlv1.ClaimedTask
	job    Job
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   context.CancelFunc // releases the timer of the timeout
	run    telemetry.Span     // of the handler; owned by the slot, and not used after it has ended

	span atomic.Pointer[trace.SpanContext] // context of run's span, for any goroutine; nil: not started, or not traced

	// Guarded by Run.mu:
	phase      phase
	end        lease.Ending
	lease      time.Duration
	leaseEnd   time.Time   // by our clock, as of the last confirmation
	due        time.Time   // running: of the next extension. ended: of the next retry after a refusal; zero: not refused
	extended   time.Time   // when the last extension was sent
	unanswered []time.Time // when the extensions were sent that have no answer yet: those that succeed are answered in this order
	progress   *pawlv1.Progress
	tries      int
	fallback   bool      // end replaces one that the broker refused
	reportedAt time.Time // when there was an ending to send; zero: neither traced nor measured
}

// phase is the state of a claim.
type phase uint8

const (
	running phase = iota // its handler runs
	lapsed               // its handler runs, its lease has expired without confirmation: the token may or may not be valid
	lost                 // its handler runs, the broker says that the claim is gone: there is nothing to report
	ended                // end is waiting to be sent or confirmed
)

// errGoexit: the handler ended its goroutine, as testing.T.FailNow does.
var errGoexit = errors.New("handler called runtime.Goexit")

// Config configures a Run.
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
	// NewJob returns the job for a task that h holds. It must be fast.
	NewJob func(p *pawlv1.ClaimedTask, h lease.Holder) Job
}

// Job is a claimed task and its handler.
type Job interface {
	Run(ctx context.Context) error
	// Result returns the task's result. It counts if Run returned nil.
	Result() (data []byte, contentType string)
	// Failed is called with the error of a run that has failed; ctx is that of Run, and has ended.
	Failed(ctx context.Context, err error)
}

// NewRun returns a Run. The contexts of handlers have the values of ctx.
func NewRun(ctx context.Context, cfg Config) *Run {
	s := &Run{
		cfg: cfg, hello: cfg.Hello,
		jobs:     make(chan *heldClaim, cfg.Concurrency),
		sendMore: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1), idleChanged: make(chan struct{}, 1),
		claims:  make(map[string]*heldClaim, 2*cfg.Concurrency),
		contact: contact{lost: time.Now()}, nextSweep: time.Now().Add(sweepIdle),
	}
	s.placement = placement{router: cfg.Router, hello: cfg.Hello, worker: cfg.Name, log: cfg.Log}
	s.base, s.stop = context.WithCancelCause(telemetry.WithoutSpan(context.WithoutCancel(ctx)))
	return s
}

// Stats returns the statistics so far.
func (s *Run) Stats() pawltype.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Running = s.slots.busy
	out.Unsettled = max(0, len(s.claims)-s.slots.busy)
	return out
}

// Disconnected returns how long the broker has been unreachable; 0: it is not.
func (s *Run) Disconnected(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.Connected && s.contact.works(now) {
		return 0
	}
	return now.Sub(s.contact.lost)
}

// Do works until ctx ends or the broker rejects the worker, and drains.
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
		err = s.drain(closing, refused, end)
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

// giveUp ends the contexts of handlers if the broker has rejected the worker. Their tasks run again when their leases have expired.
func (s *Run) giveUp() {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	s.stop(pawltype.ErrDraining)
	s.wait(drainGrace, s.idle)
}

// accept takes the tasks that the broker pushed.
func (s *Run) accept(tasks []*pawlv1.ClaimedTask, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range tasks {
		s.slots.granted = max(s.slots.granted-1, 0)
		if s.claims[p.GetClaimToken()] != nil {
			continue // pushed again: it already runs, or its ending is on the way
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
	h := &heldClaim{ref: lease.Claim{TaskID: p.GetTaskId(), Type: p.GetType(), Token: p.GetClaimToken()}, task: p,
		job: s.cfg.NewJob(p, holder{s})}
	h.ctx, h.cancel = context.WithCancelCause(s.cfg.Telemetry.Extract(s.base, h.traced()))
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

// ending returns the ending for a handler's error.
func (h *heldClaim) ending(err error) lease.Ending {
	result, contentType := h.job.Result()
	return lease.EndingOf(h.ref, result, contentType, err)
}

// close releases the context's resources.
func (h *heldClaim) close() {
	h.cancel(nil)
	if h.free != nil {
		h.free()
	}
}

// slot runs one handler after the other. After a Goexit, of a handler or of Failed, a new goroutine takes over.
func (s *Run) slot(handlers *sync.WaitGroup) {
	done := false
	defer func() {
		if !done {
			handlers.Go(func() { s.slot(handlers) })
		}
	}()
	for h := range s.jobs {
		s.finish(h, s.attempt(h))
	}
	done = true
}

// attempt runs the handler and turns a panic into an error. After a Goexit it finishes the task.
func (s *Run) attempt(h *heldClaim) (err error) {
	returned := false
	ctx, run := s.cfg.Telemetry.Process(h.ctx, h.traced(), s.cfg.Name)
	h.run = run
	if span := run.SpanContext(); span.IsValid() {
		kept := span // a copy, so that only traced runs allocate
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
	}()
	if err = h.job.Run(ctx); err != nil {
		_ = err.Error() // may panic, for example if it is a nil pointer: here that is the handler's panic
	}
	returned = true
	return err
}

// finish queues what the broker must know, and frees the slot: after a failure once the job has been told.
func (s *Run) finish(h *heldClaim, err error) {
	cause := context.Cause(h.ctx)
	h.close()
	var reportedAt time.Time
	if h.run.Recording() {
		reportedAt = time.Now()
	}
	outcome := s.outcome(h, err, cause)
	h.run.Processed(outcome, err)
	s.mu.Lock()
	count(&s.stats, outcome, err)
	switch h.phase {
	case running, lapsed:
		s.endLocked(h, h.verdict(err, cause))
		h.reportedAt = reportedAt
	case lost:
		delete(s.claims, h.ref.Token)
	case ended: // drain has released it
	}
	if !outcome.Failed() {
		s.slots.busy--
	}
	quiet := s.quiet
	s.mu.Unlock()
	s.signalEnd(quiet)
	h.logEnd(s.cfg.Log, outcome, err)
	if !outcome.Failed() {
		return
	}
	defer func() { // also after a Goexit
		s.mu.Lock()
		s.slots.busy--
		quiet := s.quiet
		s.mu.Unlock()
		s.signalEnd(quiet)
	}()
	h.job.Failed(h.ctx, err)
}

// signalEnd signals that an ending waits, or a slot is free.
func (s *Run) signalEnd(quiet bool) {
	signal(s.sendMore)
	if quiet {
		signal(s.idleChanged)
	}
}

func count(stats *pawltype.WorkerStats, o pawltype.Outcome, err error) {
	switch {
	case err == nil:
		stats.Succeeded++
	case o.Failed() || o == pawltype.OutcomeDiscarded:
		stats.Failed++
	}
}

// outcome returns the outcome of a run for spans, metrics and logs. cause is why the context had ended, nil if it had not.
func (s *Run) outcome(h *heldClaim, err, cause error) pawltype.Outcome {
	if err == nil && cause == nil {
		return pawltype.OutcomeSucceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.outcome(err, cause)
}

// outcome is Run.outcome. If the claim is gone, or is released, the handler has not failed, whatever it returned.
// verdict has the same cases.
func (h *heldClaim) outcome(err, cause error) pawltype.Outcome {
	decided := err == nil || outcome.DirectiveOf(err) != nil
	switch {
	case h.phase == ended: // drain has released it
		return pawltype.OutcomeReleased
	case h.phase == lost && errors.Is(cause, pawltype.ErrCancelled):
		return pawltype.OutcomeCancelled
	case h.phase == lost || h.phase == lapsed && !decided:
		return pawltype.OutcomeLeaseLost
	case !decided && errors.Is(cause, pawltype.ErrDraining):
		return pawltype.OutcomeReleased
	}
	return outcome.Of(err)
}

// verdict returns how the claim ends. cause is why the context had ended, nil if it had not.
func (h *heldClaim) verdict(err, cause error) lease.Ending {
	if err == nil || outcome.DirectiveOf(err) != nil {
		return h.ending(err) // the handler knows what it wants, whatever happened to its context
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

// timeoutError wraps what a handler returned after the timeout of its task.
type timeoutError struct {
	limit time.Duration
	err   error
}

// Error names the limit.
func (e *timeoutError) Error() string {
	return fmt.Sprintf("timed out after %s: %v", e.limit, e.err)
}

// Unwrap returns what the handler returned, and DeadlineExceeded.
func (e *timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.err} }

// endLocked makes e the ending of h and queues it for the stream.
func (s *Run) endLocked(h *heldClaim, e lease.Ending) {
	h.phase, h.end, h.due = ended, e, time.Time{}
	s.out.add(h)
}

// lose handles a claim that the broker says is gone.
func (s *Run) lose(token, reason string) {
	s.mu.Lock()
	h := s.claims[token]
	if h == nil || h.phase == ended || h.phase == lost { // the answer to its ending says more
		s.mu.Unlock()
		return
	}
	h.phase = lost
	if reason != "cancelled" {
		s.stats.LeasesLost++
	}
	s.mu.Unlock()
	level := slog.LevelWarn
	if reason == "cancelled" {
		level = slog.LevelInfo // this was intended
	}
	h.log(s.cfg.Log).Log(h.ctx, level, "claim lost", "reason", reason) // before what the handler logs about it
	h.cancel(lossOf(reason))
}

// lossOf returns the cause for the handler's context, given the reason of a stale claim.
func lossOf(reason string) error {
	if reason == "cancelled" {
		return pawltype.ErrCancelled
	}
	return fmt.Errorf("%w: %s", pawltype.ErrLeaseLost, reason)
}

// confirm moves the end of the lease to the earliest that an extension sent at that time can have set.
func (h *heldClaim) confirm(sent time.Time) {
	if end := sent.Add(h.lease); end.After(h.leaseEnd) {
		h.leaseEnd = end
	}
}

// log returns the logger for lines about a task: in the trace of its run, or before that in the one of its enqueue.
func (h *heldClaim) log(base *slog.Logger) *slog.Logger {
	log := base.With("task_id", h.ref.TaskID, "queue", h.task.GetQueue(), "type", h.ref.Type, "attempt", h.task.GetAttempt())
	if span := h.span.Load(); span != nil {
		return telemetry.LogTrace(log, *span)
	}
	return telemetry.LogTrace(log, trace.SpanContextFromContext(h.ctx))
}

func (h *heldClaim) logEnd(base *slog.Logger, o pawltype.Outcome, err error) {
	level := slog.LevelInfo
	switch {
	case o.Failed():
		level = slog.LevelWarn
	case o == pawltype.OutcomeSucceeded:
		level = slog.LevelDebug
	}
	if !base.Enabled(h.ctx, level) {
		return
	}
	var attrs []any
	if err != nil {
		attrs = []any{"error", err}
	}
	h.log(base).Log(h.ctx, level, "task "+string(o), attrs...)
}

// signal sends on ch unless a value is already waiting there.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

const (
	defaultLease = 30 * time.Second // if a claim has none
)
