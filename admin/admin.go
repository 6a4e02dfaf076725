// Package admin is the operators' part of the SDK: queues, dead letters, schedules, operations on many tasks, workers, the cluster,
// access, webhooks, markers and the audit.
//
//	operator := admin.New(client).WithActor("lena@example.com")
//	queue, err := operator.Queues().Pause(ctx, "mail", "the provider is down")
//
// It does what the command and the web UI do, over the same calls. The client decides to which server and namespace they go, and how they
// are repeated.
package admin

import (
	"context"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	metaActor  = "pawl-actor"
	metaReason = "pawl-reason-bin" // binary, so that it may be any text
	maxActor   = 256
	maxReason  = 1 << 10
)

// calls is what all groups of calls have in common.
type calls struct {
	client        *pawl.Client
	rpc           *rpc.Caller
	actor, reason string
}

// Client are the operators' calls, in groups.
type Client struct{ calls }

// New gives the operators' calls of a client.
func New(c *pawl.Client) Client {
	return Client{calls{client: c, rpc: client.Of(c.Conn()).Caller}}
}

// WithActor gives the same calls in the name of somebody: the server keeps it with what was done. It has at most 256 characters of
// ASCII; with another one calls are refused with ErrInvalidArgument.
func (a Client) WithActor(name string) Client {
	a.actor = name
	return a
}

// WithReason gives the same calls with a reason, of at most 1,024 bytes, that the server keeps with what was done. A call that takes
// a reason of its own keeps that, unless it is empty.
func (a Client) WithReason(reason string) Client {
	a.reason = reason
	return a
}

// Queues are the calls about queues: settings, pauses, limits.
type Queues struct{ calls }

// Queues gives the calls about queues: settings, pauses, limits.
func (a Client) Queues() Queues { return Queues(a) }

// Tasks are the calls about single tasks.
type Tasks struct{ calls }

// Tasks gives the calls about single tasks.
func (a Client) Tasks() Tasks { return Tasks(a) }

// DeadLetters are the calls about dead letters, poisoned tasks and the archive.
type DeadLetters struct{ calls }

// DeadLetters gives the calls about dead letters, poisoned tasks and the archive.
func (a Client) DeadLetters() DeadLetters { return DeadLetters(a) }

// Schedules are the calls about schedules.
type Schedules struct{ calls }

// Schedules gives the calls about schedules.
func (a Client) Schedules() Schedules { return Schedules(a) }

// Groups are the calls about groups of tasks.
type Groups struct{ calls }

// Groups gives the calls about groups of tasks.
func (a Client) Groups() Groups { return Groups(a) }

// Operations are the calls about operations, each of which does one thing to many tasks.
type Operations struct{ calls }

// Operations gives the calls about operations, each of which does one thing to many tasks.
func (a Client) Operations() Operations { return Operations(a) }

// Workers are the calls about workers.
type Workers struct{ calls }

// Workers gives the calls about workers.
func (a Client) Workers() Workers { return Workers(a) }

// Cluster are the calls about nodes, shards and backups.
type Cluster struct{ calls }

// Cluster gives the calls about nodes, shards and backups.
func (a Client) Cluster() Cluster { return Cluster(a) }

// Access are the calls about tokens.
type Access struct{ calls }

// Access gives the calls about tokens.
func (a Client) Access() Access { return Access(a) }

// Namespaces are the calls about namespaces and quotas.
type Namespaces struct{ calls }

// Namespaces gives the calls about namespaces and quotas.
func (a Client) Namespaces() Namespaces { return Namespaces(a) }

// Webhooks are the calls about webhooks.
type Webhooks struct{ calls }

// Webhooks gives the calls about webhooks.
func (a Client) Webhooks() Webhooks { return Webhooks(a) }

// Markers are the calls about markers on charts: deploys, incidents and notes.
type Markers struct{ calls }

// Markers gives the calls about markers on charts: deploys, incidents and notes.
func (a Client) Markers() Markers { return Markers(a) }

// Audit are the calls about what operators have done.
type Audit struct{ calls }

// Audit gives the calls about what operators have done.
func (a Client) Audit() Audit { return Audit(a) }

func checkActor(name string) error {
	if len(name) > maxActor {
		return convert.Invalid("actor", "%q has %d characters, at most %d are allowed", convert.CutText(name, maxActor), len(name), maxActor)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return convert.Invalid("actor", "%q has other characters than letters, digits, signs and spaces of ASCII", name)
	}
	return nil
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return convert.Invalid("reason", "%d bytes, at most %d are allowed", len(reason), maxReason)
	}
	return nil
}

// operate is call, with who acts and why.
func operate[Req, Resp any](ctx context.Context, a calls, repeat bool, do func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, err := a.acting(ctx)
	if err != nil {
		var none Resp
		return none, err
	}
	return rpc.Call(ctx, a.rpc, repeat, do, req)
}

// acting adds to a call's context who acts and why.
func (a calls) acting(ctx context.Context) (context.Context, error) {
	if err := checkActor(a.actor); err != nil {
		return ctx, err
	}
	if err := checkReason(a.reason); err != nil {
		return ctx, err
	}
	var said []string
	if a.actor != "" {
		said = append(said, metaActor, a.actor)
	}
	if a.reason != "" {
		said = append(said, metaReason, a.reason)
	}
	return metadata.AppendToOutgoingContext(ctx, said...), nil
}
