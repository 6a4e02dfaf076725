package gateway

import (
	"context"
	"log/slog"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/statistics"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// operatorService implements OperatorService.
type operatorService struct {
	pawlv1.UnimplementedOperatorServiceServer
	fanout.Queues
	statistics.Recent
	taskCommands
	enqueuer  enqueuer
	broker    Broker
	cluster   fanout.Cluster
	verbs     verb.Runner
	limits    task.Limits
	leaders   callinfo.Leaders
	log       *slog.Logger
	version   string
	clusterID string
	node      string
}

// GetQueue returns one queue.
func (g *operatorService) GetQueue(ctx context.Context, r *pawlv1.GetQueueRequest) (*pawlv1.GetQueueResponse, error) {
	q, err := g.Known(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	p, err := g.Describe(ctx, q)
	if err != nil {
		return nil, err
	}
	_, err = g.SetLately(ctx, 0, p)
	return &pawlv1.GetQueueResponse{Queue: p}, err
}

// PutQueue replaces the settings of a queue, creating it if necessary.
func (g *operatorService) PutQueue(ctx context.Context, r *pawlv1.PutQueueRequest) (*pawlv1.PutQueueResponse, error) {
	settings, err := apiproto.SettingsOf(r.GetSettings())
	if err != nil {
		return nil, contract.FieldOf("settings", err)
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	p, err := g.configure(ctx, auditlog.Action{By: by, Action: task.QueuePut}, r.GetQueue(), func(c *task.QueueConfig) error {
		if r.IfVersion != nil && c.Version != uint64(r.GetIfVersion()) {
			return &task.Error{Code: task.CodeConflict, Field: "if_version",
				Message: task.Invalid("if_version", "%d, but the settings of %q have version %d", r.GetIfVersion(), r.GetQueue(),
					c.Version).Message}
		}
		// its maps are not shared
		c.Settings = sqs.NewSettings(c, settings, r.GetSettings().GetKeyOrder() != pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED)
		return nil
	})
	return &pawlv1.PutQueueResponse{Queue: p}, err
}

// configure changes a queue's configuration and returns the queue.
func (g *operatorService) configure(ctx context.Context, action auditlog.Action, name string,
	change func(*task.QueueConfig) error) (*pawlv1.Queue, error) {
	if err := task.CheckQueue("queue", name, g.limits); err != nil {
		return nil, err
	}
	q, err := g.cluster.PutQueue(ctx, action, callinfo.Namespace(ctx), name, change)
	if err != nil {
		return nil, err
	}
	return g.Describe(ctx, q)
}

// pause stops or resumes claims from a queue. The queue must exist: a misspelt name must not create one.
func (g *operatorService) pause(ctx context.Context, name string, of task.Hold, paused bool) (*pawlv1.Queue, error) {
	by, err := callinfo.Author(ctx, of.Reason)
	if err != nil {
		return nil, err
	}
	if err := of.Check(g.limits); err != nil {
		return nil, err
	}
	of.At = time.Now().UTC().Truncate(time.Microsecond)
	of.Reason, of.By = by.Reason, by.Name
	action := auditlog.Action{By: by, Action: task.QueuePaused}
	if !paused {
		action.Action = task.QueueResumed
	}
	p, err := g.configure(ctx, action, name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", name)
		}
		if paused {
			return c.Pause(of)
		}
		return c.Resume(of)
	})
	if err == nil {
		g.log.Info("queue pause", "queue", name, "type", of.Type, "key", of.Key, "paused", paused, "by", by)
	}
	return p, err
}

// PauseQueue stops claims from a queue, or of a type or key in it.
func (g *operatorService) PauseQueue(ctx context.Context, r *pawlv1.PauseQueueRequest) (*pawlv1.PauseQueueResponse, error) {
	p, err := g.pause(ctx, r.GetQueue(), task.Hold{Type: r.GetType(), Key: r.GetKey(), Reason: r.GetReason()}, true)
	return &pawlv1.PauseQueueResponse{Queue: p}, err
}

// ResumeQueue ends a pause.
func (g *operatorService) ResumeQueue(ctx context.Context, r *pawlv1.ResumeQueueRequest) (*pawlv1.ResumeQueueResponse, error) {
	p, err := g.pause(ctx, r.GetQueue(), task.Hold{Type: r.GetType(), Key: r.GetKey(), Reason: r.GetReason()}, false)
	return &pawlv1.ResumeQueueResponse{Queue: p}, err
}

// DeleteQueue deletes an empty queue.
func (g *operatorService) DeleteQueue(ctx context.Context, r *pawlv1.DeleteQueueRequest) (*pawlv1.DeleteQueueResponse, error) {
	q, err := g.Known(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	if err := g.cluster.DropQueue(ctx, by, callinfo.Namespace(ctx), q.Name); err != nil {
		return nil, err
	}
	g.log.Info("queue deleted", "queue", q.Name, "by", by)
	return &pawlv1.DeleteQueueResponse{}, nil
}

// PurgeQueue discards the waiting tasks.
func (g *operatorService) PurgeQueue(ctx context.Context, r *pawlv1.PurgeQueueRequest) (*pawlv1.PurgeQueueResponse, error) {
	q, err := g.Current(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	n, err := g.Purge(ctx, by, q)
	if n > 0 || err == nil {
		g.log.Info("queue purged", "queue", q.Name, "discarded", n, "by", by)
	}
	return &pawlv1.PurgeQueueResponse{Discarded: n}, err
}

// SpreadQueue spreads a queue over shards.
func (g *operatorService) SpreadQueue(ctx context.Context, r *pawlv1.SpreadQueueRequest) (*pawlv1.SpreadQueueResponse, error) {
	switch n := r.GetParts(); {
	case len(r.GetShards()) > 0 && n != 0:
		return nil, task.Invalid("parts", "%d is given together with shards: only one of them is allowed", n)
	case len(r.GetShards()) == 0 && (n < 1 || n > contract.MaxParts):
		return nil, task.Invalid("parts", "%d is not a number of parts, and no shards are named", n)
	case len(r.GetShards()) > task.SlotCount:
		return nil, task.Invalid("shards", "%d shards, but a queue has %d slots", len(r.GetShards()), task.SlotCount)
	}
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	if _, err := g.Known(ctx, r.GetQueue()); err != nil {
		return nil, err
	}
	target := queues.SpreadTarget{Parts: int(r.GetParts()), Shards: r.GetShards(), Own: r.GetOwn(), Force: r.GetForce(),
		DryRun: r.GetDryRun()}
	q, err := g.cluster.Spread(ctx, by, callinfo.Namespace(ctx), r.GetQueue(), target)
	if err != nil {
		return nil, err
	}
	if r.GetDryRun() {
		p, err := g.Describe(ctx, q)
		return &pawlv1.SpreadQueueResponse{Queue: p}, err
	}
	g.log.Info("queue spread", "queue", q.Name, "shards", q.Shards(), "own", q.Own, "by", by)
	p, err := g.Describe(ctx, q)
	return &pawlv1.SpreadQueueResponse{Queue: p}, err
}

// RetryTask makes a failed task ready again.
func (g *operatorService) RetryTask(ctx context.Context, r *pawlv1.RetryTaskRequest) (*pawlv1.RetryTaskResponse, error) {
	t, err := g.operate(ctx, broker.Retry, "retry task", r.GetTaskId(), "", r.GetStates()...)
	return &pawlv1.RetryTaskResponse{Task: t}, err
}

// RunTaskNow makes a task that waits for its time ready.
func (g *operatorService) RunTaskNow(ctx context.Context, r *pawlv1.RunTaskNowRequest) (*pawlv1.RunTaskNowResponse, error) {
	t, err := g.operate(ctx, broker.RunNow, "run task now", r.GetTaskId(), "")
	return &pawlv1.RunTaskNowResponse{Task: t}, err
}

// DiscardTask ends a waiting task, or discards a dead letter.
func (g *operatorService) DiscardTask(ctx context.Context, r *pawlv1.DiscardTaskRequest) (*pawlv1.DiscardTaskResponse, error) {
	t, err := g.operate(ctx, broker.Discard, "discard task", r.GetTaskId(), r.GetReason(), r.GetStates()...)
	return &pawlv1.DiscardTaskResponse{Task: t}, err
}

// GetServer describes the node that answers.
func (g *operatorService) GetServer(ctx context.Context, _ *pawlv1.GetServerRequest) (*pawlv1.GetServerResponse, error) {
	out := &pawlv1.GetServerResponse{Version: g.version, ClusterId: g.clusterID, Node: g.node, Now: apiproto.WallProto(time.Now())}
	shards := g.cluster.Shards()
	out.Shards = make([]*pawlv1.ShardInfo, len(shards))
	errs := parallel.Each(len(shards), func(i int) error {
		node, term, index := g.broker.Leader(ctx, shards[i])
		out.Shards[i] = &pawlv1.ShardInfo{Shard: shards[i], Leader: g.leaders.NodeName(node), Index: index, Term: term}
		return nil
	})
	return out, parallel.FirstError(errs)
}
