package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Workers is what the gateway needs of the workers of all nodes.
type Workers interface {
	// Workers returns a page of workers, of all nodes or of the given one.
	Workers(ctx context.Context, q registry.Query, node string) (verb.Partial[registry.Page], error)
	// CountWorkers counts the workers that take tasks of the given queues, in their order.
	CountWorkers(ctx context.Context, ns string, queues []string) verb.Partial[[]int64]
	QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet, error)
	ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error)
}

// workerRegistryService implements WorkerRegistryService.
type workerRegistryService struct {
	pawlv1.UnimplementedWorkerRegistryServiceServer
	workers Workers
	limits  task.Limits
	log     *slog.Logger
}

// workerQuery returns the query for what the caller may see.
func workerQuery(ctx context.Context) registry.Query {
	return registry.Query{Namespace: callinfo.Namespace(ctx), Began: callinfo.Of(ctx).Began, Scope: task.ScopeOf(ctx), Lost: true}
}

// ListWorkers returns a page of workers, sorted by name.
func (g *workerRegistryService) ListWorkers(ctx context.Context, r *pawlv1.ListWorkersRequest) (*pawlv1.ListWorkersResponse, error) {
	q := workerQuery(ctx)
	q.Queue, q.Type = r.GetQueue(), r.GetType()
	if r.Lost != nil {
		q.Lost, q.OnlyLost = r.GetLost(), r.GetLost()
	}
	var err error
	if q.Limit, err = apiproto.LimitOf(r.GetLimit()); err != nil {
		return nil, err
	}
	for _, f := range []struct{ field, value string }{{"queue", q.Queue}, {"type", q.Type}, {"node", r.GetNode()}} {
		if err := task.CheckName(f.field, f.value, g.limits); err != nil {
			return nil, err
		}
	}
	at, err := apiproto.DecodeCursor(apiproto.WorkerCursor, r.GetCursor())
	if err != nil {
		return nil, err
	}
	var ok bool
	if q.After.Name, q.After.ID, ok = strings.Cut(string(at), "\x00"); at != nil && !ok {
		return nil, apiproto.BadCursor(r.GetCursor())
	}
	found, err := g.workers.Workers(ctx, q, r.GetNode())
	if err != nil {
		return nil, err
	}
	list := found.Value
	out := &pawlv1.ListWorkersResponse{Missing: apiproto.MissingProto(found.Missing), Items: make([]*pawlv1.Worker, len(list.Workers))}
	for i := range list.Workers {
		out.Items[i] = workerProto(&list.Workers[i])
	}
	if n := len(list.Workers); list.More && n > 0 {
		last := list.Workers[n-1].Place()
		out.NextCursor = apiproto.EncodeCursor(apiproto.WorkerCursor, []byte(last.Name+"\x00"+last.ID))
	}
	return out, nil
}

// GetWorker returns one worker.
func (g *workerRegistryService) GetWorker(ctx context.Context, r *pawlv1.GetWorkerRequest) (*pawlv1.GetWorkerResponse, error) {
	info, err := g.worker(ctx, r.GetWorkerId())
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetWorkerResponse{Worker: workerProto(info)}, nil
}

// worker finds a worker on any node.
func (g *workerRegistryService) worker(ctx context.Context, id string) (*registry.Info, error) {
	if id == "" {
		return nil, task.Invalid("worker_id", "is required")
	}
	if err := checkInstance("worker_id", id); err != nil {
		return nil, err
	}
	q := workerQuery(ctx)
	q.ID, q.Limit = id, 1
	list, err := g.workers.Workers(ctx, q, "")
	switch {
	case err != nil:
		return nil, err
	case len(list.Value.Workers) > 0:
		return &list.Value.Workers[0], nil
	case len(list.Missing) > 0:
		return nil, task.Unavailable(0, "worker %q is on none of the nodes that answered: %s did not", id, list.Missing[0])
	}
	return nil, task.NotFound("worker", id)
}

