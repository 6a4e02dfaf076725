package routertest

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Broker stands for the broker of a node. A test replaces the methods whose verbs it is about; Do answers all others.
type Broker interface {
	router.Broker
	verb.Runner
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error)
	Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error)
	Await(ctx context.Context, shard uint32, c broker.ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error)
	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error)
	Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error)
	Once(ctx context.Context, shard uint32, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error)
	MakeGroup(ctx context.Context, shard uint32, ns string, g task.Group, queues []string) (broker.GroupMade, broker.Stamp, error)
	FindGroup(ctx context.Context, shard uint32, ns string, g task.Group) (broker.GroupMade, broker.Stamp, error)
	AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec, queues []string) ([]broker.Joined, broker.Stamp, error)
	Audit(ctx context.Context, shard uint32, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, broker.Stamp, error)
	Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error)
	NamespaceStatus(ctx context.Context, ns string, age time.Duration) ([]verb.OfShard[broker.NamespaceStatus], error)
	QueueCounts(ctx context.Context, q broker.CountsQuery, age time.Duration) ([]verb.OfShard[[]broker.QueueCount], error)
}

func brokerAnswers(b Broker) verbtest.Answers {
	on := verbtest.Answers{}
	verbtest.On(on, enqueue.EnqueueTasks, func(ctx context.Context, q *enqueue.Enqueueing) (out enqueue.TasksEnqueued, err error) {
		out.Out, out.At, err = b.Enqueue(ctx, q.Shard, q.Namespace, q.Specs)
		return out, err
	})
	verbtest.On(on, claim.ClaimTasks, func(ctx context.Context, q *claim.Claiming) (out claim.TasksClaimed, err error) {
		out.Out, out.At, err = b.Claim(ctx, q.Shard, q.Call, q.Wait)
		return out, err
	})
	verbtest.On(on, claim.AwaitHere, func(ctx context.Context, q *claim.Claiming) (none verb.Nothing, err error) {
		return none, b.Await(ctx, q.Shard, q.Call)
	})
	verbtest.On(on, claim.AwaitTasks, func(ctx context.Context, q *claim.Claiming) (bool, error) { return claim.AwaitFor(ctx, *q, b.Await) })
	verbtest.On(on, claim.SettleClaims, func(ctx context.Context, q *claim.Settling) (out claim.ClaimsSettled, err error) {
		out.Out, out.At, err = b.Settle(ctx, q.Shard, q.Calls)
		return out, err
	})
	verbtest.On(on, enqueue.ShowTask, func(ctx context.Context, q *enqueue.TaskWait) (out broker.Shown[*broker.View], err error) {
		out.View, out.At, err = b.Task(ctx, q.Namespace, q.ID, q.Wait)
		return out, err
	})
	verbtest.On(on, router.PeekTask, func(ctx context.Context, q *broker.Explained) (out router.TaskPeeked, err error) {
		out.View, out.At, out.Age, err = b.Peek(ctx, q.Namespace, q.ID)
		return out, err
	})
	once := func(ctx context.Context, q *router.OnceIn) (out router.OnceAnswered, err error) {
		out.Out, out.At, err = b.Once(ctx, q.Shard, q.Call)
		return out, err
	}
	verbtest.On(on, router.UseOnce, once)
	verbtest.On(on, router.AbandonOnce, once)
	verbtest.On(on, enqueue.CreateGroup, func(ctx context.Context, q *enqueue.NewGroup) (out enqueue.GroupCreated, err error) {
		out.Made, out.At, err = b.MakeGroup(ctx, q.Shard, q.Namespace, q.Group, q.Queues)
		return out, err
	})
	verbtest.On(on, enqueue.FindGroup, func(ctx context.Context, q *enqueue.NewGroup) (out enqueue.GroupCreated, err error) {
		out.Made, out.At, err = b.FindGroup(ctx, q.Shard, q.Namespace, q.Group)
		return out, err
	})
	verbtest.On(on, enqueue.AddToGroup, func(ctx context.Context, q *enqueue.NewMembers) (out enqueue.MembersAdded, err error) {
		out.Joined, out.At, err = b.AddToGroup(ctx, q.Namespace, q.ID, q.Tasks, q.Queues)
		return out, err
	})
	verbtest.On(on, router.ReadAudit, func(ctx context.Context, q *router.AuditReading) (out router.AuditRead, err error) {
		out.Page, out.At, err = b.Audit(ctx, q.Shard, q.Query, q.Behind, q.Limit)
		return out, err
	})
	verbtest.On(on, router.ReadEvents, func(ctx context.Context, q *router.EventsIn) (events.Page, error) {
		return b.Events(ctx, q.Shard, q.Query)
	})
	verbtest.On(on, router.ReadStatus, func(ctx context.Context, q *router.StatusOf) (out router.PerShard[broker.NamespaceStatus], err error) {
		out.Shards, err = b.NamespaceStatus(ctx, q.Namespace, 0)
		return out, err
	})
	verbtest.On(on, router.CountQueues, func(ctx context.Context, q *broker.CountsQuery) (out router.PerShard[[]broker.QueueCount],
		err error) {
		out.Shards, err = b.QueueCounts(ctx, *q, 0)
		return out, err
	})
	return on
}

