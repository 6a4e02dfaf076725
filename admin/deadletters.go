package admin

import (
	"context"
	"fmt"
	"iter"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// List iterates over a queue's dead letters, newest first, with their attempt logs. The filter's Queue is required.
func (a DeadLetters) List(ctx context.Context, filter Filter) iter.Seq2[*pawltype.Task, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Task], error) {
		return a.ListPage(ctx, filter, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of dead letters.
func (a DeadLetters) ListPage(ctx context.Context, filter Filter, page pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
	f, err := filterProto(filter)
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list dead letters: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListDead, &pawlv1.ListDeadRequest{Filter: f,
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list dead letters: %w", err)
	}
	return convert.Page(resp, convert.Task), nil
}

// ListPoisoned iterates over a queue's poisoned tasks, newest first, with their attempt logs. The filter's Queue is required.
func (a DeadLetters) ListPoisoned(ctx context.Context, filter Filter) iter.Seq2[*pawltype.Task, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Task], error) {
		return a.ListPoisonedPage(ctx, filter, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPoisonedPage returns one page of poisoned tasks.
func (a DeadLetters) ListPoisonedPage(ctx context.Context, filter Filter, page pawltype.PageRequest) (pawltype.Page[*pawltype.Task],
	error) {
	f, err := filterProto(filter)
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListPoisoned, &pawlv1.ListPoisonedRequest{Filter: f,
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	return convert.Page(resp, convert.Task), nil
}

// Groups counts the dead letters of a queue by fingerprint, or with poisoned its poisoned tasks. Queue "" means all queues.
func (a DeadLetters) Groups(ctx context.Context, queue string, poisoned bool) (*DeadGroups, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GroupDead,
		&pawlv1.GroupDeadRequest{Queue: convert.Text(queue), Poisoned: poisoned})
	return answer(deadGroupsOf, resp, err, "group dead letters of %q", queue)
}

// DeadSelection selects dead letters of a queue for Replay and Discard, either by TaskIDs or by Filter.
type DeadSelection struct {
	Queue    string   // required
	TaskIDs  []string // at most 1,000
	Filter   *Filter  // AllTasks() means all of the queue
	Max      int64    // 0: all that match
	Rate     float64  // Replay only: tasks per second that become due; 0: all immediately
	DryRun   bool     // count only
	Poisoned bool     // select poisoned tasks instead
	Reason   string
}

// DeadCount is the result of Replay or Discard.
type DeadCount struct {
	Matched int64
	Done    int64 // 0 in a dry run
}

func (s DeadSelection) filter() (*pawlv1.Filter, error) {
	switch {
	case s.Filter != nil:
		return changeProto(s.Filter)
	case len(s.TaskIDs) > 0:
		return nil, nil
	default:
		return nil, convert.Invalid("filter", "set TaskIDs or Filter; AllTasks() means all")
	}
}

// Replay puts dead letters back into their queue. They keep their id, idempotency key and attempt log.
func (a DeadLetters) Replay(ctx context.Context, s DeadSelection) (DeadCount, error) {
	f, err := s.filter()
	if err != nil {
		return DeadCount{}, fmt.Errorf("replay dead letters of %q: %w", s.Queue, err)
	}
	resp, err := operate(ctx, a.calls, s.DryRun, pawlv1.NewOperatorServiceClient(a.rpc).ReplayDead, &pawlv1.ReplayDeadRequest{
		Queue: s.Queue, TaskIds: s.TaskIDs, Filter: f, Max: s.Max, Rate: s.Rate, DryRun: s.DryRun, Poisoned: s.Poisoned, Reason: s.Reason,
	})
	if err != nil {
		return DeadCount{}, fmt.Errorf("replay dead letters of %q: %w", s.Queue, err)
	}
	return DeadCount{Matched: resp.GetMatched(), Done: resp.GetReplayed()}, nil
}

// Discard deletes dead letters, after writing each to the archive.
func (a DeadLetters) Discard(ctx context.Context, s DeadSelection) (DeadCount, error) {
	if s.Rate != 0 {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, convert.Invalid("rate", "applies to Replay only"))
	}
	f, err := s.filter()
	if err != nil {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, err)
	}
	resp, err := operate(ctx, a.calls, s.DryRun, pawlv1.NewOperatorServiceClient(a.rpc).DiscardDead, &pawlv1.DiscardDeadRequest{
		Queue: s.Queue, TaskIds: s.TaskIDs, Filter: f, Max: s.Max, DryRun: s.DryRun, Poisoned: s.Poisoned, Reason: s.Reason,
	})
	if err != nil {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, err)
	}
	return DeadCount{Matched: resp.GetMatched(), Done: resp.GetDiscarded()}, nil
}
