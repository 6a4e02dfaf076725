package broker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Types of the engine for operations.
type (
	Operation     = operation.Operation
	OperationSpec = operation.Spec
	OperationPage = operation.Page
	Tally         = operation.Tally
	ShardTime     = operation.ShardTime
	Skipped       = operation.Skipped
	TaskError     = operation.TaskError
)

// States of operations that other packages use.
const (
	OperationRunning = operation.Running
	OperationPaused  = operation.Paused
	OperationAborted = operation.Aborted
	OperationFailed  = operation.Failed
)

// OperationView is an operation, plus what only the leader of its home shard knows.
type OperationView struct {
	*Operation
	WaitsFor string // why it makes no progress now; "": it does
}

// OnOperation is a request about an operation.
type OnOperation struct {
	Namespace string
	ID        task.ID
}

// TargetShard implements verb.Sharded.
func (o *OnOperation) TargetShard() uint32 { return o.ID.Shard() }

// ObjectID implements verb.ByID.
func (o *OnOperation) ObjectID() (kind, id string) { return "operation", o.ID.String() }

func (o *OnOperation) within(round *engine.Round, s task.Scope) error {
	return operation.Within(round, s, o.Namespace, o.ID)
}

// NewOperation is a request to start an operation.
type NewOperation struct {
	OnShard
	Since uint64 // of the namespace: see engine.Begin
	Spec  OperationSpec
}

// All of these verbs are idempotent: the id of the request shows that an operation has already been started.

// StartOperation creates an operation in its home shard and starts it. The shard assigns its id.
var StartOperation = onReplica(verb.Rule{Name: "start-operation", Idempotent: true}, func(ctx context.Context, r *replica,
	q *NewOperation) (Shown[OperationView], error) {
	spec, id := q.Spec, r.newID()
	spec.Filter.Within = task.ScopeOf(ctx).Queues
	return r.changeOperation(ctx, func(round *engine.Round) (*Operation, error) {
		return operation.Start(round, q.Namespace, q.Since, id, spec)
	})
})

// OperationOrder is an operator's call on an operation.
type OperationOrder struct {
	OnOperation
	By task.Author // recorded with the operation
}

// PauseOperation and AbortOperation pause or end an operation once its steps under way have been answered. ResumeOperation continues it.
var (
	PauseOperation  = operationVerb("pause-operation", operation.Pause)
	ResumeOperation = operationVerb("resume-operation", operation.Resume)
	AbortOperation  = operationVerb("abort-operation", operation.Abort)
)

func operationVerb(name string, do func(*engine.Round, string, task.ID, task.Author) (*Operation, error)) *verb.Verb[OperationOrder,
	Shown[OperationView]] {
	return onReplica(verb.Rule{Name: name, Idempotent: true}, func(ctx context.Context, r *replica,
		q *OperationOrder) (Shown[OperationView], error) {
		return r.changeOperation(ctx, inScope(ctx, q.within, func(round *engine.Round) (*Operation, error) {
			return do(round, q.Namespace, q.ID, q.By)
		}))
	})
}

func (r *replica) changeOperation(ctx context.Context, verb func(*engine.Round) (*Operation, error)) (Shown[OperationView], error) {
	o, at, err := change(ctx, r, verb)
	return Shown[OperationView]{r.operations.view(o), Stamped{at}}, err
}

// OperationWait asks for an operation, waiting until it is no longer running.
type OperationWait struct {
	OnOperation
	Wait time.Duration
}

// Waits implements verb.Waiting.
func (o *OperationWait) Waits() *time.Duration { return &o.Wait }

// ShowOperation reads an operation, waiting up to Wait until it is no longer running.
var ShowOperation = onReplica(verb.Rule{Name: "operation", Idempotent: true}, func(ctx context.Context, r *replica,
	q *OperationWait) (out Shown[OperationView], err error) {
	wait := q.Wait
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		rested, forget := r.results.wait(q.ID)
		o, at, err := read(ctx, r, func(from store.Reader) (*Operation, error) {
			o, err := operation.Show(from, q.Namespace, q.ID)
			if err == nil && !task.ScopeOf(ctx).Covers(o.Scope()) {
				return nil, task.NotFound("operation", q.ID.String())
			}
			return o, err
		})
		if out.At = at; err != nil || o.State != OperationRunning || wait <= 0 {
			forget()
			out.View = r.operations.view(o)
			return out, err
		}
		select {
		case <-rested:
		case <-timer.C:
			wait = 0
		case <-r.b.draining:
			wait = 0
		case <-r.gone:
			forget()
			return out, &NotLeader{Shard: r.id}
		case <-ctx.Done():
			forget()
			return out, ctx.Err()
		}
		forget()
	}
})

