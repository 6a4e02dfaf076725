package gateway

import (
	"context"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// producerService implements ProducerService.
type producerService struct {
	pawlv1.UnimplementedProducerServiceServer
	enqueuer
	taskCommands
	queues   fanout.Queues
	limits   task.Limits
	observer callinfo.Observer
	leaders  callinfo.Leaders
}

// Enqueue enqueues one task.
func (g *producerService) Enqueue(ctx context.Context, r *pawlv1.EnqueueRequest) (answer *pawlv1.EnqueueResponse, err error) {
	spans := g.enqueuer.spans.Enqueue(ctx, r.GetTask())
	defer func() { spans.EndOne(answer, err) }()
	spec, err := apiproto.SpecOf(r.GetTask(), g.limits)
	if err == nil {
		err = callinfo.MayEnqueue(ctx, &spec)
	}
	if err == nil {
		err = g.access.TakeBytes(ctx, 0, spec.Size())
	}
	if err != nil {
		return nil, err
	}
	ns := callinfo.Namespace(ctx)
	q, err := g.cluster.Place(ctx, ns, spec.Queue)
	if err != nil {
		return nil, err
	}
	got, at, err := g.broker.Enqueue(ctx, q.Home(&spec), ns, []task.Spec{spec})
	callinfo.Note(ctx, at)
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		return nil, err
	}
	out := &pawlv1.Enqueued{CreatedAt: apiproto.TimeProto(got[0].CreatedAt)}
	apiproto.EnqueuedProto(out, &got[0].Accepted)
	return &pawlv1.EnqueueResponse{Task: out}, nil
}

// EnqueueBatch enqueues many tasks. Each has its own result, unless the node is not ready for any of them: then the
// call is refused, so that the client goes to another node.
func (g *producerService) EnqueueBatch(ctx context.Context, r *pawlv1.EnqueueBatchRequest) (*pawlv1.EnqueueBatchResponse, error) {
	if n := len(r.GetTasks()); n == 0 || n > g.limits.Batch {
		return nil, task.Invalid("tasks", "%d tasks, 1 to %d are allowed", n, g.limits.Batch)
	}
	out := &pawlv1.EnqueueBatchResponse{Results: g.enqueue(ctx, r.GetTasks())}
	if slices.ContainsFunc(out.GetResults(), func(r *pawlv1.EnqueueResult) bool {
		return r.GetError().GetReason() != task.ReasonNotReady
	}) {
		return out, nil
	}
	return nil, &task.Error{Code: task.CodeUnavailable, Reason: task.ReasonNotReady, Message: out.GetResults()[0].GetError().GetMessage()}
}

// shardTasks are the tasks of a batch that belong to one shard.
type shardTasks struct {
	shard uint32
	specs []task.Spec
	index []int // their indexes in the batch
}

// enqueuer enqueues tasks in whichever shards have their queues.
type enqueuer struct {
	spans tasktrace.Spans
	callinfo.Errors
	broker  Broker
	cluster fanout.Cluster
	access  *access.Guard
	limits  task.Limits
}

// enqueue asks the shards of a batch in parallel, and returns the results in the batch's order.
func (g *enqueuer) enqueue(ctx context.Context, tasks []*pawlv1.TaskSpec) []*pawlv1.EnqueueResult {
	results := newResults(len(tasks))
	spans := g.spans.Enqueue(ctx, tasks...)
	defer func() { spans.End(results, nil) }()
	parts := g.placeTasks(ctx, tasks, results)
	errs := parallel.EachUntilLate(ctx, len(parts), func(ctx context.Context, i int) error {
		p := parts[i]
		got, at, err := g.broker.Enqueue(ctx, p.shard, callinfo.Namespace(ctx), p.specs)
		callinfo.Note(ctx, at)
		if err == nil {
			g.answerTasks(results, p, got)
		}
		return err
	})
	for i, err := range errs {
		if err == nil {
			continue
		}
		refused := g.Item(err)
		for _, n := range parts[i].index {
			results[n].Error = refused
		}
	}
	return results
}

