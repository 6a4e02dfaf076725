package tokens

import (
	"context"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on tokens. Those that change some wait for the nodes to learn of it, and name those that have not confirmed it.
var Verbs verb.Table[*Tokens]

// A token that was revoked can't be revoked again, so Revoke is not repeated.
var (
	Add    = verb.New(&Verbs, verb.SystemRule("add-token"), confirmed((*Tokens).Add))
	Rotate = verb.New(&Verbs, verb.SystemRule("rotate-token"), confirmed((*Tokens).Rotate))
	Revoke = verb.New(&Verbs, verb.Rule{Name: "revoke-token", Where: verb.System}, confirmed((*Tokens).Revoke))
	List   = verb.New(&Verbs, verb.SystemRule("tokens"), (*Tokens).List)

	EndSession = verb.New(&Verbs, verb.SystemRule("end-session"),
		func(s *Tokens, ctx context.Context, x auth.Session) (behind []string, err error) {
			version, err := s.EndSession(ctx, x)
			return s.shard.Confirmed(ctx, version, err)
		})
	Require = verb.NewVoid(&Verbs, verb.SystemRule("require-tokens"),
		func(s *Tokens, ctx context.Context, q Required) error { return s.Require(ctx, q.By, q.On) })
	NoteRefusals = verb.NewVoid(&Verbs, verb.SystemRule("note-refusals"),
		func(s *Tokens, ctx context.Context, q RefusalsSeen) error {
			return s.NoteRefusals(ctx, q.By, q.Refusals)
		})
)

// Changed is a token, and the nodes that have not confirmed the change.
type Changed struct {
	Token       auth.Token
	Unconfirmed []string
}

// Required sets whether calls need a token, according to one node.
type Required struct {
	By task.Author
	On bool
}

// RefusalsSeen reports callers that a node turned away.
type RefusalsSeen struct {
	By       task.Author
	Refusals Refusals
}

func confirmed(do func(*Tokens, context.Context, Call) (Done, error)) func(*Tokens, context.Context, Call) (Changed, error) {
	return func(s *Tokens, ctx context.Context, q Call) (out Changed, err error) {
		done, err := do(s, ctx, q)
		if out.Unconfirmed, err = s.shard.Confirmed(ctx, done.Version, err); err == nil {
			out.Token = done.Token
		}
		return out, err
	}
}