// OperationList asks for a page of the operations below an id, newest first; a zero id starts at the newest.
type OperationList struct {
	OnShard
	ID    task.ID
	Limit int
}

// ListOperations lists operations. All of them live in the first shard.
var ListOperations = reads(verb.Rule{Name: "operations", Where: verb.FirstShard}, func(from store.Reader, scope task.Scope,
	q *OperationList) (out Paged[OperationPage], err error) {
	out.Page = operation.List(from, q.Namespace, scope, q.ID, q.Limit)
	return out, nil
})

const (
	// stepChunk bounds the tasks of one step: its entry holds up the shard's other calls for a few milliseconds.
	stepChunk = 200
	// maxStepPause bounds the pause after a step. The pause is twice the time of the step, so operations take a third of a shard's time.
	maxStepPause = 50 * time.Millisecond
	// stepRetry and stepLongRetry bound the pause before repeating a step that was not answered, or while moved tasks have not arrived.
	stepRetry     = 100 * time.Millisecond
	stepLongRetry = 5 * time.Second
	// stepPatience and stepLongPatience bound the time of a step before another shard is asked: twice that of the shard's last step.
	stepPatience     = time.Second
	stepLongPatience = time.Minute
)

// operationRunner runs the operations that live in a shard, while this node leads it.
type operationRunner struct {
	r    *replica
	wake chan struct{} // an operation was started or changed, or this node became leader
	mu   sync.Mutex
	runs map[task.ID]*operationRun
}

// operationRun is a running operation. Its fields except wake are guarded by operationRunner.mu.
type operationRun struct {
	wake     chan struct{}
	changed  bool // the operation was changed since its state was last read
	waitsFor string
}

func (s *operationRunner) view(o *Operation) OperationView {
	v := OperationView{Operation: o}
	if o != nil && o.State == OperationRunning {
		s.mu.Lock()
		defer s.mu.Unlock()
		if run := s.runs[o.ID]; run != nil {
			v.WaitsFor = run.waitsFor
		}
	}
	return v
}

// begin registers a run of an operation. If one is already running, it makes that one re-read its state and returns false.
func (s *operationRunner) begin(id task.ID) (*operationRun, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.runs[id]; run != nil {
		run.changed = true
		poke(run.wake)
		return run, false
	}
	if s.runs == nil {
		s.runs = map[task.ID]*operationRun{}
	}
	run := &operationRun{wake: make(chan struct{}, 1)}
	s.runs[id] = run
	return run, true
}

// beginRead must be called before an operation's state is read.
func (s *operationRunner) beginRead(run *operationRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.changed = false
}

// end forgets a run and returns true, unless the operation was changed since its state was read.
func (s *operationRunner) end(id task.ID, run *operationRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !run.changed {
		delete(s.runs, id)
	}
	return !run.changed
}

func (s *operationRunner) setWaitsFor(run *operationRun, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.waitsFor = why
}

// run starts the shard's operations whenever this node becomes its leader or there is a new one, until ctx ends.
func (s *operationRunner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		if !s.r.shard.Leads() {
			continue
		}
		running, _, err := read(ctx, s.r, func(from store.Reader) ([]operation.Ref, error) { return operation.ListRunning(from), nil })
		if err != nil && ctx.Err() == nil {
			sleep(ctx, stepRetry)
			poke(s.wake)
		}
		for _, o := range running {
			if run, begun := s.begin(o.ID); begun {
				s.r.work.Go(func() { s.runOperation(ctx, o.Namespace, o.ID, run) })
			}
		}
	}
}

// runOperation runs an operation step by step, until it is paused or ends, or this node no longer leads its home shard.
func (s *operationRunner) runOperation(ctx context.Context, ns string, id task.ID, run *operationRun) {
	pace := pace{at: time.Now()}
	retry, patience := stepRetry, map[uint32]time.Duration{}
	for {
		s.beginRead(run)
		o, _, err := read(ctx, s.r, func(from store.Reader) (*Operation, error) { return operation.Show(from, ns, id) })
		if err != nil && s.r.shard.Leads() && ctx.Err() == nil && !errors.Is(err, task.ErrNotFound) {
			sleep(ctx, stepRetry)
			continue
		}
		if err != nil || o.State != OperationRunning {
			if s.end(id, run) || ctx.Err() != nil {
				return
			}
			continue
		}
		room, soon := pace.room(o.Spec.Rate, time.Now())
		want := o.Wants(min(room, stepChunk))
		if want == 0 && o.Wants(1) > 0 {
			run.pause(ctx, soon)
			continue
		}
		began := time.Now()
		a, err := s.advance(ctx, ns, o, want, patience)
		switch {
		case err != nil: // the next iteration finds out whether this node still leads
			s.setWaitsFor(run, err.Error())
			pace.took(int64(want)) // it may have been done
			// run.wake must not cut this short: every dropped round wakes the run, and would cause the next at once.
			sleep(ctx, retry)
			retry = min(2*retry, stepLongRetry)
		case a.Matched == 0 && a.Away > 0:
			s.setWaitsFor(run, "tasks are on their way to the other queue")
			run.pause(ctx, retry)
			retry = min(2*retry, stepLongRetry)
		default:
			s.setWaitsFor(run, "")
			retry = stepRetry
			pace.took(a.Matched)
			sleep(ctx, min(2*time.Since(began), maxStepPause))
		}
	}
}

