package broker

import (
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

// The engine's words for operations.
type (
	Operation     = operation.Operation
	OperationSpec = operation.Spec
	OperationPage = operation.Page
	Tally         = operation.Tally
	ShardTime     = operation.ShardTime
	Skipped       = operation.Skipped
	TaskError     = operation.TaskError
)

// The states of operations that others ask for.
const (
	OperationRunning = operation.Running
	OperationPaused  = operation.Paused
	OperationAborted = operation.Aborted
	OperationFailed  = operation.Failed
)

// OperationView is an operation, and what only the leader of its home knows.
type OperationView struct {
	*Operation
	WaitsFor string // why it does not get on now; "": it does
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
	Spec OperationSpec
}

// All of these verbs are idempotent: the id of the request shows that an operation has already been started.

// StartOperation makes an operation that lives in a shard, and runs from now on. Its id is given here.
var StartOperation = onReplica(verb.Rule{Name: "start-operation", Idempotent: true}, func(ctx context.Context, r *replica, q *NewOperation) (Shown[OperationView], error) {
	spec, id := q.Spec, r.newID()
	spec.Filter.Within = task.ScopeOf(ctx).Queues
	return r.steer(ctx, func(round *engine.Round) (*Operation, error) { return operation.Start(round, q.Namespace, id, spec) })
})

// OperationOrder is an operator's call on an operation.
type OperationOrder struct {
	OnOperation
	By task.Author // it is noted with the operation
}

// PauseOperation pauses an operation once its current step has been answered. ResumeOperation continues it from there, and
// AbortOperation ends it once its current step has been answered.
var (
	PauseOperation  = steers("pause-operation", operation.Pause)
	ResumeOperation = steers("resume-operation", operation.Resume)
	AbortOperation  = steers("abort-operation", operation.Abort)
)

func steers(name string, do func(*engine.Round, string, task.ID, task.Author) (*Operation, error)) *verb.Verb[OperationOrder, Shown[OperationView]] {
	return onReplica(verb.Rule{Name: name, Idempotent: true}, func(ctx context.Context, r *replica, q *OperationOrder) (Shown[OperationView], error) {
		return r.steer(ctx, inScope(ctx, q.within, func(round *engine.Round) (*Operation, error) { return do(round, q.Namespace, q.ID, q.By) }))
	})
}

func (r *replica) steer(ctx context.Context, verb func(*engine.Round) (*Operation, error)) (Shown[OperationView], error) {
	o, at, err := change(ctx, r, verb)
	return Shown[OperationView]{r.operations.view(o), Stamped{at}}, err
}

// OperationWait is a look at an operation that waits until it does not run any more.
type OperationWait struct {
	OnOperation
	Wait time.Duration
}

// Waits implements verb.Waiting.
func (o *OperationWait) Waits() *time.Duration { return &o.Wait }

// ShowOperation reads an operation, waiting up to Wait until it does not run any more.
var ShowOperation = onReplica(verb.Rule{Name: "operation", Idempotent: true}, func(ctx context.Context, r *replica, q *OperationWait) (out Shown[OperationView], err error) {
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
			return out, &Elsewhere{Shard: r.id}
		case <-ctx.Done():
			forget()
			return out, ctx.Err()
		}
		forget()
	}
})

// OperationList is a page of the operations below an id, the newest first; a zero id: from the newest.
type OperationList struct {
	OnShard
	ID    task.ID
	Limit int
}

// ListOperations reads operations, which all live in the first shard.
var ListOperations = reads(verb.Rule{Name: "operations", Where: verb.FirstShard}, func(from store.Reader, scope task.Scope, q *OperationList) (out Paged[OperationPage], err error) {
	out.Page = operation.List(from, q.Namespace, scope, q.ID, q.Limit)
	return out, nil
})

const (
	// stepChunk bounds the tasks of one step: its entry holds up the shard's other calls for a few milliseconds.
	stepChunk = 200
	// stepRest bounds the pause after a step, of twice the time that it took: so operations take a third of a shard's time.
	stepRest = 50 * time.Millisecond
	// stepRetry and stepLongRetry bound the pause before a step is asked for again that nobody answered, or while what was sent away
	// has not arrived.
	stepRetry     = 100 * time.Millisecond
	stepLongRetry = 5 * time.Second
)

// operations are those of a shard that run here.
type operations struct {
	wake chan struct{} // one was started or steered, or this node began to lead
	mu   sync.Mutex
	runs map[task.ID]*operationRun
}

// operationRun is one that runs. Its fields but wake are guarded by operations.mu.
type operationRun struct {
	wake     chan struct{}
	again    bool // it was steered since it looked last
	waitsFor string
}

func (s *operations) view(o *Operation) OperationView {
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

// begin notes that an operation is to run; false if it does already, and then it looks again at what is wanted of it.
func (s *operations) begin(id task.ID) (*operationRun, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.runs[id]; run != nil {
		run.again = true
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

// look is called before an operation is looked at.
func (s *operations) look(run *operationRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.again = false
}

// end forgets a run, unless the operation was steered since it was looked at.
func (s *operations) end(id task.ID, run *operationRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !run.again {
		delete(s.runs, id)
	}
	return !run.again
}

func (s *operations) waits(run *operationRun, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.waitsFor = why
}

// operate runs the operations that live in the shard, while this node leads it.
func (r *replica) operate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.operations.wake:
		}
		running, err := r.runningOperations(ctx)
		if err != nil && ctx.Err() == nil {
			sleep(ctx, stepRetry)
			poke(r.operations.wake)
		}
		for _, o := range running {
			if run, begun := r.operations.begin(o.ID); begun {
				r.work.Go(func() { r.runOperation(ctx, o.Namespace, o.ID, run) })
			}
		}
	}
}