// Control stands for the system shard as a node sees it, in the same way.
type Control interface {
	verb.Runner
	Place(ctx context.Context, ns, name string) (queues.Queue, error)
	Queue(ctx context.Context, ns, name string) (queues.Queue, error)
	Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error)
	PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	EnsureQueue(ctx context.Context, shard uint32, ns, name string) (queues.Queue, error)
	Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error)
	Events(ctx context.Context, q events.Query) (events.Page, error)
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, error)
	TakeNotifications(ctx context.Context, ns string, notifications []*task.Notification) error
	NameSchedule(ctx context.Context, ns, name string, wanted uint32) (schedules.Home, error)
	ScheduleHome(ctx context.Context, ns, name string) (schedules.Home, error)
	ForgetSchedule(ctx context.Context, ns, name string, version uint64) error
	AwayNodes(ctx context.Context) ([]string, error)
}

func controlAnswers(c Control) verbtest.Answers {
	on := verbtest.Answers{}
	verbtest.OnSystem(on, queues.Place, func(ctx context.Context, q queues.Name) (queues.Queue, error) {
		return c.Place(ctx, q.Namespace, q.Name)
	})
	verbtest.OnSystem(on, queues.Find, func(ctx context.Context, q queues.Name) (queues.Queue, error) {
		return c.Queue(ctx, q.Namespace, q.Name)
	})
	verbtest.OnSystem(on, queues.List, func(ctx context.Context, q queues.Listing) ([]queues.Queue, error) {
		return c.Queues(ctx, q.Namespace, q.Query)
	})
	verbtest.OnSystem(on, queues.Replace, func(ctx context.Context, q queues.Replacement) (queues.Queue, error) {
		return c.PutQueue(ctx, auditlog.Action{By: q.By, Action: q.Action}, q.Namespace, q.Name, q.Replace)
	})
	verbtest.OnSystem(on, queues.Drop, func(ctx context.Context, q queues.Removal) (none verb.Nothing, err error) {
		return none, c.DropQueue(ctx, q.By, q.Namespace, q.Name)
	})
	verbtest.OnSystem(on, queues.Ensure, func(ctx context.Context, q queues.InShard) (queues.Queue, error) {
		return c.EnsureQueue(ctx, q.Shard, q.Namespace, q.Name)
	})
	verbtest.OnSystem(on, queues.Spread, func(ctx context.Context, q queues.Spreading) (queues.Queue, error) {
		return c.Spread(ctx, q.By, q.Namespace, q.Name, q.Onto)
	})
	verbtest.OnSystem(on, queues.ReadEvents, func(ctx context.Context, q queues.EventQuery) (events.Page, error) {
		return c.Events(ctx, q.Query)
	})
	verbtest.OnSystem(on, auditlog.Read, func(ctx context.Context, q auditlog.Reading) (broker.AuditPage, error) {
		return c.Audit(ctx, q.Query, q.Behind, q.Limit)
	})
	verbtest.OnSystem(on, webhooks.TakeNotifications, func(ctx context.Context, q webhooks.Notifications) (none verb.Nothing, err error) {
		return none, c.TakeNotifications(ctx, q.Namespace, q.All)
	})
	verbtest.OnSystem(on, schedules.Register, func(ctx context.Context, q schedules.Naming) (schedules.Home, error) {
		return c.NameSchedule(ctx, q.Namespace, q.Name, q.Shard)
	})
	verbtest.OnSystem(on, schedules.Find, func(ctx context.Context, q schedules.Place) (schedules.Home, error) {
		return c.ScheduleHome(ctx, q.Namespace, q.Name)
	})
	verbtest.OnSystem(on, schedules.Drop, func(ctx context.Context, q schedules.Naming) (none verb.Nothing, err error) {
		return none, c.ForgetSchedule(ctx, q.Namespace, q.Name, q.Version)
	})
	verbtest.OnSystem(on, cluster.AwayNodes, func(ctx context.Context, _ verb.Nothing) ([]string, error) { return c.AwayNodes(ctx) })
	return on
}
