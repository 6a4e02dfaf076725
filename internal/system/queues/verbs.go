package queues

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on queues.
var Verbs verb.Table[*Queues]

// A queue that was changed or removed may have been changed or created again since, so Replace and Drop are not repeated.
var (
	// Place returns a queue, which is created at its first use.
	Place = verb.New(&Verbs, verb.SystemRule("place"),
		func(s *Queues, ctx context.Context, q Name) (Queue, error) { return s.Place(ctx, q.Namespace, q.Name) })
	Find = verb.New(&Verbs, verb.SystemRule("get-queue"),
		func(s *Queues, ctx context.Context, q Name) (Queue, error) { return s.Queue(ctx, q.Namespace, q.Name) })
	List = verb.New(&Verbs, verb.SystemRule("get-queues"),
		func(s *Queues, ctx context.Context, q Listing) ([]Queue, error) {
			return s.Queues(ctx, q.Namespace, q.Query)
		})
	Replace = verb.New(&Verbs, verb.Rule{Name: "put-queue", Where: verb.System},
		func(s *Queues, ctx context.Context, q Replacement) (Queue, error) {
			return s.PutQueue(ctx, auditlog.Action{By: q.By, Action: q.Action}, q.Namespace, q.Name, q.Replace)
		})
	Drop = verb.NewVoid(&Verbs, verb.Rule{Name: "drop-queue", Where: verb.System},
		func(s *Queues, ctx context.Context, q Removal) error {
			return s.DropQueue(ctx, q.By, q.Namespace, q.Name)
		})
	// Ensure makes sure that a shard has its copy of a queue, if it has a part of the queue.
	Ensure = verb.New(&Verbs, verb.SystemRule("ensure-queue"),
		func(s *Queues, ctx context.Context, q InShard) (Queue, error) {
			return s.EnsureQueue(ctx, q.Shard, q.Namespace, q.Name)
		})
	Spread = verb.New(&Verbs, verb.SystemRule("spread-queue"),
		func(s *Queues, ctx context.Context, q Spreading) (Queue, error) {
			return s.Spread(ctx, q.By, q.Namespace, q.Name, q.Onto)
		})
	ReadEvents = verb.New(&Verbs, verb.SystemRule("events-system"),
		func(s *Queues, ctx context.Context, q EventQuery) (events.Page, error) { return s.Events(ctx, q.Query) })
)

// Name is the name of a queue.
type Name struct{ Namespace, Name string }

// Listing asks for queues of a namespace.
type Listing struct {
	Namespace string
	Query     Query
}

// Replacement replaces a queue's configuration, if it is still the version that the new one is based on.
type Replacement struct {
	Namespace, Name string
	Version         uint64
	Config          task.QueueConfig
	By              task.Author
	Action          task.Action
}

// ErrChanged means that the configuration is no longer the one that a Replacement is based on.
var ErrChanged = &task.Error{Code: task.CodeConflict, Reason: "changed", Message: "the queue's configuration was changed concurrently"}

// Replace makes the change.
func (r *Replacement) Replace(c *task.QueueConfig) error {
	if c.Version != r.Version {
		return ErrChanged
	}
	version, created := c.Version, c.CreatedAt
	*c = r.Config
	c.Version, c.CreatedAt = version, created
	return nil
}

// Removal removes an empty queue.
type Removal struct {
	Namespace, Name string
	By              task.Author
}

// InShard is a queue, as a shard has it.
type InShard struct {
	Namespace, Name string
	Shard           uint32
}

// Spreading spreads a queue over shards.
type Spreading struct {
	Namespace, Name string
	Onto            SpreadTarget
	By              task.Author
}

// EventQuery reads events of queues, waiting for the first.
type EventQuery struct{ Query events.Query }

// Waits implements verb.Waiting.
func (q *EventQuery) Waits() *time.Duration { return &q.Query.Wait }