// QuietWorker makes a worker take no new tasks.
func (g *workerRegistryService) QuietWorker(ctx context.Context, r *pawlv1.QuietWorkerRequest) (*pawlv1.QuietWorkerResponse, error) {
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	span := workers.QuietFor
	if r.GetFor() != nil {
		if span, err = apiproto.SpanOf("for", r.GetFor()); err != nil {
			return nil, err
		}
	}
	if span < workers.MinQuiet || span > workers.MaxQuiet {
		return nil, task.Invalid("for", "%s is not between %s and %s", humanize.DurationText(span), humanize.DurationText(workers.MinQuiet),
			humanize.DurationText(workers.MaxQuiet))
	}
	info, err := g.worker(ctx, r.GetWorkerId())
	if err != nil {
		return nil, err
	}
	if info.Hidden {
		return nil, takesMore(info)
	}
	if info.Lost != nil {
		return nil, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("worker %q: it was lost at %s and can't be made quiet",
			info.ID, info.Lost.At.UTC().Format(time.RFC3339))}
	}
	row, err := g.workers.QuietWorker(ctx, by, workers.Name{Namespace: callinfo.Namespace(ctx), ID: info.ID}, info.Name, span)
	if err != nil {
		return nil, err
	}
	g.log.Info("worker quiet", "worker", info.Name, "worker_id", info.ID, "reason", row.Reason, "by", by)
	info.Quiet = &registry.Quiet{By: row.By, Reason: row.Reason, At: row.At, Until: row.Until}
	return &pawlv1.QuietWorkerResponse{Worker: workerProto(info)}, nil
}

// ResumeWorker lets a worker take tasks again. It may be gone.
func (g *workerRegistryService) ResumeWorker(ctx context.Context, r *pawlv1.ResumeWorkerRequest) (*pawlv1.ResumeWorkerResponse, error) {
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	info, missing := g.worker(ctx, r.GetWorkerId())
	if missing != nil {
		if code, ok := task.AsError(missing); !ok || code.Code == task.CodeInvalidArgument {
			return nil, missing
		}
		if !task.ScopeOf(ctx).All() { // its queues are unknown
			return nil, missing
		}
		info = &registry.Info{ID: r.GetWorkerId()}
	}
	if info.Hidden {
		return nil, takesMore(info)
	}
	was, err := g.workers.ResumeWorker(ctx, by, workers.Name{Namespace: callinfo.Namespace(ctx), ID: info.ID})
	switch {
	case err != nil:
		return nil, err
	case missing != nil && !was:
		return nil, missing
	}
	if was {
		g.log.Info("worker resumed", "worker", info.Name, "worker_id", info.ID, "by", by)
	}
	info.Quiet = nil
	return &pawlv1.ResumeWorkerResponse{Worker: workerProto(info)}, nil
}

// takesMore refuses to control a worker that also serves queues outside the caller's scope.
func takesMore(info *registry.Info) error {
	return &task.Error{Code: task.CodePermissionDenied, Message: task.Invalid("worker_id",
		"%q also takes tasks of queues that the caller's token does not cover", info.ID).Message}
}

func workerProto(i *registry.Info) *pawlv1.Worker {
	p := &pawlv1.Worker{WorkerId: i.ID, Worker: i.Name, Node: i.Node, Connected: i.Stream, Host: i.Host, Pid: apiproto.Int32Of(i.PID),
		Version: i.Version, Address: i.Address, Types: i.Types, Slots: apiproto.Int32Of(i.Slots), Running: apiproto.Int32Of(i.RunningNow),
		Draining: i.Draining, ConnectedAt: apiproto.WallProto(i.ConnectedAt), SeenAt: apiproto.WallProto(i.SeenAt),
		ClaimedAt: apiproto.WallProto(i.ClaimedAt)}
	for _, q := range i.Queues {
		p.Queues = append(p.Queues, &pawlv1.QueueShare{Queue: q.Queue, Weight: apiproto.Int32Of(q.Weight)})
	}
	for j := range i.Running {
		run := &i.Running[j]
		p.Tasks = append(p.Tasks, &pawlv1.RunningTask{TaskId: run.Task.String(), Type: run.Type, Queue: run.Queue,
			Attempt: apiproto.Int32Of(run.Attempt), Since: apiproto.WallProto(run.Since),
			LeaseExpiresAt: apiproto.WallProto(run.LeaseUntil)})
	}
	if i.Lost != nil {
		p.LostAt, p.LostReason = apiproto.WallProto(i.Lost.At), i.Lost.Reason
	}
	if q := i.Quiet; q != nil {
		p.Quiet = &pawlv1.QuietWord{Reason: q.Reason, By: q.By, At: apiproto.WallProto(q.At), Until: apiproto.WallProto(q.Until)}
	}
	return p
}
