package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// withSQS serves SQS requests. If they are not enabled, the refusal says so.
func (g *Gateway) withSQS(next http.Handler) http.Handler {
	endpoint := sqs.New(sqs.Config{Core: &g.services.sqs, Call: g.sqsCall})
	guard := http.NewCrossOriginProtection()
	crossOrigin := func(r *http.Request) error {
		posted := *r // the guard lets other methods pass, and here they may change something too
		posted.Method = http.MethodPost
		return guard.Check(&posted)
	}
	actions := g.answers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(rest.BodyTimeout)) // not supported by in-memory connections
		}
		err := g.access.CheckHost(r)
		switch {
		case err != nil:
		case !g.cfg.SQS:
			err = callinfo.Denied("this server accepts no SQS requests: start it with --sqs")
		case crossOrigin(r) != nil:
			err = callinfo.Denied("pages of other origins can't call this server")
		}
		endpoint.Serve(w, r, err)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sqs.Handles(r) {
			actions.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// sqsCall runs an action as a call, as webCall does for REST.
func (g *Gateway) sqsCall(r *http.Request, handle func(context.Context, sqs.Caller) error) (refusal *task.Error) {
	began := time.Now()
	ctx, c := callinfo.Begin(r.Context(), task.InterfaceSQS, "unknown")
	c.Web = r
	err := g.runSQSCall(ctx, c, handle)
	g.observer.Observed(c, err, time.Since(began))
	if err == nil {
		return nil
	}
	return g.Refusal(err)
}

func (g *Gateway) runSQSCall(ctx context.Context, c *callinfo.Call, handle func(context.Context, sqs.Caller) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = callinfo.Panicked("sqs "+c.Method, p)
		}
	}()
	s := access.NewSQSCaller(g.access, c)
	defer s.Leave()
	if ctx, err = s.Enter(ctx); err != nil {
		return err
	}
	return handle(ctx, s)
}

// sqsCore implements sqs.Core on the gateway.
type sqsCore struct {
	*claims
	parts        fanout.Queues
	taskCommands taskCommands
	operations   *operationService
	broker       Broker
	cluster      fanout.Cluster
	verbs        verb.Runner
	access       *access.Guard
	bodies       *admission.MemoryPool
	limits       task.Limits
}

func (g *sqsCore) Namespace(ctx context.Context) string { return callinfo.Namespace(ctx) }

// maxBodies bounds the memory, in bytes, that large requests of SQS take. It is apart from that of other requests, because a request is
// read before its signature can be checked: whoever knows the id of an access key, which is no secret, must hinder no other callers of its
// namespace.
const maxBodies = 64 << 20

func (g *sqsCore) Reserve(ctx context.Context, n int64) (*admission.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.BodyTimeout)
	defer cancel()
	r, err := g.bodies.Reserve(ctx, callinfo.Namespace(ctx), n)
	if err != nil {
		return nil, contract.NoRoom()
	}
	return r, nil
}

// Queue returns a queue, usually from this node's copy. One that is missing there, perhaps created elsewhere a moment ago, is
// looked up.
func (g *sqsCore) Queue(ctx context.Context, name string) (queues.Queue, bool, error) {
	if q, ok := g.cluster.Copied(ctx, callinfo.Namespace(ctx), name); ok {
		return q, true, nil
	}
	return g.cluster.Queue(ctx, callinfo.Namespace(ctx), name)
}

// FreshQueue returns a queue with every change that was answered, or from this node's copy if the system shard does not answer in time.
func (g *sqsCore) FreshQueue(ctx context.Context, name string) (queues.Queue, bool, error) {
	return g.cluster.Queue(ctx, callinfo.Namespace(ctx), name)
}

func (g *sqsCore) Queues(ctx context.Context, pattern, after string, limit int) ([]queues.Queue, error) {
	return g.cluster.Queues(ctx, callinfo.Namespace(ctx), queues.Query{Pattern: pattern, After: after, Limit: limit})
}

func (g *sqsCore) PutQueue(ctx context.Context, name string, change func(*task.QueueConfig) error) error {
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return err
	}
	_, err = g.cluster.PutQueue(ctx, auditlog.Action{By: by, Action: task.QueuePut}, callinfo.Namespace(ctx), name, change)
	return err
}

