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

// WorkerFilter selects workers. Fields that are set must all match.
type WorkerFilter struct {
	Queue string // that they take tasks of
	Type  string // that they take tasks of
	Node  string // that they are connected to
	Lost  *bool  // true: only those that are lost; false: only those that are not; nil: both
}

// Worker is a worker that is connected, that has claimed by single calls within the last 5 minutes, or that was lost within the last hour:
// it is gone without having said so.
type Worker struct {
	ID          string // its own for as long as it runs; of one who claims by single calls, of its name and address
	Name        string // as it calls itself
	Node        string // that it is connected to, or has claimed at last
	Connected   bool   // by a stream; false: it claims by single calls, or is lost
	Host        string // as it says
	PID         int
	Version     string // of its SDK
	Address     string // host from which it comes
	Queues      pawl.Queues
	Types       []string      // nil: all
	Slots       int           // that it has; of one who claims by single calls, as many as it runs
	Running     int           // tasks that it holds, or held when it was lost, as far as the nodes that were asked know
	Tasks       []RunningTask // some of them, those that began first: 10 in a list, 1,000 of one worker
	ConnectedAt time.Time     // or first seen
	SeenAt      time.Time     // its last sign of life
	ClaimedAt   time.Time     // when it got tasks last; zero: never
	Draining    bool          // it ends, and takes no new tasks
	LostAt      time.Time     // when it was lost; zero: it is there
	LostReason  string        // "disconnected": its stream ended, and it did not come back; "lease_lost": it claims by single calls, and let a lease end
	Quiet       *Quiet        // nil: it takes new tasks
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

// Quiet is an operator's word that a worker is to take no new tasks.
type Quiet struct {
	Reason string
	By     string // who said so, as they called themselves
	At     time.Time
	Until  time.Time // it takes tasks again from then on
}

// WorkerPage is a page of workers.
type WorkerPage struct {
	pawltype.Page[*Worker]
	// Silent are nodes that gave no answer, and why: their workers are missing.
	Silent map[string]string
}

// Lost reports whether the worker is gone without having said so.
func (w *Worker) Lost() bool { return !w.LostAt.IsZero() }

// List goes over the workers of all nodes, in the order of their names. It tells nothing of nodes that give no answer: WorkersPage does.
func (a Workers) List(ctx context.Context, f WorkerFilter) iter.Seq2[*Worker, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Worker], error) {
		page, err := a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
		return page.Page, err
	})
}

// ListPage gives one page of workers.
func (a Workers) ListPage(ctx context.Context, f WorkerFilter, page pawltype.PageRequest) (WorkerPage, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ListWorkers, &pawlv1.ListWorkersRequest{Queue: f.Queue, Type: f.Type, Node: f.Node, Lost: f.Lost,
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return WorkerPage{}, fmt.Errorf("workers: %w", err)
	}
	out := WorkerPage{Page: convert.Page(resp, workerInfoOf)}
	for _, n := range resp.GetSilentNodes() {
		if out.Silent == nil {
			out.Silent = map[string]string{}
		}
		out.Silent[n.GetNode()] = n.GetReason()
	}
	return out, nil
}

// Get shows a worker.
func (a Workers) Get(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).GetWorker, &pawlv1.GetWorkerRequest{WorkerId: id})
	if err != nil {
		return nil, fmt.Errorf("worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

// Quiet has a worker take no new tasks for a span from now: 1 minute to 30 days; 0: 24 hours. What it runs goes on, and it stays connected. It hears of it within
// a second or so.
func (a Workers) Quiet(ctx context.Context, id, reason string, span time.Duration) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).QuietWorker, &pawlv1.QuietWorkerRequest{WorkerId: id, Reason: reason, For: convert.Duration(span)})
	if err != nil {
		return nil, fmt.Errorf("quiet worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

// Resume lets a worker take tasks again. Of one that is gone the answer has little more than its id.
func (a Workers) Resume(ctx context.Context, id string) (*Worker, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewWorkerRegistryServiceClient(a.rpc).ResumeWorker, &pawlv1.ResumeWorkerRequest{WorkerId: id})
	if err != nil {
		return nil, fmt.Errorf("resume worker %q: %w", id, err)
	}
	return workerInfoOf(resp.GetWorker()), nil
}

func workerInfoOf(p *pawlv1.Worker) *Worker {
	w := &Worker{ID: p.GetWorkerId(), Name: p.GetWorker(), Node: p.GetNode(), Connected: p.GetConnected(), Host: p.GetHost(), PID: int(p.GetPid()),
		Version: p.GetVersion(), Address: p.GetAddress(), Queues: queuesOf(p.GetQueues()), Types: p.GetTypes(), Slots: int(p.GetSlots()), Running: int(p.GetRunning()),
		ConnectedAt: convert.Time(p.GetConnectedAt()), SeenAt: convert.Time(p.GetSeenAt()), ClaimedAt: convert.Time(p.GetClaimedAt()), Draining: p.GetDraining(),
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

// queuesOf is the inverse of Queues.shares.
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
