package admin

import (
	"context"
	"iter"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Lost reports whether the worker disappeared without signing off.
func (w *Worker) Lost() bool { return !w.LostAt.IsZero() }

// List iterates over the workers of all nodes, by name. If nodes don't answer, it ends with a pawltype.IncompleteError after the workers of
// the others.
func (a Workers) List(ctx context.Context, f WorkerFilter) iter.Seq2[*Worker, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Worker], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of workers.
func (a Workers) ListPage(ctx context.Context, f WorkerFilter, page pawltype.PageRequest) (pawltype.Page[*Worker], error) {
	req := f.message()
	req.Limit, req.Cursor = convert.Int32(page.Limit), page.Cursor
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ListWorkers, req)
	return pageOf(workerOf, resp, err, "workers")
}

// Get returns a worker, or ErrNotFound if there is none.
func (a Workers) Get(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).GetWorker, &pawlv1.GetWorkerRequest{WorkerId: id})
	return answer(workerOf, resp.GetWorker(), err, "worker %q", id)
}

// Quiet stops a worker from taking new tasks for the given span, from 1 minute to 30 days; 0 means 24 hours. Running
// tasks continue, and the worker stays connected. Quiet takes effect within about a second.
func (a Workers) Quiet(ctx context.Context, id string, span time.Duration) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).QuietWorker,
		&pawlv1.QuietWorkerRequest{WorkerId: id, For: convert.Duration(span)})
	return answer(workerOf, resp.GetWorker(), err, "quiet worker %q", id)
}

// Resume lets a worker take tasks again. For a worker that is gone, the result has little more than its id.
func (a Workers) Resume(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ResumeWorker,
		&pawlv1.ResumeWorkerRequest{WorkerId: id})
	return answer(workerOf, resp.GetWorker(), err, "resume worker %q", id)
}

// queuesOf decodes the queues of a worker, which are strict if they have no weights.
func queuesOf(shares []*pawlv1.QueueShare) pawl.Queues {
	if len(shares) == 0 || shares[0].GetWeight() == 0 {
		names := make(pawl.Strict, len(shares))
		for i, s := range shares {
			names[i] = s.GetQueue()
		}
		return names
	}
	weights := pawl.Weighted{}
	for _, s := range shares {
		weights[s.GetQueue()] = int(s.GetWeight())
	}
	return weights
}