// pause waits for d, or until the operation is changed.
func (run *operationRun) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-run.wake:
	case <-timer.C:
	}
}

// advance runs a step in its shard and records the outcome: also an error that would recur on every retry, with which the operation fails,
// and a lack of an answer, with which it goes on to the next shard.
func (s *operationRunner) advance(ctx context.Context, ns string, o *Operation, want int, patience map[uint32]time.Duration) (StepAnswer,
	error) {
	asked, cancel, began := ctx, func() {}, time.Now()
	if o.CanPostpone() {
		asked, cancel = context.WithTimeout(ctx, min(max(patience[o.Shard], stepPatience), stepLongPatience))
	}
	a, err := s.r.b.cfg.RunStep(asked, o.Shard, ns, StepCall{Operation: o.ID, Step: o.Step, Action: o.Spec.Action, Filter: o.In(o.Shard),
		ToQueue: o.Spec.ToQueue, Priority: o.Spec.Priority, Cursor: o.Cursor, Swept: o.Swept, Count: want})
	if !o.Open || asked.Err() != nil { // a repeat may be answered at once by a slow shard
		patience[o.Shard] = 2 * time.Since(began)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = task.Unavailable(time.Second, "shard %d did not answer in time", o.Shard)
	}
	cancel()
	next := operation.Advance{Shard: o.Shard, Step: o.Step, Answer: a, Unanswered: err != nil}
	// operation.ErrStepPassed
	if refused, ok := task.AsError(err); ok && (refused.Code == task.CodeInvalidArgument || refused.Code == task.CodeConflict) {
		next.Unanswered, next.Failed, next.Answer, err = false, refused.Message, StepAnswer{Next: o.Cursor, Swept: o.Swept}, nil
	} else if err != nil && !o.CanPostpone() {
		return a, err
	} else if err != nil || a.Swept && a.Away == 0 {
		var lost error
		if next.Next, lost = s.nextShard(ctx, o.Last); lost != nil { // it goes on in a shard that was begun, and asks for this step again
			next.Unanswered, err = true, cmp.Or(err, lost)
		}
	}
	then, _, lost := change(ctx, s.r, func(round *engine.Round) (*Operation, error) { return operation.Advanced(round, ns, o.ID, next) })
	if lost == nil && then.State != OperationRunning {
		s.r.log.Info("operation "+then.State.String(), "operation_id", o.ID.String(), "action", string(o.Spec.Action),
			"matched", then.Matched, "done", then.Done, "skipped", then.SkippedCount(), "failed", then.Failed, "why", then.Why)
	}
	return a, cmp.Or(err, lost)
}

// nextShard returns the data shard after the given one, or 0 if there is none. Shards are numbered consecutively and are never removed.
func (s *operationRunner) nextShard(ctx context.Context, behind uint32) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLongRetry)
	defer cancel()
	exists, err := s.r.b.cfg.HasShard(ctx, behind+1)
	if errors.Is(err, context.DeadlineExceeded) {
		err = task.Unavailable(time.Second, "the system shard did not answer in time")
	}
	if err != nil || !exists {
		return 0, err
	}
	return behind + 1, nil
}

// pace limits an operation to its rate. Every new leader starts with a new pace, which has no tokens saved up.
type pace struct {
	tokens float64
	at     time.Time
}

// paceStep is the part of a second's tasks that one step takes, so that a high rate does not cause many small entries.
const paceStep = 0.25

// room returns how many tasks may be taken now; if none, it returns how soon some may be.
func (p *pace) room(rate float64, now time.Time) (n int64, soon time.Duration) {
	if rate == 0 {
		return stepChunk, 0
	}
	enough := max(1, rate*paceStep)
	p.tokens = min(p.tokens+rate*now.Sub(p.at).Seconds(), enough)
	p.at = now
	const whole = 1 - 1e-9 // tolerance for rounding errors
	if p.tokens < enough*whole {
		return 0, max(time.Duration((enough-p.tokens)/rate*float64(time.Second)), time.Millisecond)
	}
	return int64(p.tokens + 1e-9), 0
}

func (p *pace) took(n int64) { p.tokens -= float64(n) }
