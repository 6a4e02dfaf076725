// Package admin has the operators' calls of the SDK: queues, dead letters, schedules, bulk operations, workers, the cluster, access,
// webhooks, markers and the audit log.
//
//	operator := admin.New(client).WithActor("lena@example.com")
//	queue, err := operator.WithReason("the provider is down").Queues().Pause(ctx, "mail")
//
// The command and the web UI use the same calls. The client decides which server and namespace they go to, and how they are retried.
package admin

import (
	"context"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	metaActor  = "pawl-actor"
	metaReason = "pawl-reason-bin" // binary, so that it can be any text
	maxActor   = 256
	maxReason  = 1 << 10
)

// calls is the part that all groups of calls share.
type calls struct {
	client        *pawl.Client
	rpc           *rpc.Caller
	actor, reason string
}

// Client provides the operators' calls, in groups.
type Client struct{ calls }

// New returns the operators' calls over a client.
func New(c *pawl.Client) Client {
	return Client{calls{client: c, rpc: client.Of(c).Caller}}
}

// WithActor returns a copy of the client whose calls name an actor, which the server records with what they change. A name has at most 256
// printable ASCII characters; with any other, calls return ErrInvalidArgument.
func (a Client) WithActor(name string) Client {
	a.actor = name
	return a
}

// WithReason returns a copy of the client whose calls give a reason of at most 1,024 bytes, which the server records with what they change.
func (a Client) WithReason(reason string) Client {
	a.reason = reason
	return a
}

// Queues is the group of calls about queues: settings, pauses, limits.
type Queues struct{ calls }

// Queues returns the calls about queues: settings, pauses, limits.
func (a Client) Queues() Queues { return Queues(a) }

// Tasks is the group of calls about single tasks.
type Tasks struct {
	calls
	states []pawltype.State
}

// Tasks returns the calls about single tasks.
func (a Client) Tasks() Tasks { return Tasks{calls: a.calls} }

// DeadLetters is the group of calls about dead letters and poisoned tasks.
type DeadLetters struct{ calls }

// DeadLetters returns the calls about dead letters and poisoned tasks.
func (a Client) DeadLetters() DeadLetters { return DeadLetters(a) }

// Schedules is the group of calls about schedules.
type Schedules struct{ calls }

// Schedules returns the calls about schedules.
func (a Client) Schedules() Schedules { return Schedules(a) }

// Groups is the group of calls about groups of tasks.
type Groups struct{ calls }

// Groups returns the calls about groups of tasks.
func (a Client) Groups() Groups { return Groups(a) }

// Operations is the group of calls about operations, each of which applies one action to many tasks.
type Operations struct{ calls }

// Operations returns the calls about operations, each of which applies one action to many tasks.
func (a Client) Operations() Operations { return Operations(a) }

// Workers is the group of calls about workers.
type Workers struct{ calls }

// Workers returns the calls about workers.
func (a Client) Workers() Workers { return Workers(a) }

// Cluster is the group of calls about nodes, shards and backups.
type Cluster struct{ calls }

// Cluster returns the calls about nodes, shards and backups.
func (a Client) Cluster() Cluster { return Cluster(a) }

// Access is the group of calls about tokens.
type Access struct{ calls }

// Access returns the calls about tokens.
func (a Client) Access() Access { return Access(a) }

// Namespaces is the group of calls about namespaces and quotas.
type Namespaces struct{ calls }

// Namespaces returns the calls about namespaces and quotas.
func (a Client) Namespaces() Namespaces { return Namespaces(a) }

// Webhooks is the group of calls about webhooks.
type Webhooks struct{ calls }

// Webhooks returns the calls about webhooks.
func (a Client) Webhooks() Webhooks { return Webhooks(a) }

// Markers is the group of calls about markers on charts: deploys, incidents and notes.
type Markers struct{ calls }

// Markers returns the calls about markers on charts: deploys, incidents and notes.
func (a Client) Markers() Markers { return Markers(a) }

// Audit is the group of calls about the audit log.
type Audit struct{ calls }

// Audit returns the calls about the audit log.
func (a Client) Audit() Audit { return Audit(a) }

func checkActor(name string) error {
	if len(name) > maxActor {
		return convert.Invalid("actor", "%q has %d characters, at most %d are allowed", convert.CutText(name, maxActor),
			len(name), maxActor)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return convert.Invalid("actor", "%q has characters other than printable ASCII", name)
	}
	return nil
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return convert.Invalid("reason", "%d bytes, at most %d are allowed", len(reason), maxReason)
	}
	return nil
}

// operate makes a call with the actor and the reason.
func operate[Req, Resp any](ctx context.Context, a calls, repeat bool, do func(context.Context, Req, ...grpc.CallOption) (Resp, error),
	req Req) (Resp, error) {
	ctx, err := a.acting(ctx)
	if err != nil {
		var none Resp
		return none, err
	}
	return rpc.Call(ctx, a.rpc, repeat, do, req)
}

// acting adds the actor and the reason to a call's context.
func (a calls) acting(ctx context.Context) (context.Context, error) {
	if err := checkActor(a.actor); err != nil {
		return ctx, err
	}
	if err := checkReason(a.reason); err != nil {
		return ctx, err
	}
	var pairs []string
	if a.actor != "" {
		pairs = append(pairs, metaActor, a.actor)
	}
	if a.reason != "" {
		pairs = append(pairs, metaReason, a.reason)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...), nil
}
