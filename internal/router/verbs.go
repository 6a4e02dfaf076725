package router

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on a broker that this package makes, wherever the shard is led.
var Verbs verb.Table[*broker.Broker]

// Serve has a broker run its verbs on a node.
func Serve(b *broker.Broker, parts *verb.Parts) {
	broker.Verbs.Serve(b, parts)
	Verbs.Serve(b, parts)
	claim.BrokerVerbs.Serve(b, parts)
	enqueue.Verbs.Serve(b, parts)
}

// ServeBy has a runner, in place of a broker, run all these verbs: for tests.
func ServeBy(by verb.Runner, parts *verb.Parts) {
	broker.Verbs.ServeBy(by, parts)
	Verbs.ServeBy(by, parts)
	claim.BrokerVerbs.ServeBy(by, parts)
	enqueue.Verbs.ServeBy(by, parts)
}

// TaskPeeked is a task as some replica has it, and an upper bound on the age of the answer.
type TaskPeeked struct {
	broker.Shown[*broker.View]
	Age time.Duration
}

// PeekTask reads a task from any replica of its shard.
var PeekTask = verb.New(&Verbs, verb.Rule{Name: "peek", Where: verb.Replica, Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q broker.Explained) (out TaskPeeked, err error) {
		out.View, out.At, out.Age, err = b.Peek(ctx, q.Namespace, q.ID)
		return out, err
	})

// OnceIn is a call on a once key in a shard.
type OnceIn struct {
	Shard uint32
	Call  broker.OnceCall
}

// TargetShard implements verb.Sharded.
func (q *OnceIn) TargetShard() uint32 { return q.Shard }

// OnceAnswered is its answer.
type OnceAnswered struct {
	Out broker.OnceAnswer
	broker.Stamped
}

var (
	// UseOnce runs a verb on a once key.
	UseOnce = verb.New(&Verbs, verb.Rule{Name: "once", Idempotent: true}, useOnce)
	// AbandonOnce is not repeated if its outcome is unknown: the first call might arrive late, and abandon what the same
	// claim has begun again.
	AbandonOnce = verb.New(&Verbs, verb.Rule{Name: "abandon-once"}, useOnce)
)

func useOnce(b *broker.Broker, ctx context.Context, q OnceIn) (out OnceAnswered, err error) {
	out.Out, out.At, err = b.Once(ctx, q.Shard, q.Call)
	return out, err
}

// AuditReading asks for entries of a shard's audit log after a place; nil: from the newest.
type AuditReading struct {
	Shard uint32
	Query broker.AuditQuery
	After *broker.AuditPlace
	Limit int
}

// TargetShard implements verb.Sharded.
func (q *AuditReading) TargetShard() uint32 { return q.Shard }

// AuditRead is a page.
type AuditRead struct {
	Page broker.AuditPage
	broker.Stamped
}

// ReadAudit reads a page of a shard's audit log.
var ReadAudit = verb.New(&Verbs, verb.Rule{Name: "audit", Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q AuditReading) (out AuditRead, err error) {
		out.Page, out.At, err = b.Audit(ctx, q.Shard, q.Query, q.After, q.Limit)
		return out, err
	})

// EventsIn asks for events of a shard.
type EventsIn struct {
	Shard uint32
	Query events.Query
}

// TargetShard implements verb.Sharded.
func (q *EventsIn) TargetShard() uint32 { return q.Shard }

// Waits implements verb.Waiting.
func (q *EventsIn) Waits() *time.Duration { return &q.Query.Wait }

// ReadEvents reads events.
var ReadEvents = verb.New(&Verbs, verb.Rule{Name: "events", Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q EventsIn) (events.Page, error) {
		return b.Events(ctx, q.Shard, q.Query)
	})

// statusAge is how old the answer to a question about all queues may be.
const statusAge = 2 * time.Second

// StatusOf asks for the status of a namespace.
type StatusOf struct{ Namespace string }

var (
	// ReadStatus returns the status of a namespace's queues in each shard that a node leads.
	ReadStatus = verb.NewSum(&Verbs, verb.Rule{Name: "namespace_status"},
		func(b *broker.Broker, ctx context.Context, q StatusOf) ([]verb.OfShard[broker.NamespaceStatus], error) {
			return b.NamespaceStatus(ctx, q.Namespace, statusAge)
		}, verb.Concat)
	// CountQueues counts tasks per queue in each shard that a node leads.
	CountQueues = verb.NewSum(&Verbs, verb.Rule{Name: "queue-counts"},
		func(b *broker.Broker, ctx context.Context, q broker.CountsQuery) ([]verb.OfShard[[]broker.QueueCount], error) {
			return b.QueueCounts(ctx, q, statusAge)
		}, verb.Concat)
)

// WatchCopies are what the webhooks of namespaces subscribe to.
type WatchCopies struct {
	Shard   uint32
	Watches map[string]task.Watch
}

// TargetShard implements verb.Sharded.
func (q *WatchCopies) TargetShard() uint32 { return q.Shard }

// MeterReading says which queues' ready tasks to count.
type MeterReading struct {
	broker.OnShard
	Patterns []string
	Since    bool
}

var (
	PutWatches = verb.NewVoid(&Verbs, verb.Rule{Name: "copy-watches", Idempotent: true},
		func(b *broker.Broker, ctx context.Context, q WatchCopies) error {
			return b.CopyWatches(ctx, q.Shard, q.Watches)
		})
	ReadMeters = verb.New(&Verbs, verb.Rule{Name: "meters", Idempotent: true},
		func(b *broker.Broker, ctx context.Context, q MeterReading) ([]broker.Meter, error) {
			return b.Meters(ctx, q.Shard, q.Namespace, q.Patterns, q.Since)
		})
)

// CheckShard lists the inconsistencies of a shard's state.
var CheckShard = verb.New(&Verbs, verb.Rule{Name: "check", Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q broker.OnShard) ([]string, error) {
		problems, _, err := b.Check(ctx, q.Shard)
		return problems, err
	})
