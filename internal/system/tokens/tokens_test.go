package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
)

var (
	bg   = context.Background()
	boss = task.Author{Name: "boss", Interface: task.InterfaceREST}
	is   = systemtest.IsRefusal
)

// world is a system shard, and the tokens and namespaces in it.
type world struct {
	*systemtest.World
	shard      *system.Shard
	Tokens     *tokens.Tokens
	Namespaces *namespaces.Namespaces
	Audit      *auditlog.Log
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, c *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := systemtest.NewWorld(t)
		shard := w.Open(1)
		must(t, shard.Learn(bg))
		fn(t, &world{w, shard, tokens.New(shard), namespaces.New(namespaces.Config{Shard: shard}), auditlog.New(shard)})
	})
}

// pass lets fake time pass, in the bubble that a test is in.
func pass(d time.Duration) { time.Sleep(d) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newToken is the call that adds a token for a namespace, by a caller with all rights.
func newToken(ns, name string) tokens.Call {
	return tokens.Call{By: auth.Everything, Author: boss, Life: time.Hour, Token: auth.Token{Name: name,
		Rights: auth.Rights{Namespace: ns, Roles: auth.Consume, Queues: []string{"mail*"}}, Hash: auth.HashOf(bearer.New())}}
}

func names(t *testing.T, c *world, by auth.Rights) (all []string) {
	t.Helper()
	tokens, err := c.Tokens.List(bg, by)
	must(t, err)
	for _, tok := range tokens {
		all = append(all, tok.Namespace+"/"+tok.Name)
	}
	return all
}

func TestTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		add := newToken("default", "ci")
		first, err := c.Tokens.Add(bg, add)
		must(t, err)
		if got := first.Token; got.CreatedBy != "boss" || got.ExpiresAt != got.CreatedAt.Add(time.Hour) || got.Hash != add.Token.Hash {
			t.Errorf("made: %+v", got)
		}
		if again, err := c.Tokens.Add(bg, add); err != nil || again.Token.CreatedAt != first.Token.CreatedAt {
			t.Errorf("the same call again: %+v, %v", again, err)
		}
		if _, err := c.Tokens.Add(bg, newToken("default", "ci")); !errors.Is(err, task.ErrConflict) {
			t.Errorf("another of that name: %v", err)
		}
		if _, err := c.Tokens.Add(bg, newToken("team", "ci")); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("for a namespace that is not there: %v", err)
		}
		_, err = c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"})
		must(t, err)
		for _, ns := range []string{"team", auth.AllNamespaces} {
			_, err = c.Tokens.Add(bg, newToken(ns, "ci"))
			must(t, err)
		}

		narrow := auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}}
		if got := fmt.Sprint(names(t, c, auth.Everything), names(t, c, narrow),
			names(t, c, auth.Rights{Namespace: "team", Roles: auth.Produce})); got != "[*/ci default/ci team/ci] [team/ci] []" {
			t.Errorf("who sees which tokens: %s", got)
		}
		other := newToken("default", "ci")
		other.By = narrow
		for what, do := range map[string]func(context.Context, tokens.Call) (tokens.Done, error){"revoke": c.Tokens.Revoke,
			"rotate": c.Tokens.Rotate} {
			if _, err := do(bg, other); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%s the token of another namespace: %v", what, err)
			}
		}

		pass(time.Minute)
		rotate := newToken("default", "ci")
		rotate.Overlap, rotate.Life = 2*time.Hour, 0
		turned, err := c.Tokens.Rotate(bg, rotate)
		must(t, err)
		if got := turned.Token; got.Hash != rotate.Token.Hash || got.OldHash != add.Token.Hash || got.OldUntil != first.Token.ExpiresAt ||
			got.ExpiresAt != 0 {
			t.Errorf("rotated: %+v, the old secret must not outlive %v", got, first.Token.ExpiresAt)
		}
		if again, err := c.Tokens.Rotate(bg, rotate); err != nil || again.Token.OldHash != add.Token.Hash {
			t.Errorf("the same rotation again: %+v, %v", again, err)
		}
		_, err = c.Tokens.Revoke(bg, newToken("default", "ci"))
		must(t, err)
		if _, err := c.Tokens.Revoke(bg, newToken("default", "ci")); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("revoked twice: %v", err)
		}
		noted, err := c.Audit.Audit(bg, audit.Query{Namespace: "default", Action: "token.*", Own: true}, nil, 10)
		must(t, err)
		var said []string
		for _, e := range noted.Entries {
			said = append(said, fmt.Sprintf("%s %s by %s", e.Action, e.Target.Name, e.By.Name))
			if strings.Contains(string(e.Before)+string(e.After), "hash") {
				t.Errorf("the audit has a hash: %s, %s", e.Before, e.After)
			}
		}
		if got := strings.Join(said, "; "); got != "token.revoke ci by boss; token.rotate ci by boss; token.add ci by boss" {
			t.Errorf("noted: %s", got)
		}
	})
}

