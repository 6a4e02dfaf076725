package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// fakeOperations keeps operations that nobody runs: each has matched three tasks.
type fakeOperations struct {
	*fake
	all []*broker.Operation
}

func (f *fakeOperations) find(id task.ID) (broker.OperationView, broker.Stamp, error) {
	for _, o := range f.all {
		if o.ID == id {
			return broker.OperationView{Operation: o, WaitsFor: "shard 2 to be led"}, broker.Stamp{}, nil
		}
	}
	return broker.OperationView{}, broker.Stamp{}, task.NotFound("operation", id.String())
}

func (f *fakeOperations) StartOperation(_ context.Context, _ string, spec broker.OperationSpec) (broker.OperationView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := &broker.Operation{ID: task.NewID(1, int64(len(f.all)+1), 7), Spec: spec, State: broker.OperationRunning, CreatedAt: broker.TimeOf(time.Now())}
	o.Spec.Total, o.Spec.TotalSoFar = 5, true
	o.Tally = broker.Tally{Matched: 3, Done: 1, Failed: 1, Skipped: []broker.Skipped{{Reason: task.SkipUniqueKey, Count: 1}},
		Errors: []broker.TaskError{{ID: task.NewID(1, 9, 9), Message: "queue x is one too many"}}}
	f.all = append(f.all, o)
	return f.find(o.ID)
}

func (f *fakeOperations) CountMatches(ctx context.Context, ns string, filter broker.Filter, sample int, patience time.Duration) (n broker.Matches, at []broker.Stamp, err error) {
	if sample == 0 { // what became of tasks
		n = broker.Matches{States: map[task.State]int64{task.Ready: 3, task.Dead: 1}}
		if filter.Queue == "mail" && patience < broker.CountTime {
			n.Next = []byte("more")
		}
		return n, nil, nil
	}
	page, stamp, err := f.Tasks(ctx, 1, ns, filter, nil, sample)
	return broker.Matches{Count: int64(len(page.Tasks)), Sample: page.Tasks}, []broker.Stamp{stamp}, err
}

func (f *fakeOperations) Operation(ctx context.Context, _ string, id task.ID, wait time.Duration) (broker.OperationView, broker.Stamp, error) {
	waited := time.NewTimer(wait) // in fake time
	defer waited.Stop()
	select {
	case <-ctx.Done():
	case <-waited.C: // nothing ever comes of it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(id)
}

func (f *fakeOperations) Operations(_ context.Context, _ string, below task.ID, limit int) (page broker.OperationPage, at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range slices.Backward(f.all) {
		if below != (task.ID{}) && slices.Compare(o.ID[:], below[:]) >= 0 {
			continue
		}
		if page.More = len(page.Operations) == limit; page.More {
			break
		}
		page.Operations = append(page.Operations, o)
	}
	return page, at, nil
}

func (f *fakeOperations) steer(id task.ID, change func(o *broker.Operation)) (broker.OperationView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, at, err := f.find(id)
	if err == nil {
		change(v.Operation)
	}
	return v, at, err
}

func (f *fakeOperations) PauseOperation(_ context.Context, _ string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return f.steer(id, func(o *broker.Operation) { o.Stopping, o.Why, o.StoppedBy = broker.OperationPaused, by.Reason, by })
}

func (f *fakeOperations) ResumeOperation(_ context.Context, _ string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return f.steer(id, func(o *broker.Operation) { o.Stopping, o.Why, o.StoppedBy, o.ResumedBy = 0, "", task.Author{}, by })
}

func (f *fakeOperations) AbortOperation(_ context.Context, _ string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return f.steer(id, func(o *broker.Operation) {
		o.State, o.EndedAt, o.Why, o.StoppedBy = broker.OperationAborted, broker.TimeOf(time.Now()), by.Reason, by
	})
}
