package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

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

// DeadGroups groups dead letters by type and message.
type DeadGroups struct {
	Groups  []DeadGroup // largest first, at most 1,000
	Partial bool        // there were more dead letters than one call reads
	Missing []pawltype.Missing
}

// DeadGroup counts the dead letters with one fingerprint.
type DeadGroup struct {
	Fingerprint  string
	Type         string
	Message      string // with numbers and ids replaced
	Count        int64
	FirstAt      time.Time
	LastAt       time.Time
	SampleTaskID string
	Queues       int    // number of queues they are in
	Queue        string // the queue with the most of them
	// Trend counts how many of them ended in each of the last 24 hours, oldest first; the last element is the past 60
	// minutes. Dead letters that have since been replayed or discarded are not counted.
	Trend []int64
}

// Groups counts the dead letters of a queue by fingerprint, or with poisoned its poisoned tasks. Queue "" means all queues.
func (a DeadLetters) Groups(ctx context.Context, queue string, poisoned bool) (*DeadGroups, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GroupDead,
		&pawlv1.GroupDeadRequest{Queue: convert.Text(queue), Poisoned: poisoned})
	if err != nil {
		return nil, fmt.Errorf("group dead letters of %q: %w", queue, err)
	}
	out := &DeadGroups{Partial: resp.GetPartial(), Missing: convert.Missing(resp.GetMissing())}
	for _, p := range resp.GetGroups() {
		out.Groups = append(out.Groups, DeadGroup{
			Fingerprint: p.GetFingerprint(), Type: p.GetType(), Message: p.GetMessage(), Count: p.GetCount(),
			FirstAt: convert.Time(p.GetFirstAt()), LastAt: convert.Time(p.GetLastAt()), SampleTaskID: p.GetSampleTaskId(),
			Queues: int(p.GetQueues()), Queue: p.GetQueue(), Trend: p.GetTrend(),
		})
	}
	return out, nil
}
