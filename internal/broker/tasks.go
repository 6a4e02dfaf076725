package broker

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// TaskVerb is an operator's action on a task.
type TaskVerb string

const (
	Cancel  TaskVerb = "cancel"  // ends a task that has not ended
	Retry   TaskVerb = "retry"   // starts an ended task again, or runs the next attempt now
	RunNow  TaskVerb = "run"     // makes a scheduled or retrying task ready
	Discard TaskVerb = "discard" // ends a waiting task, or drops a dead letter, which is archived first
	Update  TaskVerb = "update"  // changes a waiting task
)

// TaskCommand is an operator's call on a task.
type TaskCommand struct {
	Verb TaskVerb
	Authored
	OnTask
	Edit   Edit         // of Update
	States []task.State // if there are any, the task must be in one of these
	// Message is the request id of the message by which another shard cancels the task with its group; zero: there is none.
	Message task.ID
}

// Pack replaces a nil payload by an empty one, since the wire could not distinguish nil from a payload that the edit leaves alone.
func (c *TaskCommand) Pack() {
	if c.Edit.Payload != nil && *c.Edit.Payload == nil {
		c.Edit.Payload = &[]byte{}
	}
}

// Unpack implements the wire's packer. There is nothing to restore.
func (c *TaskCommand) Unpack() {}

// OperateTask carries out an operator's call, records its author in the audit log, and returns the task.
var OperateTask = onReplica(verb.Rule{Name: "operate"}, func(ctx context.Context, r *replica, q *TaskCommand) (out Shown[*View],
	err error) {
	action, fn := q.act()
	if fn == nil { // the verb belongs to a newer release
		return out, &NotLeader{Shard: r.id}
	}
	if q.Verb == Discard {
		if fn, out.At, err = r.archiveThenDiscard(ctx, q); err != nil {
			return out, err
		}
	}
	do := inScope(ctx, q.within, func(round *engine.Round) (*View, error) {
		if err := actions.OnTask(round, q.By, action, q.Namespace, q.ID, func() error {
			if len(q.States) > 0 {
				x, err := round.Exec(q.Namespace, q.ID)
				if err == nil {
					err = q.checkState(x.State)
				}
				if err != nil {
					return err
				}
			}
			return fn(round)
		}); err != nil {
			return nil, err
		}
		return query.Show(round.State(), q.Namespace, q.ID)
	})
	run := change[*View]
	if q.Message != (task.ID{}) {
		run = changeWhenFree[*View]
	}
	out.View, out.At, err = run(ctx, r, do)
	if !errors.Is(err, engine.ErrUnknownQueue) {
		return out, err
	}
	old, at, err := r.b.Task(ctx, q.Namespace, q.ID, 0)
	if err != nil {
		return Shown[*View]{Stamped: Stamped{at}}, err
	}
	out.View, out.At, err = withQueues(ctx, r, q.Namespace, []string{old.Queue}, do)
	return out, err
})

// checkState refuses a task that is in none of the states, if there are any.
func (c *TaskCommand) checkState(s task.State) error {
	if len(c.States) > 0 && !slices.Contains(c.States, s) {
		refused := task.WrongState(string(c.Verb), c.ID, s)
		names := make([]string, len(c.States))
		for i, want := range c.States {
			names[i] = want.String()
		}
		refused.Message += ", not " + strings.Join(names, " or ")
		return refused
	}
	return nil
}

// act returns the name of the call in the audit log and the function that carries it out in a round. The function is
// nil if the verb is unknown.
func (c *TaskCommand) act() (task.Action, func(*engine.Round) error) {
	ns, id := c.Namespace, c.ID
	switch c.Verb {
	case Cancel:
		if c.Message != (task.ID{}) {
			return task.TaskCancelled, func(r *engine.Round) error { return engine.CancelOnce(r, ns, id, c.Message) }
		}
		return task.TaskCancelled, func(r *engine.Round) error { return engine.Cancel(r, ns, id) }
	case Retry:
		return task.TaskRetried, func(r *engine.Round) error { return engine.Retry(r, ns, id) }
	case RunNow:
		return task.TaskRunNow, func(r *engine.Round) error { return engine.RunNow(r, ns, id) }
	case Discard:
		return task.TaskDiscarded, func(r *engine.Round) error { return engine.Discard(r, ns, id, 0) }
	case Update:
		return task.TaskEdited, func(r *engine.Round) error { return engine.Update(r, ns, id, c.Edit) }
	}
	return "", nil
}

// archiveThenDiscard archives a task about to be discarded, if it is a dead letter. It returns a function that discards
// the task if it has not changed since.
func (r *replica) archiveThenDiscard(ctx context.Context, c *TaskCommand) (func(*engine.Round) error, Stamp, error) {
	v, at, err := r.b.Task(ctx, c.Namespace, c.ID, 0)
	if err == nil {
		err = c.checkState(v.Exec.State)
	}
	if err == nil && (v.Exec.State == task.Dead || v.Exec.State == task.Poisoned) {
		err = r.b.archiveDead(c.Namespace, causeDiscard, []*View{v})
	}
	if err != nil {
		return nil, at, err
	}
	return func(round *engine.Round) error { return engine.Discard(round, c.Namespace, c.ID, v.Exec.EndedAt) }, at, nil
}