// runningOperations is empty on a node that does not lead.
func (r *replica) runningOperations(ctx context.Context) ([]operation.Ref, error) {
	if !r.shard.Leads() {
		return nil, nil
	}
	running, _, err := read(ctx, r, func(from store.Reader) ([]operation.Ref, error) {
		return operation.ListRunning(from), nil
	})
	return running, err
}

// runOperation takes an operation from step to step, until it rests or ends, or this node does not lead its home any more.
func (r *replica) runOperation(ctx context.Context, ns string, id task.ID, run *operationRun) {
	pace := pace{at: time.Now()}
	retry := stepRetry
	for {
		r.operations.look(run)
		o, _, err := read(ctx, r, func(from store.Reader) (*Operation, error) {
			o, err := operation.Show(from, ns, id)
			if err == nil && !task.ScopeOf(ctx).Covers(o.Scope()) {
				return nil, task.NotFound("operation", id.String())
			}
			return o, err
		})
		if err != nil && r.mayGoOn(ctx, err) {
			sleep(ctx, stepRetry)
			continue
		}
		if err != nil || o.State != OperationRunning {
			if r.operations.end(id, run) || ctx.Err() != nil {
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
		a, err := r.advance(ctx, ns, o, want)
		switch {
		case err != nil: // the next look says whether this node still leads
			r.operations.waits(run, err.Error())
			sleep(ctx, retry) // nobody's wake ends it: each round that is thrown away wakes the run, and would bring the next one
			retry = min(2*retry, stepLongRetry)
		case a.Matched == 0 && a.Away > 0:
			r.operations.waits(run, "tasks are on their way to the other queue")
			run.pause(ctx, retry)
			retry = min(2*retry, stepLongRetry)
		default:
			r.operations.waits(run, "")
			retry = stepRetry
			pace.took(a.Matched)
			sleep(ctx, min(2*time.Since(began), stepRest))
		}
	}
}

// mayGoOn says whether what failed may be tried again here: not on a node that stops, or does not lead.
func (r *replica) mayGoOn(ctx context.Context, err error) bool {
	if !r.shard.Leads() || ctx.Err() != nil {
		return false
	}
	return !errors.Is(err, task.ErrNotFound)
}

// pause waits, but not longer than until the operation is steered.
func (run *operationRun) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-run.wake:
	case <-timer.C:
	}
}

// advance has a step done in its shard, and notes what came of it. An error that a repeat would meet again is noted too: then the
// operation has failed.
func (r *replica) advance(ctx context.Context, ns string, o *Operation, want int) (StepAnswer, error) {
	a, err := r.b.cfg.Operate(ctx, o.Shard, ns, StepCall{Operation: o.ID, Step: o.Step, Action: o.Spec.Action, Filter: o.In(o.Shard), ToQueue: o.Spec.ToQueue,
		Priority: o.Spec.Priority, Cursor: o.Cursor, Swept: o.Swept, Count: want})
	next := operation.Advance{Step: o.Step, Answer: a}
	if refused, ok := task.AsError(err); ok && refused.Code == task.CodeInvalidArgument {
		next.Failed, next.Answer = refused.Message, StepAnswer{Next: o.Cursor, Swept: o.Swept}
	} else if err == nil && a.Swept && a.Away == 0 {
		next.Next, err = r.nextShard(ctx, o.Shard)
	}
	if err != nil && next.Failed == "" {
		return a, err
	}
	then, _, err := change(ctx, r, func(round *engine.Round) (*Operation, error) {
		return operation.Advanced(round, ns, o.ID, next)
	})
	if err == nil && then.State != OperationRunning {
		r.log.Info("operation "+then.State.String(), "operation_id", o.ID.String(), "action", string(o.Spec.Action), "matched", then.Matched,
			"done", then.Done, "skipped", then.Passed(), "failed", then.Failed, "why", then.Why)
	}
	return a, err
}

// nextShard is the data shard behind one, 0 if there is none: they are numbered one after another, and none goes away.
func (r *replica) nextShard(ctx context.Context, behind uint32) (uint32, error) {
	exists, err := r.b.cfg.HasShard(ctx, behind+1)
	if err != nil || !exists {
		return 0, err
	}
	return behind + 1, nil
}

// pace keeps an operation to its rate. It is made anew by each leader, and then has nothing saved up.
type pace struct {
	tokens float64
	at     time.Time
}

// paceStep is how much of a second's tasks a step takes, so that a high rate does not make many small entries.
const paceStep = 0.25

// room is how many tasks may be taken now, and if none how soon some may be.
func (p *pace) room(rate float64, now time.Time) (n int64, soon time.Duration) {
	if rate == 0 {
		return stepChunk, 0
	}
	enough := max(1, rate*paceStep)
	p.tokens = min(p.tokens+rate*now.Sub(p.at).Seconds(), enough)
	p.at = now
	const whole = 1 - 1e-9 // what the arithmetic loses
	if p.tokens < enough*whole {
		return 0, max(time.Duration((enough-p.tokens)/rate*float64(time.Second)), time.Millisecond)
	}
	return int64(p.tokens + 1e-9), 0
}

func (p *pace) took(n int64) { p.tokens -= float64(n) }