// newResults allocates the results of a batch at once.
func newResults(n int) []*pawlv1.EnqueueResult {
	results := make([]*pawlv1.EnqueueResult, n)
	room := make([]pawlv1.EnqueueResult, n)
	for i := range results {
		results[i] = &room[i]
	}
	return results
}

// placeTasks decodes the tasks and finds their shards. It stores refusals in results.
func (g *enqueuer) placeTasks(ctx context.Context, tasks []*pawlv1.TaskSpec, results []*pawlv1.EnqueueResult) (parts []*shardTasks) {
	ns := callinfo.Namespace(ctx)
	specs, places := make([]task.Spec, len(tasks)), map[string]*placed{}
	var unknown []string // queues that this node's copy of the map does not have
	for i, t := range tasks {
		spec, err := apiproto.SpecOf(t, g.limits)
		if err == nil {
			err = callinfo.MayEnqueue(ctx, &spec)
		}
		if err == nil {
			err = g.access.TakeBytes(ctx, min(i, 1), spec.Size())
		}
		if err != nil {
			results[i].Error = g.Item(err)
		} else if places[spec.Queue] == nil {
			q, known := g.cluster.Copied(ctx, ns, spec.Queue)
			if places[spec.Queue] = (&placed{queue: q}); !known {
				unknown = append(unknown, spec.Queue)
			}
		}
		specs[i] = spec
	}
	g.placeQueues(ctx, unknown, places)
	var part *shardTasks // of the previous task
	for i := range specs {
		if results[i].Error != nil {
			continue
		}
		p := places[specs[i].Queue]
		if results[i].Error = p.refused; p.refused != nil {
			continue
		}
		if shard := p.queue.Home(&specs[i]); part == nil || part.shard != shard {
			parts, part = partOf(parts, shard, len(tasks)-i)
		}
		part.specs = append(part.specs, specs[i])
		part.index = append(part.index, i)
	}
	return parts
}

// placeQueues asks the system shard to place queues. If a batch has others too, their tasks wait only briefly for it.
func (g *enqueuer) placeQueues(ctx context.Context, names []string, places map[string]*placed) {
	others := min(1, len(places)-len(names))
	errs := parallel.EachUntilLate(ctx, others+len(names), func(ctx context.Context, n int) (err error) {
		if n >= others {
			name := names[n-others]
			places[name].queue, err = g.cluster.Place(ctx, callinfo.Namespace(ctx), name)
		}
		return err
	})
	for n, err := range errs {
		if err != nil {
			places[names[n-others]].refused = g.Item(err)
		}
	}
}

// placed is a queue of a batch, or why it can't be placed.
type placed struct {
	queue   queues.Queue
	refused *pawlv1.Error
}

func partOf(parts []*shardTasks, shard uint32, room int) ([]*shardTasks, *shardTasks) {
	for _, p := range parts {
		if p.shard == shard {
			return parts, p
		}
	}
	p := &shardTasks{shard: shard, specs: make([]task.Spec, 0, room), index: make([]int, 0, room)}
	return append(parts, p), p
}

func (g *enqueuer) answerTasks(results []*pawlv1.EnqueueResult, p *shardTasks, got []broker.Enqueued) {
	room := make([]pawlv1.Enqueued, len(got))
	created, last := apiproto.TimeProto(got[0].CreatedAt), got[0].CreatedAt // mostly of all: they share a round
	for n := range got {
		to := results[p.index[n]]
		if got[n].Err != nil {
			to.Error = g.Item(got[n].Err)
			continue
		}
		if got[n].CreatedAt != last {
			created, last = apiproto.TimeProto(got[n].CreatedAt), got[n].CreatedAt
		}
		room[n].CreatedAt = created
		apiproto.EnqueuedProto(&room[n], &got[n].Accepted)
		to.Task = &room[n]
	}
}
