package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The engine's words for steps of operations.
type (
	StepCall   = operation.StepCall
	StepAnswer = operation.StepAnswer
	Matches    = query.Matches
)

// OperateSome does a step of an operation in a shard, once: a repeat gets the same answer. Dead letters that it discards are archived
// first.
func (b *Broker) OperateSome(ctx context.Context, shardID uint32, ns string, c StepCall) (StepAnswer, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return StepAnswer{}, err
	}
	selected, _, err := read(ctx, r, func(from store.Reader) (operation.Selection, error) { return operation.SelectStep(from, ns, &c) })
	if err != nil {
		return StepAnswer{}, err
	}
	if selected.Before != nil {
		return *selected.Before, nil
	}
	if err := b.fileDead(&c, selected.Tasks); err != nil {
		return StepAnswer{}, err
	}
	a, err := r.doStep(ctx, ns, &c, selected)
	if a.Away > 0 {
		poke(r.toSend) // the operation waits for what lies there, and should not wait for the sender's next delivery
	}
	return a, err
}

// fileDead archives the dead letters that a step will drop.
func (b *Broker) fileDead(c *StepCall, tasks []operation.Selected) error {
	if c.Action != task.Discard {
		return nil
	}
	var dead []*View
	for _, t := range tasks {
		if t.State == task.Dead || t.State == task.Poisoned {
			dead = append(dead, t.View)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return b.file(causeDiscard, dead)
}

// doStep does a step in the shard, bringing it copies of queues that it lacks. A queue that lies in other shards by now is gone.
func (r *replica) doStep(ctx context.Context, ns string, c *StepCall, s operation.Selection) (StepAnswer, error) {
	try := func(gone []string) (StepAnswer, error) {
		a, _, err := change(ctx, r, func(round *engine.Round) (StepAnswer, error) { return operation.DoStep(round, ns, c, s, gone) })
		return a, err
	}
	a, err := try(nil)
	if !errors.Is(err, engine.ErrUnknownQueue) {
		return a, err
	}
	var queues, gone []string
	for _, t := range s.Tasks {
		if !slices.Contains(queues, t.Queue) {
			queues = append(queues, t.Queue)
		}
	}
	for _, q := range queues {
		switch err := r.b.cfg.EnsureQueue(ctx, r.id, ns, q); {
		case errors.Is(err, task.ErrUnavailable):
			return StepAnswer{}, err
		case err != nil:
			gone = append(gone, q)
		}
	}
	if a, err = try(gone); errors.Is(err, engine.ErrUnknownQueue) {
		err = task.Unavailable(time.Second, "shard %d: a queue was deleted at this moment", r.id)
	}
	return a, err
}

const (
	// countRows is how many rows are looked at between two looks at the clock.
	countRows = 5000
	// CountTime is how long the count of what an operation is to be for may take.
	CountTime = 2 * time.Second
)

// CountMatches counts the tasks of a shard that a filter selects, for about so long, and reads the newest. Matches.Next is set if there
// may be more than it had the time to count.
func (b *Broker) CountMatches(ctx context.Context, shardID uint32, ns string, f Filter, sample int, patience time.Duration) (n Matches, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return n, Stamp{}, err
	}
	f.Within = task.ScopeOf(ctx).Queues
	return read(ctx, r, func(from store.Reader) (n Matches, err error) {
		began := time.Now()
		for {
			more, err := query.CountMatches(from, ns, f, n.Next, countRows, sample-len(n.Sample))
			if err != nil {
				return n, err
			}
			n.Add(more)
			n.Next = more.Next
			if n.Next == nil || time.Since(began) >= patience || ctx.Err() != nil {
				return n, ctx.Err()
			}
		}
	})
}