// A first attempt that arrives after its repeat does not invalidate what the repeat was given, and no other caller may repeat it.
func TestLateFirstAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		_, err := c.Tokens.Add(bg, newToken("default", "ci"))
		must(t, err)
		rotate := func(by string, asked time.Duration) tokens.Call {
			a := newToken("default", "ci")
			a.Request, a.Asked, a.Author, a.Overlap = task.ID{15: 1}, time.Unix(1000, 0).Add(asked), task.Author{Name: by}, time.Hour
			return a
		}
		second := rotate("lena", time.Second)
		done, err := c.Tokens.Rotate(bg, second)
		must(t, err)
		for what, a := range map[string]tokens.Call{"one that came before": rotate("lena", 0),
			"one of somebody else": rotate("max", 2*time.Second)} {
			if _, err := c.Tokens.Rotate(bg, a); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(),
				`request_id "00000000-0000-0000-0000-000000000001"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if again, err := c.Tokens.Rotate(bg, second); err != nil || again.Token.Hash != second.Token.Hash ||
			again.Token.RotatedAt != done.Token.RotatedAt {
			t.Errorf("the same call again: %+v, %v", again, err)
		}
		third := rotate("lena", 3*time.Second)
		again, err := c.Tokens.Rotate(bg, third)
		if err != nil || again.Token.Hash != third.Token.Hash || again.Token.OldHash != done.Token.OldHash ||
			again.Token.OldUntil != done.Token.OldUntil {
			t.Errorf("a repeat: %+v, %v", again, err)
		}
		for n, want := range []error{nil, task.ErrConflict} { // the time counts from the first answer
			pass(tokens.RepeatWindow * 6 / 10)
			if _, err := c.Tokens.Rotate(bg, rotate("lena", time.Duration(4+n)*time.Second)); !errors.Is(err, want) {
				t.Errorf("a repeat %d minutes later: %v, want %v", 6*(n+1), err, want)
			}
		}
	})
}

// A certificate belongs to one token only, which has no secret.
func TestTokensForCertificates(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		add := newToken("default", "billing")
		add.Token.Certificate, add.Life = "dns:billing", 0
		add.Token.Hash = auth.HashOfCertificate(add.Token.Certificate)
		first, err := c.Tokens.Add(bg, add)
		must(t, err)
		if again, err := c.Tokens.Add(bg, add); err != nil || again.Token.CreatedAt != first.Token.CreatedAt ||
			again.Token.Certificate != "dns:billing" {
			t.Errorf("the same call again: %+v, %v", again, err)
		}
		other := add
		other.Token.Name, other.Token.Namespace = "thief", auth.AllNamespaces
		if _, err := c.Tokens.Add(bg, other); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(),
			`already belongs to token "billing" of namespace "default"`) {
			t.Errorf("another token for it: %v", err)
		}
		rotate := newToken("default", "billing")
		if _, err := c.Tokens.Rotate(bg, rotate); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), "has no secret") {
			t.Errorf("rotated: %v", err)
		}
		_, err = c.Tokens.Revoke(bg, add)
		must(t, err)
		if _, err := c.Tokens.Add(bg, other); err != nil {
			t.Errorf("another token for it, when it is nobody's: %v", err)
		}
	})
}

// Tokens that expired long ago make room.
func TestExpiredTokensAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		c.Round(func(tx *store.Tx) {
			for name, ago := range map[string]time.Duration{"ancient": tokens.ForgetAfter + time.Minute,
				"old": tokens.ForgetAfter - time.Minute} {
				old := newToken("default", name).Token
				old.ExpiresAt = tx.Now().Add(-ago)
				tx.Set(system.Key(system.TokenTable, old.Namespace, old.Name), system.EncodeRow(old))
			}
		})
		_, err := c.Tokens.Add(bg, newToken("default", "new"))
		must(t, err)
		if got := fmt.Sprint(names(t, c, auth.Everything)); got != "[default/new default/old]" {
			t.Errorf("tokens: %s", got)
		}
	})
}

// Adding tokens in one namespace leaves room for those of others, and all leave some for tokens of all namespaces.
func TestNamespaceLeavesRoomForTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		fill := func(ns string, count int) {
			t.Helper()
			_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: ns})
			must(t, err)
			c.Round(func(tx *store.Tx) {
				for n := range count {
					made := newToken(ns, fmt.Sprint("t", n)).Token
					tx.Set(system.Key(system.TokenTable, ns, made.Name), system.EncodeRow(made))
				}
			})
			_, err = c.Tokens.Add(bg, newToken(ns, "last"))
			must(t, err)
			_, err = c.Tokens.Add(bg, newToken(ns, "more"))
			is(t, err, task.ErrInvalidArgument, fmt.Sprintf("the limit of %d tokens in namespace %q", count+1, ns))
		}
		fill("default", 2499)
		for n := range 4 {
			fill(fmt.Sprint("team-", n), 499)
		}
		_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "late"})
		must(t, err)
		_, err = c.Tokens.Add(bg, newToken("late", "ci"))
		is(t, err, task.ErrInvalidArgument, "the limit of 4500 tokens for single namespaces")
		_, err = c.Tokens.Add(bg, newToken(auth.AllNamespaces, "oncall"))
		must(t, err)
		_, err = c.Tokens.Revoke(bg, newToken("team-0", "last"))
		must(t, err)
		_, err = c.Tokens.Add(bg, newToken("late", "ci"))
		must(t, err)
	})
}
