package operation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A step of an operation is what one shard does for it in one log entry. Its tasks are selected by a read, so that the
// shard's other calls don't wait for the search; the entry then acts on those that have not changed meanwhile, and
// records the step.

// StepCall asks a shard to do a step.
type StepCall struct {
	Operation task.ID
	Step      uint64
	Action    task.BulkAction
	Filter    query.Filter
	ToQueue   string
	Priority  task.Priority
	Cursor    []byte
	Swept     bool // the shard has been searched to the end
	Count     int  // maximum number of tasks; 0: none, unless the step was done before
}

// StepAnswer is the outcome of a step.
type StepAnswer struct {
	Tally        // what is new since the last step
	Next  []byte // where the next step begins
	Swept bool   // the shard has been searched to the end
	Away  int64  // tasks that were sent away and have not arrived yet
}

// ErrStepPassed means that a later step was done already: the call was delayed, and another caller has continued the operation. Or the home
// was recovered from an older state than the shard: only then is the step the next one of the operation, which fails.
var ErrStepPassed = &task.Error{Code: task.CodeConflict, Message: "a later step of the operation has already been done"}

// Selected is a task selected for a step.
type Selected struct {
	ID    task.ID
	State task.State
	Ended store.Time
	Queue string
	View  *query.View // set for dead letters and tasks to move, whose size counts
}

// Selection is the result of SelectStep.
type Selection struct {
	Before *StepAnswer // set if the step was done already: its answer
	Tasks  []Selected
	Next   []byte
	Swept  bool
}

// maxAway bounds the tasks of an operation that are on their way from a shard: with that many, a step takes no more.
const maxAway = 1000

// stepEffort bounds the search of a step: there are many steps, so each reads few index rows.
var stepEffort = query.BudgetOf(50_000, 20_000)

// SelectStep selects the tasks of a step.
func SelectStep(from store.Reader, ns string, c *StepCall) (s Selection, err error) {
	known, _ := readStep(from, ns, c.Operation)
	switch {
	case known.step > c.Step:
		return s, ErrStepPassed
	case known.step == c.Step:
		return Selection{Before: &known.answer}, nil
	}
	s.Next, s.Swept = c.Cursor, c.Swept
	if c.Count == 0 || c.Swept || known.away >= maxAway {
		return s, nil
	}
	m := schema.Count(from)
	reach, err := c.Filter.Walk(from, ns, c.Cursor, stepEffort, func(id task.ID, x *schema.Exec) bool {
		t := Selected{ID: id, State: x.State, Ended: x.EndedAt, Queue: x.Queue}
		if x.State == task.Dead || x.State == task.Poisoned || c.Action == task.Move {
			t.View = query.ShowFrom(m, ns, id, x)
		}
		s.Tasks = append(s.Tasks, t)
		return len(s.Tasks) < c.Count && !m.Full()
	})
	s.Next, s.Swept = reach.Next, reach.Next == nil
	return s, err
}

// DoStep does a step with the selected tasks. Gone lists deleted queues, which must not be created again. If the shard
// lacks any other queue it needs, DoStep returns ErrUnknownQueue and does nothing.
func DoStep(r *engine.Round, ns string, c *StepCall, s Selection, gone []string) (StepAnswer, error) {
	known, ok := readStep(r.Tx(), ns, c.Operation)
	switch {
	case known.step == c.Step:
		return known.answer, nil
	case known.step > c.Step:
		return StepAnswer{}, ErrStepPassed
	}
	for _, t := range s.Tasks {
		if c.Action == task.Replay && !slices.Contains(gone, t.Queue) && r.Queue(ns, t.Queue) == nil {
			return StepAnswer{}, engine.ErrUnknownQueue
		}
	}
	if !ok {
		known.until = r.Now().Add(task.StepWindow)
		r.SetDeadline(known.until, schema.OnStep, ns, c.Operation[:])
	}
	a := StepAnswer{Tally: known.arrived, Next: s.Next, Swept: s.Swept}
	known.arrived = Tally{}
	ids := make([]task.ID, len(s.Tasks))
	for i, t := range s.Tasks {
		ids[i] = t.ID
	}
	r.Warm(ns, ids)
	for _, t := range s.Tasks {
		a.Matched++
		skip, err := operate(r, ns, c, t, gone)
		switch {
		case err != nil:
			a.fail(t.ID, err.Error())
		case skip != "":
			a.skip(skip, 1)
		case c.Action == task.Move:
			known.away++ // it counts as done when it has arrived
		default:
			a.Done++
		}
	}
	a.Away = known.away
	known.step, known.at, known.answer = c.Step, r.Now(), a
	setStep(r, ns, c.Operation, known)
	return a, nil
}

