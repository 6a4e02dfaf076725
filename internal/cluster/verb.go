package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/markers"
	"github.com/pawlq/pawl/internal/cluster/namespaces"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/cluster/tokens"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/cluster/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Serve has the parts of the control plane run their verbs on a node.
func (c *Control) Serve(on *verb.Parts) {
	Verbs.On(c.Placement, on)
	CopyVerbs.On(c.Copies, on)
	auditlog.Verbs.On(c.Audit, on)
	markers.Verbs.On(c.Markers, on)
	namespaces.Verbs.On(c.Namespaces, on)
	queues.Verbs.On(c.Queues, on)
	schedules.Verbs.On(c.Schedules, on)
	tokens.Verbs.On(c.Tokens, on)
	webhooks.Verbs.On(c.Webhooks, on)
	workers.Verbs.On(c.Workers, on)
}

// ServeBy has a runner, in place of a control plane, run all these verbs: for tests.
func ServeBy(by verb.Runner, on *verb.Parts) {
	Verbs.By(by, on)
	CopyVerbs.By(by, on)
	auditlog.Verbs.By(by, on)
	markers.Verbs.By(by, on)
	namespaces.Verbs.By(by, on)
	queues.Verbs.By(by, on)
	schedules.Verbs.By(by, on)
	tokens.Verbs.By(by, on)
	webhooks.Verbs.By(by, on)
	workers.Verbs.By(by, on)
}

// NodeCall is an operator's call on a node. Flag undoes a drain, or forces a removal.
type NodeCall struct {
	Node string
	Flag bool
	By   task.Author
}

// ReplicaCall says which replica moves where, or, without From, which node should lead.
type ReplicaCall struct {
	Shard    uint32
	From, To string
	By       task.Author
}

// AuthorCall is a call with no arguments but its author.
type AuthorCall struct{ By task.Author }

// Verbs are the calls on nodes and replicas.
var Verbs verb.Table[*Placement]

// All of them may be repeated.
var (
	GetOverview = verb.New(&Verbs, verb.Rule{Name: "overview", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, _ verb.Nothing) (Overview, error) { return p.Overview(ctx) })
	DrainNode = verb.Order(&Verbs, verb.Rule{Name: "drain", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q NodeCall) error {
			if q.Flag {
				return p.Undrain(ctx, q.By, q.Node)
			}
			return p.Drain(ctx, q.By, q.Node)
		})
	RemoveNode = verb.Order(&Verbs, verb.Rule{Name: "remove", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q NodeCall) error { return p.Remove(ctx, q.By, q.Node, q.Flag) })
	MoveReplica = verb.Order(&Verbs, verb.Rule{Name: "move", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q ReplicaCall) error {
			if q.From == "" {
				return p.Transfer(ctx, q.By, q.Shard, q.To)
			}
			return p.Move(ctx, q.By, q.Shard, q.From, q.To)
		})
	RaiseLevel = verb.New(&Verbs, verb.Rule{Name: "raise-level", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q AuthorCall) (int, error) { return p.RaiseLevel(ctx, q.By) })
	SetReplication = verb.Order(&Verbs, verb.Rule{Name: "replication", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q CountCall) error { return p.SetReplication(ctx, q.By, q.N) })
	SetAuditRetention = verb.Order(&Verbs, verb.Rule{Name: "audit-retention", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q PeriodCall) error {
			return p.SetAuditRetention(ctx, q.By, q.D)
		})
	NoteBackup = verb.Order(&Verbs, verb.Rule{Name: "note-backup", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q AuthorCall) error { return p.NoteBackup(ctx, q.By) })
	// AddShards raises the number of data shards to N.
	AddShards = verb.Order(&Verbs, verb.Rule{Name: "add-shards", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q CountCall) error { return p.AddShards(ctx, q.By, q.N) })
	Join     = verb.New(&Verbs, verb.Rule{Name: "admit-node", Where: verb.System, Idempotent: true}, (*Placement).Join)
	Announce = verb.New(&Verbs, verb.Rule{Name: "present", Where: verb.System, Idempotent: true}, (*Placement).Hello)
	// AwayNodes returns the names of the nodes that have not been heard from for a while: soon, or not at all.
	AwayNodes = verb.New(&Verbs, verb.Rule{Name: "away-nodes", Where: verb.System, Idempotent: true, Patience: awayTime},
		func(p *Placement, ctx context.Context, _ verb.Nothing) ([]string, error) { return p.AwayNodes(ctx) })
	HasShard = verb.New(&Verbs, verb.Rule{Name: "has-shard", Where: verb.System, Idempotent: true}, (*Placement).HasShard)
)

// awayTime is how long AwayNodes looks for the leader of the system shard.
const awayTime = 500 * time.Millisecond

// CountCall is a number, and the author of the call.
type CountCall struct {
	N  int
	By task.Author
}

// PeriodCall is a duration, and the author of the call.
type PeriodCall struct {
	D  time.Duration
	By task.Author
}

// CopyVerbs are the calls by which nodes keep their copies of the tables current.
var CopyVerbs verb.Table[*Copies]

// Changes returns what has changed after a version, and takes the report of the node that asks.
var Changes = verb.New(&CopyVerbs, verb.Rule{Name: "changes", Where: verb.System, Idempotent: true},
	func(c *Copies, ctx context.Context, q ChangesCall) (Delta, error) {
		return c.Changes(ctx, q.After, q.Report, q.Wait)
	})

// ChangesCall are the arguments of Changes.
type ChangesCall struct {
	After  uint64
	Report Report
	Wait   time.Duration
}
