package cluster

import (
	"context"

	"github.com/pawlq/pawl/internal/cluster/markers"
	"github.com/pawlq/pawl/internal/cluster/namespaces"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/cluster/tokens"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Serve has the parts of the control plane run their verbs on a node.
func (c *Control) Serve(on *verb.Parts) {
	Verbs.On(c.Placement, on)
	markers.Verbs.On(c.Markers, on)
	namespaces.Verbs.On(c.Namespaces, on)
	schedules.Verbs.On(c.Schedules, on)
	tokens.Verbs.On(c.Tokens, on)
	webhooks.Verbs.On(c.Webhooks, on)
}

// ServeBy has a runner, in place of a control plane, run all these verbs: for tests.
func ServeBy(by verb.Runner, on *verb.Parts) {
	Verbs.By(by, on)
	markers.Verbs.By(by, on)
	namespaces.Verbs.By(by, on)
	schedules.Verbs.By(by, on)
	tokens.Verbs.By(by, on)
	webhooks.Verbs.By(by, on)
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
	HasShard = verb.New(&Verbs, verb.Rule{Name: "has-shard", Where: verb.System, Idempotent: true}, (*Placement).HasShard)
)