// operate acts on one task, or returns the reason why it is skipped.
func operate(r *engine.Round, ns string, c *StepCall, t Selected, gone []string) (skip string, err error) {
	x, err := r.Exec(ns, t.ID)
	switch {
	case err != nil, x.State != t.State, x.EndedAt != t.Ended:
		return task.SkipChanged, nil
	case c.Action == task.Replay && slices.Contains(gone, t.Queue):
		return task.SkipQueueGone, nil
	case c.Action == task.Replay && x.Reason == task.ReasonMoved:
		return task.SkipMoved, nil
	case c.Action == task.Move && x.Links != nil:
		return task.SkipInWorkflow, nil
	case c.Action == task.SetPriority && x.Priority == c.Priority:
		return task.SkipSame, nil
	}
	if c.Action == task.Replay && uniqueKeyTaken(r, ns, x) {
		return task.SkipUniqueKey, nil
	}
	err = r.ChangedBy(c.Operation, t.ID, func() error { return act(r, ns, c, t, x) })
	if errors.Is(err, task.ErrWrongState) {
		return task.SkipChanged, nil
	}
	return "", err
}

// uniqueKeyTaken reports whether another task holds the unique key of a task to replay, or may hold it in another shard.
func uniqueKeyTaken(r *engine.Round, ns string, x *schema.Exec) bool {
	_, taken := unique.Taken(r, ns, x)
	q := r.Queue(ns, x.Queue)
	return taken || q != nil && x.State.Ended() && unique.Elsewhere(q.Config(), x)
}

// act applies the operation's action to one task.
func act(r *engine.Round, ns string, c *StepCall, t Selected, x *schema.Exec) error {
	switch c.Action {
	case task.Replay:
		return engine.Retry(r, ns, t.ID)
	case task.Cancel:
		return engine.Cancel(r, ns, t.ID)
	case task.Discard:
		return engine.Discard(r, ns, t.ID, t.Ended)
	case task.Move:
		moveAway(r, ns, c, t, x)
		return nil
	case task.SetPriority:
		return engine.Update(r, ns, t.ID, engine.Edit{Priority: c.Priority})
	case task.RunNow:
		return engine.RunNow(r, ns, t.ID)
	}
	schema.Damaged(fmt.Errorf("operation %s has action %q", c.Operation, c.Action))
	return nil
}

// stepRow records the last step of a shard for an operation.
type stepRow struct {
	step    uint64
	answer  StepAnswer
	at      store.Time
	until   store.Time // the deadline that is set
	away    int64      // tasks that were sent to another queue and have not arrived yet
	arrived Tally      // outcomes of those tasks since the last step
}

// readStep reads the last step for an operation. Its number is 0 if there was none.
func readStep(from store.Reader, ns string, operation task.ID) (*stepRow, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableStep, operation))
	if !ok {
		return &stepRow{}, false
	}
	return schema.Must(decodeStep(row)), true
}

func setStep(r *engine.Round, ns string, operation task.ID, s *stepRow) {
	r.Tx().Set(schema.IDKey(ns, schema.TableStep, operation), s.encode())
}

// stepEnds deletes the last step of an operation that has not requested any for long.
func stepEnds(r *engine.Round, d schema.Deadline) {
	id := d.ID()
	s, ok := readStep(r.Tx(), d.Namespace, id)
	if !ok || s.until != d.At {
		return
	}
	if until := s.at.Add(task.StepWindow); until > r.Now() || s.away > 0 {
		s.until = max(until, r.Now().Add(time.Hour))
		r.SetDeadline(s.until, schema.OnStep, d.Namespace, id[:])
		setStep(r, d.Namespace, id, s)
		return
	}
	r.Tx().Delete(schema.IDKey(d.Namespace, schema.TableStep, id))
}