// DropQueue deletes a queue with everything in it.
func (g *sqsCore) DropQueue(ctx context.Context, q queues.Queue) error {
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return err
	}
	if q, err = g.parts.Current(ctx, q.Name); err != nil {
		return err
	}
	if err := g.purge(ctx, by, q); err != nil {
		return err
	}
	if err := g.eachTask(ctx, by, q, []task.State{task.Dead, task.Poisoned}, broker.Discard); err != nil {
		return err
	}
	return g.cluster.DropQueue(ctx, by, callinfo.Namespace(ctx), q.Name)
}

// Purge ends all waiting and claimed tasks.
func (g *sqsCore) Purge(ctx context.Context, q queues.Queue) error {
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return err
	}
	if q, err = g.parts.Current(ctx, q.Name); err != nil {
		return err
	}
	return g.purge(ctx, by, q)
}

func (g *sqsCore) purge(ctx context.Context, by task.Author, q queues.Queue) error {
	if _, err := g.parts.Purge(ctx, by, q); err != nil {
		return err
	}
	return g.eachTask(ctx, by, q, []task.State{task.Claimed}, broker.Cancel)
}

// eachTask ends the tasks of a queue that are in some states now: those that workers hold, or the dead letters of a queue whose redrive
// policy does not move them.
func (g *sqsCore) eachTask(ctx context.Context, by task.Author, q queues.Queue, states []task.State, with broker.TaskVerb) error {
	return g.parts.EachPart(ctx, q, func(ctx context.Context, shard uint32) error {
		list := broker.TaskList{OnShard: callinfo.OnShard(ctx, shard), Filter: broker.Filter{Queue: q.Name, States: states},
			Limit: contract.MaxSettle}
		for {
			out, err := broker.ListTasks.Call(ctx, g.verbs, list)
			if err != nil {
				return err
			}
			tasks := out.Page.Tasks
			var failed atomic.Bool // the rest of the page would only fail too
			errs := parallel.Each(len(tasks), func(i int) error {
				if failed.Load() {
					return nil
				}
				_, err := g.taskCommands.runOnTask(ctx, by, with, tasks[i].ID)
				if errors.Is(err, task.ErrNotFound) || errors.Is(err, task.ErrWrongState) {
					return nil
				}
				if err != nil {
					failed.Store(true)
				}
				return err
			})
			if err := parallel.FirstError(errs); err != nil {
				return err
			}
			if list.Cursor = out.Page.Next; len(list.Cursor) == 0 {
				return nil
			}
		}
	})
}

func (g *sqsCore) Depth(ctx context.Context, q queues.Queue) (broker.QueueInfo, error) {
	sum, err := g.parts.Whole(ctx, q)
	return sum, err
}

// Enqueue enqueues tasks of one queue, with defaults already filled in. Each has its own result.
func (g *sqsCore) Enqueue(ctx context.Context, q queues.Queue, specs []task.Spec) []broker.Enqueued {
	out := make([]broker.Enqueued, len(specs))
	var parts []*shardTasks
	for i := range specs {
		s := &specs[i]
		err := s.Check(sqs.Limits(g.limits))
		if err == nil {
			err = g.access.TakeBytes(ctx, min(i, 1), s.Size())
		}
		if err != nil {
			out[i].Err = err
			continue
		}
		var p *shardTasks
		parts, p = partOf(parts, q.Home(s), len(specs)-i)
		p.specs, p.index = append(p.specs, *s), append(p.index, i)
	}
	errs := parallel.EachUntilLate(ctx, len(parts), func(ctx context.Context, n int) error {
		got, at, err := g.broker.Enqueue(ctx, parts[n].shard, callinfo.Namespace(ctx), parts[n].specs)
		callinfo.Note(ctx, at)
		for i := range got {
			out[parts[n].index[i]] = got[i]
		}
		return err
	})
	for n, err := range errs {
		if err == nil {
			continue
		}
		for _, i := range parts[n].index {
			out[i].Err = err
		}
	}
	return out
}

