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
func Serve(b *broker.Broker, on *verb.Parts) {
	broker.Verbs.On(b, on)
	Verbs.On(b, on)
	claim.BrokerVerbs.On(b, on)
	enqueue.Verbs.On(b, on)
}

// ServeBy has a runner, in place of a broker, run all these verbs: for tests.
func ServeBy(by verb.Runner, on *verb.Parts) {
	broker.Verbs.By(by, on)
	Verbs.By(by, on)
	claim.BrokerVerbs.By(by, on)
	enqueue.Verbs.By(by, on)
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
	Shard  uint32
	Query  broker.AuditQuery
	Behind *broker.AuditPlace
	Limit  int
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
		out.Page, out.At, err = b.Audit(ctx, q.Shard, q.Query, q.Behind, q.Limit)
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

// PerShard is what nodes report of the shards that they lead.
type PerShard[T any] struct {
	Shards []verb.OfShard[T]
	verb.Lack
}

func joinShards[Req, T any](_ *Req, parts []PerShard[T]) (all PerShard[T], _ error) {
	for _, p := range parts {
		all.Shards = append(all.Shards, p.Shards...)
	}
	return all, nil
}

// statusAge is how old the answer to a question about all queues may be.
const statusAge = 2 * time.Second

// StatusOf asks for the status of a namespace.
type StatusOf struct{ Namespace string }

var (
	// ReadStatus returns the status of a namespace's queues in each shard that a node leads.
	ReadStatus = verb.New(&Verbs, verb.Rule{Name: "namespace_status", Where: verb.EachNode, Idempotent: true},
		func(b *broker.Broker, ctx context.Context, q StatusOf) (out PerShard[broker.NamespaceStatus], err error) {
			out.Shards, err = b.NamespaceStatus(ctx, q.Namespace, statusAge)
			return out, err
		}).Merged(joinShards[StatusOf, broker.NamespaceStatus])
	// CountQueues counts tasks per queue in each shard that a node leads.
	CountQueues = verb.New(&Verbs, verb.Rule{Name: "queue-counts", Where: verb.EachNode, Idempotent: true},
		func(b *broker.Broker, ctx context.Context, q broker.CountsQuery) (out PerShard[[]broker.QueueCount], err error) {
			out.Shards, err = b.QueueCounts(ctx, q, statusAge)
			return out, err
		}).Merged(joinShards[broker.CountsQuery, []broker.QueueCount])
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
	PutWatches = verb.Order(&Verbs, verb.Rule{Name: "copy-watches", Idempotent: true},
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
