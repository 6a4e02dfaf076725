package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// WorkerFilter selects workers. All fields that are set must match.
type WorkerFilter struct {
	Queue string // that they take tasks of
	Type  string // that they take tasks of
	Node  string // node that they are connected to
	Lost  *bool  // true: only lost workers; false: only others; nil: both
}

// Worker is a worker that is connected, that claimed by single calls within the last 5 minutes, or that was lost within the last hour. A
// lost worker disappeared without signing off.
type Worker struct {
	ID          string // unique to one run of the worker; if it claims by single calls, derived from its name and address
	Name        string // as given by the worker
	Node        string // node that it is connected to, or last claimed from
	Connected   bool   // by a stream; false: it claims by single calls, or is lost
	Host        string // as reported by the worker
	PID         int
	Version     string // of its SDK
	Address     string // host it connects from
	Queues      pawl.Queues
	Types       []string      // nil: all
	Slots       int           // if it claims by single calls, the same as Running
	Running     int           // tasks that it holds, or held when it was lost, as far as known to the nodes that answered
	Tasks       []RunningTask // the oldest of them: up to 10 in a list, 1,000 in Get
	ConnectedAt time.Time     // or first seen
	SeenAt      time.Time     // when it was last heard from
	ClaimedAt   time.Time     // when it last got tasks; zero: never
	Draining    bool          // it is shutting down and takes no new tasks
	LostAt      time.Time     // zero: not lost
	// "disconnected": its stream ended and it did not reconnect; "lease_lost": it claims by single calls and let a lease
	// expire
	LostReason string
	Quiet      *Quiet // nil: it takes new tasks
}

// RunningTask is a task that a worker holds.
type RunningTask struct {
	ID             string
	Type           string
	Queue          string
	Attempt        int
	Since          time.Time // when it was claimed
	LeaseExpiresAt time.Time
}

// Quiet is an operator's order that a worker take no new tasks.
type Quiet struct {
	Reason string
	By     string // who ordered it, as given by the caller
	At     time.Time
	Until  time.Time // when it takes tasks again
}

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
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ListWorkers, &pawlv1.ListWorkersRequest{
		Queue: convert.Text(f.Queue), Type: convert.Text(f.Type), Node: convert.Text(f.Node), Lost: f.Lost,
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Worker]{}, fmt.Errorf("workers: %w", err)
	}
	return convert.Page(resp, workerInfoOf), nil
}

// Get returns a worker, or ErrNotFound if there is none.
func (a Workers) Get(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).GetWorker, &pawlv1.GetWorkerRequest{WorkerId: id})
	if err != nil {
		return nil, fmt.Errorf("worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

// Quiet stops a worker from taking new tasks for the given span, from 1 minute to 30 days; 0 means 24 hours. Running
// tasks continue, and the worker stays connected. Quiet takes effect within about a second.
func (a Workers) Quiet(ctx context.Context, id, reason string, span time.Duration) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).QuietWorker, &pawlv1.QuietWorkerRequest{WorkerId: id,
		Reason: reason, For: convert.Duration(span)})
	if err != nil {
		return nil, fmt.Errorf("quiet worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

// Resume lets a worker take tasks again. For a worker that is gone, the result has little more than its id.
func (a Workers) Resume(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ResumeWorker,
		&pawlv1.ResumeWorkerRequest{WorkerId: id})
	if err != nil {
		return nil, fmt.Errorf("resume worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

func workerInfoOf(p *pawlv1.Worker) *Worker {
	w := &Worker{ID: p.GetWorkerId(), Name: p.GetWorker(), Node: p.GetNode(), Connected: p.GetConnected(), Host: p.GetHost(),
		PID: int(p.GetPid()), Version: p.GetVersion(), Address: p.GetAddress(), Queues: queuesOf(p.GetQueues()), Types: p.GetTypes(),
		Slots: int(p.GetSlots()), Running: int(p.GetRunning()), ConnectedAt: convert.Time(p.GetConnectedAt()),
		SeenAt: convert.Time(p.GetSeenAt()), ClaimedAt: convert.Time(p.GetClaimedAt()), Draining: p.GetDraining(),
		LostAt: convert.Time(p.GetLostAt()), LostReason: p.GetLostReason()}
	for _, t := range p.GetTasks() {
		w.Tasks = append(w.Tasks, RunningTask{ID: t.GetTaskId(), Type: t.GetType(), Queue: t.GetQueue(), Attempt: int(t.GetAttempt()),
			Since: convert.Time(t.GetSince()), LeaseExpiresAt: convert.Time(t.GetLeaseExpiresAt())})
	}
	if q := p.GetQuiet(); q != nil {
		w.Quiet = &Quiet{Reason: q.GetReason(), By: q.GetBy(), At: convert.Time(q.GetAt()), Until: convert.Time(q.GetUntil())}
	}
	return w
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
