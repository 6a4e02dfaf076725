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
func (c *Control) Serve(parts *verb.Parts) { c.serve(nil, parts) }

// ServeBy has a runner, in place of a control plane, run all these verbs: for tests.
func ServeBy(by verb.Runner, parts *verb.Parts) { new(Control).serve(by, parts) }

func (c *Control) serve(by verb.Runner, parts *verb.Parts) {
	serve(&Verbs, c.Placement, by, parts)
	serve(&CopyVerbs, c.Copies, by, parts)
	serve(&auditlog.Verbs, c.Audit, by, parts)
	serve(&markers.Verbs, c.Markers, by, parts)
	serve(&namespaces.Verbs, c.Namespaces, by, parts)
	serve(&queues.Verbs, c.Queues, by, parts)
	serve(&schedules.Verbs, c.Schedules, by, parts)
	serve(&tokens.Verbs, c.Tokens, by, parts)
	serve(&webhooks.Verbs, c.Webhooks, by, parts)
	serve(&workers.Verbs, c.Workers, by, parts)
}

// serve has a part run the verbs of its table, or a runner in its place, if there is one.
func serve[P any](table *verb.Table[P], part P, by verb.Runner, parts *verb.Parts) {
	if by != nil {
		table.ServeBy(by, parts)
	} else {
		table.Serve(part, parts)
	}
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
	GetOverview = verb.New(&Verbs, verb.SystemRule("overview"),
		func(p *Placement, ctx context.Context, _ verb.Nothing) (Overview, error) { return p.Overview(ctx) })
	DrainNode = verb.NewVoid(&Verbs, verb.SystemRule("drain"),
		func(p *Placement, ctx context.Context, q NodeDrain) error {
			if q.Undo {
				return p.Undrain(ctx, q.By, q.Node)
			}
			return p.Drain(ctx, q.By, q.Node)
		})
	RemoveNode = verb.NewVoid(&Verbs, verb.SystemRule("remove"),
		func(p *Placement, ctx context.Context, q NodeRemoval) error {
			return p.Remove(ctx, q.By, q.Node, q.Force)
		})
	MoveReplica = verb.NewVoid(&Verbs, verb.SystemRule("move"),
		func(p *Placement, ctx context.Context, q ReplicaMove) error {
			return p.Move(ctx, q.By, q.Shard, q.From, q.To)
		})
	MoveLeader = verb.NewVoid(&Verbs, verb.SystemRule("transfer"),
		func(p *Placement, ctx context.Context, q LeaderTransfer) error {
			return p.Transfer(ctx, q.By, q.Shard, q.To)
		})
	RaiseLevel = verb.New(&Verbs, verb.SystemRule("raise-level"),
		func(p *Placement, ctx context.Context, q AuthorCall) (int, error) { return p.RaiseLevel(ctx, q.By) })
	SetReplication = verb.NewVoid(&Verbs, verb.SystemRule("replication"),
		func(p *Placement, ctx context.Context, q CountCall) error { return p.SetReplication(ctx, q.By, q.N) })
	SetAuditRetention = verb.NewVoid(&Verbs, verb.SystemRule("audit-retention"),
		func(p *Placement, ctx context.Context, q PeriodCall) error {
			return p.SetAuditRetention(ctx, q.By, q.D)
		})
	NoteBackup = verb.NewVoid(&Verbs, verb.SystemRule("note-backup"),
		func(p *Placement, ctx context.Context, q AuthorCall) error { return p.NoteBackup(ctx, q.By) })
	// AddShards raises the number of data shards to N.
	AddShards = verb.NewVoid(&Verbs, verb.SystemRule("add-shards"),
		func(p *Placement, ctx context.Context, q CountCall) error { return p.AddShards(ctx, q.By, q.N) })
	Join     = verb.New(&Verbs, verb.SystemRule("admit-node"), (*Placement).Join)
	Announce = verb.New(&Verbs, verb.SystemRule("present"), (*Placement).Hello)
	// AwayNodes returns the names of the nodes that have not been heard from for a while: soon, or not at all.
	AwayNodes = verb.New(&Verbs, verb.Rule{Name: "away-nodes", Where: verb.System, Idempotent: true, Patience: awayTime},
		func(p *Placement, ctx context.Context, _ verb.Nothing) ([]string, error) { return p.AwayNodes(ctx) })
	HasShard = verb.New(&Verbs, verb.SystemRule("has-shard"), (*Placement).HasShard)
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
var Changes = verb.New(&CopyVerbs, verb.SystemRule("changes"),
	func(c *Copies, ctx context.Context, q ChangesCall) (Delta, error) {
		return c.Changes(ctx, q.After, q.Report, q.Wait)
	})

// ChangesCall are the arguments of Changes.
type ChangesCall struct {
	After  uint64
	Report Report
	Wait   time.Duration
}
