package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Types of the engine for steps of operations.
type (
	StepCall   = operation.StepCall
	StepAnswer = operation.StepAnswer
	Matches    = query.Matches
)

// StepOrder asks a shard to run a step of an operation.
type StepOrder struct {
	OnShard
	Step StepCall
}

// StepDone is the result of a step.
type StepDone struct{ Step StepAnswer }

// RunStep runs a step of an operation in a shard exactly once: a repeat returns the same answer. It goes on when the caller no longer
// waits, and a repeat meanwhile waits for the same run.
var RunStep = onReplica(verb.Rule{Name: "operate-some", Idempotent: true}, func(ctx context.Context, r *replica,
	q *StepOrder) (out StepDone, err error) {
	ns, c := q.Namespace, q.Step
	ran := r.steps.DoChan(fmt.Sprint(c.Operation, c.Step), func() (any, error) {
		if r.enter() {
			defer r.work.Done()
			if a, err := r.runStep(ns, &c); err == nil || r.ctx.Err() == nil {
				return a, err
			}
		}
		return nil, &NotLeader{Shard: r.id}
	})
	select {
	case <-ctx.Done():
		return out, ctx.Err()
	case done := <-ran:
		out.Step, _ = done.Val.(StepAnswer)
		return out, done.Err
	}
})

// runStep selects the tasks of a step and runs it. Dead letters that it discards are archived first.
func (r *replica) runStep(ns string, c *StepCall) (a StepAnswer, err error) {
	selected, _, err := read(r.ctx, r, func(from store.Reader) (operation.Selection, error) { return operation.SelectStep(from, ns, c) })
	if err != nil {
		return a, err
	}
	if selected.Before != nil {
		return *selected.Before, nil
	}
	var dead []*View
	for _, t := range selected.Tasks {
		if c.Action == task.Discard && (t.State == task.Dead || t.State == task.Poisoned) {
			dead = append(dead, t.View)
		}
	}
	if len(dead) > 0 {
		if err := r.b.archiveDead(ns, causeDiscard, dead); err != nil {
			return a, err
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, stepLongPatience) // another node may never answer, and the repeats wait for this run
	defer cancel()
	if a, err = r.doStep(ctx, ns, c, selected); a.Away > 0 {
		poke(r.sender.wake) // the operation waits for these tasks, and should not have to wait for the sender's next round
	}
	return a, err
}

// doStep runs a step in the shard, fetching copies of missing queues. A queue that is in other shards by now counts as gone.
func (r *replica) doStep(ctx context.Context, ns string, c *StepCall, s operation.Selection) (StepAnswer, error) {
	try := func(gone []string) (StepAnswer, error) {
		a, _, err := changeWhenFree(ctx, r, func(round *engine.Round) (StepAnswer, error) {
			return operation.DoStep(round, ns, c, s, gone)
		})
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
		case errors.Is(err, task.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return StepAnswer{}, err
		case err != nil:
			gone = append(gone, q)
		}
	}
	if a, err = try(gone); errors.Is(err, engine.ErrUnknownQueue) {
		err = task.Unavailable(time.Second, "shard %d: a queue was deleted during the call", r.id)
	}
	return a, err
}

const (
	// countRows is how many rows are read between two checks of the clock.
	countRows = 5000
	// CountTime bounds the time to count the tasks that an operation would match.
	CountTime = verb.PartTime / 2
)

// MatchCount asks how many tasks of a shard a filter selects, and for up to Limit of the newest. Wait bounds the time to count.
type MatchCount struct {
	OnShard
	Filter Filter
	Limit  int
	Wait   time.Duration
}

// MatchesCounted holds the count and the newest tasks. Matches.Next is set if time ran out before all were counted.
type MatchesCounted struct {
	Matches Matches
	verb.Lack
	Stamped
}

// CountMatches counts the tasks of all shards that a filter selects, and reads some of the newest.
var CountMatches = onReplica(verb.Rule{Name: "count-matches", Idempotent: true}, func(ctx context.Context, r *replica,
	q *MatchCount) (out MatchesCounted, err error) {
	f := q.Filter
	f.Within = task.ScopeOf(ctx).Queues
	out.Matches, out.At, err = read(ctx, r, func(from store.Reader) (n Matches, err error) {
		began := time.Now()
		for {
			more, err := query.CountMatches(from, q.Namespace, f, n.Next, countRows, q.Limit-len(n.Sample))
			if err != nil {
				return n, err
			}
			n.Add(more)
			n.Next = more.Next
			if n.Next == nil || time.Since(began) >= q.Wait || ctx.Err() != nil {
				return n, ctx.Err()
			}
		}
	})
	return out, err
}).Merged(func(q *MatchCount, parts []MatchesCounted) (out MatchesCounted, err error) {
	n := &out.Matches
	for i := range parts {
		n.Add(parts[i].Matches)
		if next := parts[i].Matches.Next; next != nil {
			n.Next = next
		}
	}
	slices.SortFunc(n.Sample, func(a, b *View) int { return b.ID.Compare(a.ID) })
	n.Sample = n.Sample[:min(len(n.Sample), q.Limit)]
	return out, nil
})
