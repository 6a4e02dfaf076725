package cluster

import (
	"context"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster/markers"
	"github.com/pawlq/pawl/internal/cluster/namespaces"
	"github.com/pawlq/pawl/internal/cluster/tokens"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the system shard that operators make. Each is described once: its name on the wire, whether it may be repeated if
// its outcome is unknown, and the method of Control that implements it. A router takes it to the leader.
var Verbs verb.Table

// Do implements verb.Runner for a system shard that is led here.
func (c *Control) Do(ctx context.Context, call verb.Call) error { return call.Run(ctx, c) }

// onSystem defines a verb. Verbs that must not be repeated pass false for idempotent: on the second attempt the object would be gone.
func onSystem[Req, Resp any](name string, idempotent bool, do func(*Control, context.Context, Req) (Resp, error)) verb.SystemVerb[Req, Resp] {
	return verb.NewSystem(&Verbs, name, idempotent, func(ctx context.Context, here any, q Req) (Resp, error) { return do(here.(*Control), ctx, q) })
}

// Nothing is the request or the answer of a verb that has none.
type Nothing struct{}

// onlyErr adapts a function without a result to a verb.
func onlyErr[P, Req any](do func(P, context.Context, Req) error) func(P, context.Context, Req) (Nothing, error) {
	return func(p P, ctx context.Context, q Req) (Nothing, error) { return Nothing{}, do(p, ctx, q) }
}

// on adapts a method of a part of Control to a verb.
func on[P, Req, Resp any](part func(*Control) P, do func(P, context.Context, Req) (Resp, error)) func(*Control, context.Context, Req) (Resp, error) {
	return func(c *Control, ctx context.Context, q Req) (Resp, error) { return do(part(c), ctx, q) }
}

func onMarkers(c *Control) *markers.Markers          { return c.Markers }
func onNamespaces(c *Control) *namespaces.Namespaces { return c.Namespaces }
func onTokens(c *Control) *tokens.Tokens             { return c.Tokens }
func onWebhooks(c *Control) *webhooks.Webhooks       { return c.Webhooks }

// Markers.
var (
	AddMarker    = onSystem("add-marker", true, on(onMarkers, (*markers.Markers).Add))
	EndMarker    = onSystem("end-marker", true, on(onMarkers, (*markers.Markers).End))
	RemoveMarker = onSystem("remove-marker", false, on(onMarkers, onlyErr((*markers.Markers).Remove)))
	ListMarkers  = onSystem("markers", true, on(onMarkers, (*markers.Markers).List))
)

// TokenChanged is a token, and the nodes that have not confirmed the change.
type TokenChanged struct {
	Token  auth.Token
	Behind []string
}

// NamespaceChange is a call on an existing namespace.
type NamespaceChange struct {
	By     task.Author
	Name   string
	Quotas task.QuotaChange
}

// Tokens and namespaces. Verbs that change them wait for the nodes to learn of the change, and name those that have not confirmed it.
var (
	AddToken    = onSystem("add-token", true, confirmToken((*tokens.Tokens).Add))
	RotateToken = onSystem("rotate-token", true, confirmToken((*tokens.Tokens).Rotate))
	RevokeToken = onSystem("revoke-token", false, confirmToken((*tokens.Tokens).Revoke))
	ListTokens  = onSystem("tokens", true, on(onTokens, (*tokens.Tokens).List))

	EndSession = onSystem("end-session", true, confirm(on(onTokens, (*tokens.Tokens).EndSession)))

	AddNamespace    = onSystem("add-namespace", true, confirm(on(onNamespaces, (*namespaces.Namespaces).Add)))
	RemoveNamespace = onSystem("remove-namespace", false, confirm(func(c *Control, ctx context.Context, q NamespaceChange) (uint64, error) {
		return c.Namespaces.Remove(ctx, q.By, q.Name)
	}))
	SetQuotas = onSystem("set-quotas", true, confirm(func(c *Control, ctx context.Context, q NamespaceChange) (uint64, error) {
		return c.Namespaces.SetQuotas(ctx, q.By, q.Name, q.Quotas)
	}))
	ListNamespaces = onSystem("namespaces", true, func(c *Control, ctx context.Context, _ Nothing) ([]namespaces.Info, error) {
		return c.Namespaces.List(ctx)
	})

	RequireTokens = onSystem("require-tokens", true, onlyErr(func(c *Control, ctx context.Context, q TokensRequired) error {
		return c.Tokens.Require(ctx, q.By, q.On)
	}))
	NoteRefusals = onSystem("note-refusals", true, onlyErr(func(c *Control, ctx context.Context, q RefusalsSeen) error {
		return c.Tokens.NoteRefusals(ctx, q.By, q.Refusals)
	}))
)

// TokensRequired sets whether calls need a token, according to one node.
type TokensRequired struct {
	By task.Author
	On bool
}

// RefusalsSeen reports callers that a node turned away.
type RefusalsSeen struct {
	By       task.Author
	Refusals tokens.Refusals
}

func confirm[Req any](do func(*Control, context.Context, Req) (uint64, error)) func(*Control, context.Context, Req) ([]string, error) {
	return func(c *Control, ctx context.Context, q Req) ([]string, error) {
		version, err := do(c, ctx, q)
		if err != nil {
			return nil, err
		}
		return c.Copies.Confirm(ctx, version)
	}
}

func confirmToken(do func(*tokens.Tokens, context.Context, tokens.Call) (tokens.Done, error)) func(*Control, context.Context, tokens.Call) (TokenChanged, error) {
	return func(c *Control, ctx context.Context, q tokens.Call) (out TokenChanged, err error) {
		done, err := do(c.Tokens, ctx, q)
		if err != nil {
			return out, err
		}
		out.Token = done.Token
		out.Behind, err = c.Copies.Confirm(ctx, done.Version)
		return out, err
	}
}

// WebhookName is a webhook, and the caller.
type WebhookName struct {
	Namespace, Name string
	By              task.Author
}

// Webhooks. Verbs that may change what one subscribes to tell the shards, and name those that did not confirm it: the leader of the system
// shard keeps telling them.
var (
	AddWebhook    = onSystem("add-webhook", true, tellShards((*webhooks.Webhooks).Add))
	SetWebhook    = onSystem("set-webhook", true, tellShards((*webhooks.Webhooks).Set))
	RotateWebhook = onSystem("rotate-webhook", true, on(onWebhooks, (*webhooks.Webhooks).Rotate))
	PauseWebhook  = onSystem("pause-webhook", true, on(onWebhooks, (*webhooks.Webhooks).Pause))
	ResumeWebhook = onSystem("resume-webhook", true, tellShards((*webhooks.Webhooks).Resume))
	RemoveWebhook = onSystem("remove-webhook", false, tellShards(func(w *webhooks.Webhooks, ctx context.Context, q webhooks.Call) (webhooks.View, error) {
		return webhooks.View{}, w.Remove(ctx, q)
	}))
	ListWebhooks = onSystem("webhooks", true, on(onWebhooks, (*webhooks.Webhooks).List))
	GetWebhook   = onSystem("webhook", true, func(c *Control, ctx context.Context, q WebhookName) (webhooks.View, error) {
		return c.Webhooks.Get(ctx, q.Namespace, q.Name)
	})
	ListDeliveries = onSystem("webhook-deliveries", true, func(c *Control, ctx context.Context, q WebhookName) ([]webhooks.Delivery, error) {
		return c.Webhooks.Deliveries(ctx, q.Namespace, q.Name)
	})
)

func tellShards(do func(*webhooks.Webhooks, context.Context, webhooks.Call) (webhooks.View, error)) func(*Control, context.Context, webhooks.Call) (webhooks.Done, error) {
	return func(c *Control, ctx context.Context, q webhooks.Call) (out webhooks.Done, err error) {
		if out.Hook, err = do(c.Webhooks, ctx, q); err != nil {
			return out, err
		}
		out.Unconfirmed, err = c.Webhooks.TellShards(ctx, q.Hook.Namespace)
		return out, err
	}
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

// Nodes and replicas.
var (
	GetOverview = onSystem("overview", true, func(c *Control, ctx context.Context, _ Nothing) (Overview, error) { return c.Placement.Overview(ctx) })
	DrainNode   = onSystem("drain", true, onlyErr(func(c *Control, ctx context.Context, q NodeCall) error {
		if q.Flag {
			return c.Placement.Undrain(ctx, q.By, q.Node)
		}
		return c.Placement.Drain(ctx, q.By, q.Node)
	}))
	RemoveNode = onSystem("remove", true, onlyErr(func(c *Control, ctx context.Context, q NodeCall) error {
		return c.Placement.Remove(ctx, q.By, q.Node, q.Flag)
	}))
	MoveReplica = onSystem("move", true, onlyErr(func(c *Control, ctx context.Context, q ReplicaCall) error {
		if q.From == "" {
			return c.Placement.Transfer(ctx, q.By, q.Shard, q.To)
		}
		return c.Placement.Move(ctx, q.By, q.Shard, q.From, q.To)
	}))
	RaiseLevel = onSystem("raise-level", true, func(c *Control, ctx context.Context, q AuthorCall) (int, error) {
		return c.Placement.RaiseLevel(ctx, q.By)
	})
)
