package pawl

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	metaActor  = "pawl-actor"
	metaReason = "pawl-reason-bin" // binary, so that it may be any text
	maxActor   = 256
	maxReason  = 1 << 10
)

// WithActor names who acts when the client changes something as an operator, cancels a task or edits one: the server keeps that
// name with what was done. It has at most 256 characters of ASCII. Without it the name is empty.
func WithActor(name string) DialOption { return func(c *dialConfig) { c.actor = name } }

// WithReason is Admin.Because for all calls of the client: for a program that does one thing, such as a command.
func WithReason(reason string) DialOption { return func(c *dialConfig) { c.reason = reason } }

// As gives the operator's calls in the name of someone else than the one of WithActor: of the user of a program that many use.
// Calls in a name that WithActor would not take are refused with ErrInvalidArgument.
func (a Admin) As(actor string) Admin {
	a.actor = actor
	return a
}

// Because gives the operator's calls with a reason, of at most 1,024 bytes, that the server keeps with what was done. A call that
// takes a reason of its own keeps that, unless it is empty.
func (a Admin) Because(reason string) Admin {
	a.reason = reason
	return a
}

func checkActor(name string) error {
	if len(name) > maxActor {
		return invalid("actor", "%q has %d characters, at most %d are allowed", cutText(name, maxActor), len(name), maxActor)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return invalid("actor", "%q has other characters than letters, digits, signs and spaces of ASCII", name)
	}
	return nil
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return invalid("reason", "%d bytes, at most %d are allowed", len(reason), maxReason)
	}
	return nil
}

// operate is call, with who acts and why.
func operate[Req, Resp any](ctx context.Context, a Admin, repeat bool, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, err := a.acting(ctx)
	if err != nil {
		var none Resp
		return none, err
	}
	return call(ctx, a.client, repeat, rpc, req)
}

// acting adds to a call's context who acts and why.
func (a Admin) acting(ctx context.Context) (context.Context, error) {
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
