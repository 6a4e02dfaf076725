package pawl

import (
	"context"
	"fmt"
	"iter"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Dead goes over the dead letters of a queue, newest first, with their attempt logs. The filter's Queue is needed.
func (a Admin) Dead(ctx context.Context, filter Filter) iter.Seq2[*TaskInfo, error] {
	return pages(func(cursor string) (Page[*TaskInfo], error) {
		return a.DeadPage(ctx, filter, PageRequest{Cursor: cursor})
	})
}

// DeadPage gives one page of the dead letters.
func (a Admin) DeadPage(ctx context.Context, filter Filter, page PageRequest) (Page[*TaskInfo], error) {
	f, err := filter.proto()
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list dead letters: %w", err)
	}
	resp, err := operate(ctx, a, true, a.client.operator.ListDead, &pawlv1.ListDeadRequest{Filter: f, Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list dead letters: %w", err)
	}
	return pageOf(resp, infoOf), nil
}

// Poisoned goes over the poisoned tasks of a queue, newest first, with their attempt logs. The filter's Queue is needed.
func (a Admin) Poisoned(ctx context.Context, filter Filter) iter.Seq2[*TaskInfo, error] {
	return pages(func(cursor string) (Page[*TaskInfo], error) {
		return a.PoisonedPage(ctx, filter, PageRequest{Cursor: cursor})
	})
}

// PoisonedPage gives one page of the poisoned tasks.
func (a Admin) PoisonedPage(ctx context.Context, filter Filter, page PageRequest) (Page[*TaskInfo], error) {
	f, err := filter.proto()
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	resp, err := operate(ctx, a, true, a.client.operator.ListPoisoned, &pawlv1.ListPoisonedRequest{Filter: f, Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list poisoned tasks: %w", err)
	}
	return pageOf(resp, infoOf), nil
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

// GroupDead counts the dead letters of a queue, or of all with "", by fingerprint; with poisoned, the poisoned tasks.
func (a Admin) GroupDead(ctx context.Context, queue string, poisoned bool) (*DeadGroups, error) {
	resp, err := operate(ctx, a, true, a.client.operator.GroupDead, &pawlv1.GroupDeadRequest{Queue: queue, Poisoned: poisoned})
	if err != nil {
		return nil, fmt.Errorf("group dead letters of %q: %w", queue, err)
	}
	out := &DeadGroups{Partial: resp.GetPartial()}
	for _, p := range resp.GetGroups() {
		out.Groups = append(out.Groups, DeadGroup{
			Fingerprint: p.GetFingerprint(), Type: p.GetType(), Message: p.GetMessage(), Count: p.GetCount(),
			FirstAt: timeOf(p.GetFirstAt()), LastAt: timeOf(p.GetLastAt()), SampleTaskID: p.GetSampleTaskId(),
			Queues: int(p.GetQueues()), Queue: p.GetQueue(), Trend: p.GetTrend(),
		})
	}
	return out, nil
}

// DeadSelection says which dead letters of a queue ReplayDead and DiscardDead mean: by TaskIDs or by Filter.
type DeadSelection struct {
	Queue    string   // needed
	TaskIDs  []string // at most 1,000
	Filter   *Filter  // &Filter{} means all
	Max      int64    // 0: all that match
	Rate     float64  // ReplayDead: so many a second become due; 0: all at once
	DryRun   bool     // count only
	Poisoned bool     // of the poisoned tasks instead
	Reason   string
}

// DeadCount is what ReplayDead or DiscardDead did.
type DeadCount struct {
	Matched int64
	Done    int64 // 0 in a dry run
}

func (s DeadSelection) filter() (*pawlv1.Filter, error) {
	switch {
	case s.Filter != nil:
		return s.Filter.proto()
	case len(s.TaskIDs) > 0:
		return nil, nil
	default:
		return nil, invalid("filter", "name TaskIDs or a Filter; &Filter{} means all")
	}
}

// ReplayDead puts dead letters back into their queue, keeping id, idempotency key and attempt log.
func (a Admin) ReplayDead(ctx context.Context, s DeadSelection) (DeadCount, error) {
	f, err := s.filter()
	if err != nil {
		return DeadCount{}, fmt.Errorf("replay dead letters of %q: %w", s.Queue, err)
	}
	resp, err := operate(ctx, a, s.DryRun, a.client.operator.ReplayDead, &pawlv1.ReplayDeadRequest{
		Queue: s.Queue, TaskIds: s.TaskIDs, Filter: f, Max: s.Max, Rate: s.Rate, DryRun: s.DryRun, Poisoned: s.Poisoned, Reason: s.Reason,
	})
	if err != nil {
		return DeadCount{}, fmt.Errorf("replay dead letters of %q: %w", s.Queue, err)
	}
	return DeadCount{Matched: resp.GetMatched(), Done: resp.GetReplayed()}, nil
}

// DiscardDead drops dead letters; each is written to the archive first.
func (a Admin) DiscardDead(ctx context.Context, s DeadSelection) (DeadCount, error) {
	if s.Rate != 0 {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, invalid("rate", "is for ReplayDead only"))
	}
	f, err := s.filter()
	if err != nil {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, err)
	}
	resp, err := operate(ctx, a, s.DryRun, a.client.operator.DiscardDead, &pawlv1.DiscardDeadRequest{
		Queue: s.Queue, TaskIds: s.TaskIDs, Filter: f, Max: s.Max, DryRun: s.DryRun, Poisoned: s.Poisoned, Reason: s.Reason,
	})
	if err != nil {
		return DeadCount{}, fmt.Errorf("discard dead letters of %q: %w", s.Queue, err)
	}
	return DeadCount{Matched: resp.GetMatched(), Done: resp.GetDiscarded()}, nil
}

// ArchivedTask is a dead letter in the archive.
type ArchivedTask struct {
	Task       *TaskInfo
	ArchivedAt time.Time
	Cause      string // "retention", "discard", "purge"
	Place      string // file and line: what RestoreArchive takes
}

// Archive goes over the dead-letter archive, newest first; queue "" means all.
func (a Admin) Archive(ctx context.Context, queue string) iter.Seq2[ArchivedTask, error] {
	return pages(func(cursor string) (Page[ArchivedTask], error) {
		return a.ArchivePage(ctx, queue, PageRequest{Cursor: cursor})
	})
}

// ArchivePage gives one page of the archive.
func (a Admin) ArchivePage(ctx context.Context, queue string, page PageRequest) (Page[ArchivedTask], error) {
	resp, err := operate(ctx, a, true, a.client.operator.ListArchive, &pawlv1.ListArchiveRequest{Queue: queue, Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[ArchivedTask]{}, fmt.Errorf("list archive: %w", err)
	}
	return pageOf(resp, func(p *pawlv1.ArchivedTask) ArchivedTask {
		return ArchivedTask{Task: infoOf(p.GetTask()), ArchivedAt: timeOf(p.GetArchivedAt()), Cause: p.GetCause(), Place: p.GetPlace()}
	}), nil
}

// RestoredTask is what became of one place of the archive.
type RestoredTask struct {
	Place     string
	TaskID    string // of the new task
	Duplicate bool   // an earlier call restored it already, as this task
	Err       error
}

// RestoreArchive enqueues archived dead letters again, as new tasks, at most 1,000 places at once. A dead letter comes back once: a repeat
// answers with the task that the first call made.
func (a Admin) RestoreArchive(ctx context.Context, places ...string) ([]RestoredTask, error) {
	resp, err := operate(ctx, a, true, a.client.operator.RestoreArchive, &pawlv1.RestoreArchiveRequest{Places: places})
	if err != nil {
		return nil, fmt.Errorf("restore archive: %w", err)
	}
	var out []RestoredTask
	for _, p := range resp.GetResults() {
		r := RestoredTask{Place: p.GetPlace(), TaskID: p.GetTaskId(), Duplicate: p.GetDuplicate()}
		if p.GetError() != nil {
			r.Err = errorOf(p.GetError())
		}
		out = append(out, r)
	}
	return out, nil
}
