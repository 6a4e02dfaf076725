package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeOperations stores operations that never run. Each has matched three tasks.
type fakeOperations struct {
	*fake
	all []*broker.Operation
}

func (f *fakeOperations) find(id task.ID) (broker.OperationView, broker.Stamp, error) {
	for _, o := range f.all {
		if o.ID == id {
			return broker.OperationView{Operation: o, WaitsFor: "shard 2 to be led"}, fakeMoment, nil
		}
	}
	return broker.OperationView{}, broker.Stamp{}, task.NotFound("operation", id.String())
}

func (f *fakeOperations) StartOperation(_ context.Context, _ string, spec broker.OperationSpec) (broker.OperationView,
	broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := &broker.Operation{ID: task.NewID(1, int64(len(f.all)+1), 7), Spec: spec, State: broker.OperationRunning,
		CreatedAt: broker.TimeOf(time.Now())}
	o.Spec.Total, o.Spec.TotalSoFar = 5, true
	o.Tally = broker.Tally{Matched: 3, Done: 1, Failed: 1, Skipped: []broker.Skipped{{Reason: task.SkipUniqueKey, Count: 1}},
		Errors: []broker.TaskError{{ID: task.NewID(1, 9, 9), Message: "queue x is one too many"}}}
	if err := f.faults.ask(); err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	f.all = append(f.all, o)
	return f.find(o.ID)
}

func newFakeOperations(f *fake) *fakeOperations {
	o := &fakeOperations{fake: f}
	to := f.table()
	verbtest.On(to, broker.CountMatches, o.countMatches)
	verbtest.On(to, broker.ListOperations, o.list)
	verbtest.On(to, broker.PauseOperation, o.pause)
	verbtest.On(to, broker.ResumeOperation, o.resume)
	verbtest.On(to, broker.AbortOperation, o.abort)
	return o
}

func (f *fakeOperations) countMatches(ctx context.Context, q broker.MatchCount) (out broker.MatchesCounted, err error) {
	if q.Limit == 0 { // outcomes of tasks
		out.Matches = broker.Matches{States: map[task.State]int64{task.Ready: 3, task.Dead: 1}}
		if q.Filter.Queue == "mail" && q.Wait < broker.CountTime {
			out.Matches.Next = []byte("more")
		}
		return out, nil
	}
	page, at, err := f.Tasks(ctx, 1, q.Namespace, q.Filter, nil, q.Limit)
	out.Matches, out.At = broker.Matches{Count: int64(len(page.Tasks)), Sample: page.Tasks}, at
	return out, err
}

func (f *fakeOperations) Operation(ctx context.Context, _ string, id task.ID, wait time.Duration) (broker.OperationView,
	broker.Stamp, error) {
	waited := time.NewTimer(wait) // fake time
	defer waited.Stop()
	select {
	case <-ctx.Done():
	case <-waited.C: // it never runs
	}
	if err := f.faults.ask(); err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(id)
}

func (f *fakeOperations) list(_ context.Context, q broker.OperationList) (out broker.Paged[broker.OperationPage], err error) {
	out.At = fakeMoment
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range slices.Backward(f.all) {
		if q.ID != (task.ID{}) && slices.Compare(o.ID[:], q.ID[:]) >= 0 {
			continue
		}
		if out.Page.More = len(out.Page.Operations) == q.Limit; out.Page.More {
			break
		}
		out.Page.Operations = append(out.Page.Operations, o)
	}
	return out, nil
}

func (f *fakeOperations) steer(id task.ID, change func(o *broker.Operation)) (broker.Shown[broker.OperationView], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, at, err := f.find(id)
	if err == nil {
		change(v.Operation)
	}
	return broker.Shown[broker.OperationView]{View: v, Stamped: broker.Stamped{At: at}}, err
}

func (f *fakeOperations) pause(_ context.Context, q broker.OperationOrder) (broker.Shown[broker.OperationView], error) {
	return f.steer(q.ID, func(o *broker.Operation) { o.Stopping, o.Why, o.StoppedBy = broker.OperationPaused, q.By.Reason, q.By })
}

func (f *fakeOperations) resume(_ context.Context, q broker.OperationOrder) (broker.Shown[broker.OperationView], error) {
	return f.steer(q.ID, func(o *broker.Operation) { o.Stopping, o.Why, o.StoppedBy, o.ResumedBy = 0, "", task.Author{}, q.By })
}

func (f *fakeOperations) abort(_ context.Context, q broker.OperationOrder) (broker.Shown[broker.OperationView], error) {
	return f.steer(q.ID, func(o *broker.Operation) {
		o.State, o.EndedAt, o.Why, o.StoppedBy = broker.OperationAborted, broker.TimeOf(time.Now()), q.By.Reason, q.By
	})
}