// Claim claims tasks as a unary claim does.
func (g *sqsCore) Claim(ctx context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error) {
	c.Namespace, c.MaxBytes = callinfo.Namespace(ctx), contract.MaxClaimBytes
	callinfo.Waits(ctx, wait)
	me := g.registry.Begin(registry.Hello{Namespace: c.Namespace, Name: c.Worker, Address: callinfo.Address(ctx),
		Queues: registryShares(c.Queues)})
	defer me.Done()
	got, _, err := g.takeAs(ctx, me, c, wait)
	if err != nil {
		return nil, err
	}
	if got, err = g.fit(ctx, got); err != nil {
		return nil, err
	}
	now := time.Now()
	me.Took(registryRuns(got, now), now)
	g.taskCommands.spans.Claims(got)
	return got, nil
}

// Settle ends or extends claims. Each has its own result.
func (g *sqsCore) Settle(ctx context.Context, calls []broker.Settle) []broker.Settled {
	out := make([]broker.Settled, len(calls))
	byShard := map[uint32][]int{}
	for i := range calls {
		shard := calls[i].Hold.ID.Shard()
		byShard[shard] = append(byShard[shard], i)
	}
	shards := slices.Collect(maps.Keys(byShard))
	errs := parallel.EachUntilLate(ctx, len(shards), func(ctx context.Context, n int) error {
		index := byShard[shards[n]]
		items := make([]broker.Settle, len(index))
		for n, i := range index {
			items[n] = calls[i]
		}
		got, at, err := g.broker.Settle(ctx, shards[n], items)
		callinfo.Note(ctx, at)
		for n := range got {
			out[index[n]] = got[n]
			g.noteSettled(&calls[index[n]], &got[n])
		}
		return err
	})
	for n, err := range errs {
		if err == nil {
			continue
		}
		for _, i := range byShard[shards[n]] {
			out[i].Err = err
		}
	}
	return out
}

// noteSettled updates the worker registry.
func (g *sqsCore) noteSettled(c *broker.Settle, s *broker.Settled) {
	switch {
	case s.Err == nil && c.Verb == broker.Extend:
		g.registry.Extended(c.Hold.ID, c.Hold.Token, s.LeaseUntil.Time())
	case s.Err == nil || errors.Is(s.Err, task.ErrStaleClaim):
		g.registry.Ended(c.Hold.ID, c.Hold.Token)
	}
}

// FirstClaimed returns when the earliest recorded claim of a task began; zero: the task has ended, or none is recorded.
func (g *sqsCore) FirstClaimed(ctx context.Context, id task.ID) (time.Time, error) {
	v, at, err := g.broker.Task(ctx, callinfo.Namespace(ctx), id, 0)
	callinfo.Note(ctx, at)
	if err != nil || len(v.Attempts) == 0 {
		return time.Time{}, err
	}
	return v.Attempts[0].StartedAt.Time(), nil
}

// StartOperation starts an operation.
func (g *sqsCore) StartOperation(ctx context.Context, spec broker.OperationSpec) (err error) {
	for _, queue := range []string{spec.Filter.Queue, spec.ToQueue} {
		if err := callinfo.MayUse(ctx, queue); err != nil {
			return err
		}
	}
	if spec.By, err = callinfo.Author(ctx, ""); err != nil {
		return err
	}
	if spec.Filter.States, err = spec.Action.Selects(nil); err != nil {
		return err
	}
	_, err = g.operations.operation(ctx, "started", func(ns string) (broker.OperationView, broker.Stamp, error) {
		return g.operations.operations.StartOperation(ctx, ns, spec)
	})
	return err
}

// Operations returns operations, newest first.
func (g *sqsCore) Operations(ctx context.Context, below task.ID, limit int) (broker.OperationPage, error) {
	list, err := broker.ListOperations.Call(ctx, g.verbs, broker.OperationList{OnShard: callinfo.OnShard(ctx, 0), ID: below, Limit: limit})
	return list.Page, err
}

// AbortOperation aborts an operation.
func (g *sqsCore) AbortOperation(ctx context.Context, id task.ID) error {
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return err
	}
	_, err = g.operations.steered(ctx, id, by, "aborted", broker.AbortOperation)
	return err
}
