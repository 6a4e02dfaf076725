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

// List goes over the dead letters of a queue, newest first, with their attempt logs. The filter's Queue is needed.
func (a DeadLetters) List(ctx context.Context, filter Filter) iter.Seq2[*pawltype.Task, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Task], error) {
		return a.ListPage(ctx, filter, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the dead letters.
func (a DeadLetters) ListPage(ctx context.Context, filter Filter, page pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
	f, err := filterProto(filter)
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list dead letters: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListDead, &pawlv1.ListDeadRequest{Filter: f, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list dead letters: %w", err)
	}
	return convert.Page(resp, convert.Task), nil
}

// ListPoisoned goes over the poisoned tasks of a queue, newest first, with their attempt logs. The filter's Queue is needed.
func (a DeadLetters) ListPoisoned(ctx context.Context, filter Filter) iter.Seq2[*pawltype.Task, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Task], error) {
		return a.ListPoisonedPage(ctx, filter, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPoisonedPage gives one page of the poisoned tasks.
func (a DeadLetters) ListPoisonedPage(ctx context.Context, filter Filter, page pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
	f, err := filterProto(filter)
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListPoisoned, &pawlv1.ListPoisonedRequest{Filter: f, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	return convert.Page(resp, convert.Task), nil
}

// DeadGroups are dead letters by type and message.
type DeadGroups struct {
	Groups  []DeadGroup // largest first, at most 1,000
	Partial bool        // there are more dead letters than one call reads
}

// DeadGroup are the dead letters of one fingerprint.
type DeadGroup struct {
	Fingerprint  string
	Type         string
	Message      string // with numbers and ids replaced
	Count        int64
	FirstAt      time.Time
	LastAt       time.Time
	SampleTaskID string
	Queues       int    // in how many
	Queue        string // the one with the most of them
	// Trend is how many of them ended in each of the last 24 hours, the oldest first: the last is the last 60 minutes. Who has left, by
	// replay or discard, is in none.
	Trend []int64
}

// Groups counts the dead letters of a queue, or of all with "", by fingerprint; with poisoned, the poisoned tasks.
func (a DeadLetters) Groups(ctx context.Context, queue string, poisoned bool) (*DeadGroups, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GroupDead, &pawlv1.GroupDeadRequest{Queue: queue, Poisoned: poisoned})
	if err != nil {
		return nil, fmt.Errorf("group dead letters of %q: %w", queue, err)
	}
	out := &DeadGroups{Partial: resp.GetPartial()}
	for _, p := range resp.GetGroups() {
		out.Groups = append(out.Groups, DeadGroup{
			Fingerprint: p.GetFingerprint(), Type: p.GetType(), Message: p.GetMessage(), Count: p.GetCount(),
			FirstAt: convert.Time(p.GetFirstAt()), LastAt: convert.Time(p.GetLastAt()), SampleTaskID: p.GetSampleTaskId(),
			Queues: int(p.GetQueues()), Queue: p.GetQueue(), Trend: p.GetTrend(),
		})
	}
	return out, nil
}

// DeadSelection says which dead letters of a queue Replay and Discard mean: by TaskIDs or by Filter.
type DeadSelection struct {
	Queue    string   // needed
	TaskIDs  []string // at most 1,000
	Filter   *Filter  // &Filter{} means all
	Max      int64    // 0: all that match
	Rate     float64  // of Replay: so many a second become due; 0: all at once
	DryRun   bool     // count only
	Poisoned bool     // of the poisoned tasks instead
	Reason   string
}

// DeadCount is what Replay or Discard did.
type DeadCount struct {
	Matched int64
	Done    int64 // 0 in a dry run
}

func (s DeadSelection) filter() (*pawlv1.Filter, error) {
	switch {
	case s.Filter != nil:
		return filterProto(*s.Filter)
	case len(s.TaskIDs) > 0:
		return nil, nil
	default:
		return nil, convert.Invalid("filter", "name TaskIDs or a Filter; &Filter{} means all")
	}
}

// Replay puts dead letters back into their queue, keeping id, idempotency key and attempt log.
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

// Discard drops dead letters; each is written to the archive first.
func (a DeadLetters) Discard(ctx context.Context, s DeadSelection) (DeadCount, error) {
	if s.Rate != 0 {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, convert.Invalid("rate", "is for ReplayDead only"))
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

// ArchivedTask is a dead letter in the archive.
type ArchivedTask struct {
	Task       *pawltype.Task
	ArchivedAt time.Time
	Cause      string // "retention", "discard", "purge"
	Place      string // file and line: what Restore takes
}

// Archive goes over the dead-letter archive, newest first; queue "" means all.
func (a DeadLetters) Archive(ctx context.Context, queue string) iter.Seq2[ArchivedTask, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[ArchivedTask], error) {
		return a.ArchivePage(ctx, queue, pawltype.PageRequest{Cursor: cursor})
	})
}

// ArchivePage gives one page of the archive.
func (a DeadLetters) ArchivePage(ctx context.Context, queue string, page pawltype.PageRequest) (pawltype.Page[ArchivedTask], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListArchive, &pawlv1.ListArchiveRequest{Queue: queue, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[ArchivedTask]{}, fmt.Errorf("list archive: %w", err)
	}
	return convert.Page(resp, func(p *pawlv1.ArchivedTask) ArchivedTask {
		return ArchivedTask{Task: convert.Task(p.GetTask()), ArchivedAt: convert.Time(p.GetArchivedAt()), Cause: p.GetCause(), Place: p.GetPlace()}
	}), nil
}

// RestoredTask is what became of one place of the archive.
type RestoredTask struct {
	Place     string
	TaskID    string // of the new task
	Duplicate bool   // an earlier call restored it already, as this task
	Err       error
}

// Restore enqueues archived dead letters again, as new tasks, at most 1,000 places at once. A dead letter comes back once: a repeat
// answers with the task that the first call made.
func (a DeadLetters) Restore(ctx context.Context, places ...string) ([]RestoredTask, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).RestoreArchive, &pawlv1.RestoreArchiveRequest{Places: places})
	if err != nil {
		return nil, fmt.Errorf("restore archive: %w", err)
	}
	var out []RestoredTask
	for _, p := range resp.GetResults() {
		r := RestoredTask{Place: p.GetPlace(), TaskID: p.GetTaskId(), Duplicate: p.GetDuplicate()}
		if p.GetError() != nil {
			r.Err = convert.Error(p.GetError())
		}
		out = append(out, r)
	}
	return out, nil
}
