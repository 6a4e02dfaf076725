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
