package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Serve has the parts of the control plane run their verbs on a node.
func (c *Control) Serve(parts *verb.Parts) {
	Verbs.Serve(c.Placement, parts)
	CopyVerbs.Serve(c.Copies, parts)
	auditlog.Verbs.Serve(c.Audit, parts)
	markers.Verbs.Serve(c.Markers, parts)
	namespaces.Verbs.Serve(c.Namespaces, parts)
	queues.Verbs.Serve(c.Queues, parts)
	schedules.Verbs.Serve(c.Schedules, parts)
	tokens.Verbs.Serve(c.Tokens, parts)
	webhooks.Verbs.Serve(c.Webhooks, parts)
	workers.Verbs.Serve(c.Workers, parts)
}

// ServeBy has a runner, in place of a control plane, run all these verbs: for tests.
func ServeBy(by verb.Runner, parts *verb.Parts) {
	Verbs.ServeBy(by, parts)
	CopyVerbs.ServeBy(by, parts)
	auditlog.Verbs.ServeBy(by, parts)
	markers.Verbs.ServeBy(by, parts)
	namespaces.Verbs.ServeBy(by, parts)
	queues.Verbs.ServeBy(by, parts)
	schedules.Verbs.ServeBy(by, parts)
	tokens.Verbs.ServeBy(by, parts)
	webhooks.Verbs.ServeBy(by, parts)
	workers.Verbs.ServeBy(by, parts)
}

// NodeDrain moves replicas and leaders off a node, or, to undo that, lets it get some.
type NodeDrain struct {
	Node string
	Undo bool
	By   task.Author
}

// NodeRemoval removes a node for good, if it is forced whatever it still has.
type NodeRemoval struct {
	Node  string
	Force bool
	By    task.Author
}

// ReplicaMove moves a replica of a shard from one node to another.
type ReplicaMove struct {
	Shard    uint32
	From, To string
	By       task.Author
}

// LeaderTransfer says which node should lead a shard; "": any.
type LeaderTransfer struct {
	Shard uint32
	To    string
	By    task.Author
}

// AuthorCall is a call with no arguments but its author.
type AuthorCall struct{ By task.Author }

// Verbs are the calls on nodes and replicas.
var Verbs verb.Table[*Placement]

// All of them may be repeated.
var (
	GetOverview = verb.New(&Verbs, verb.Rule{Name: "overview", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, _ verb.Nothing) (Overview, error) { return p.Overview(ctx) })
	DrainNode = verb.NewVoid(&Verbs, verb.Rule{Name: "drain", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q NodeDrain) error {
			if q.Undo {
				return p.Undrain(ctx, q.By, q.Node)
			}
			return p.Drain(ctx, q.By, q.Node)
		})
	RemoveNode = verb.NewVoid(&Verbs, verb.Rule{Name: "remove", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q NodeRemoval) error {
			return p.Remove(ctx, q.By, q.Node, q.Force)
		})
	MoveReplica = verb.NewVoid(&Verbs, verb.Rule{Name: "move", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q ReplicaMove) error {
			return p.Move(ctx, q.By, q.Shard, q.From, q.To)
		})
	MoveLeader = verb.NewVoid(&Verbs, verb.Rule{Name: "transfer", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q LeaderTransfer) error {
			return p.Transfer(ctx, q.By, q.Shard, q.To)
		})
	RaiseLevel = verb.New(&Verbs, verb.Rule{Name: "raise-level", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q AuthorCall) (int, error) { return p.RaiseLevel(ctx, q.By) })
	SetReplication = verb.NewVoid(&Verbs, verb.Rule{Name: "replication", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q CountCall) error { return p.SetReplication(ctx, q.By, q.N) })
	SetAuditRetention = verb.NewVoid(&Verbs, verb.Rule{Name: "audit-retention", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q PeriodCall) error {
			return p.SetAuditRetention(ctx, q.By, q.D)
		})
	NoteBackup = verb.NewVoid(&Verbs, verb.Rule{Name: "note-backup", Where: verb.System, Idempotent: true},
		func(p *Placement, ctx context.Context, q AuthorCall) error { return p.NoteBackup(ctx, q.By) })
	// AddShards raises the number of data shards to N.
	AddShards = verb.NewVoid(&Verbs, verb.Rule{Name: "add-shards", Where: verb.System, Idempotent: true},
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
