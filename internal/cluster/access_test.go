package cluster

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
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/namespaces"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/cluster/tokens"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

var boss = task.Author{Name: "boss", Face: task.FaceREST}

// newToken is the call that adds a token for a namespace, by a caller with all rights.
func newToken(ns, name string) tokens.Call {
	return tokens.Call{By: auth.Everything, Author: boss, Life: time.Hour, Token: auth.Token{Name: name,
		Rights: auth.Rights{Namespace: ns, Roles: auth.Consume, Queues: []string{"mail*"}}, Hash: auth.HashOf(auth.NewSecret())}}
}

func names(t *testing.T, c *Control, by auth.Rights) (all []string) {
	t.Helper()
	tokens, err := c.Tokens.List(bg, by)
	must(t, err)
	for _, tok := range tokens {
		all = append(all, tok.Namespace+"/"+tok.Name)
	}
	return all
}

func TestTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		add := newToken("default", "ci")
		first, err := c.Tokens.Add(bg, add)
		must(t, err)
		if got := first.Token; got.CreatedBy != "boss" || got.ExpiresAt != got.CreatedAt.Add(time.Hour) || got.Hash != add.Token.Hash {
			t.Errorf("Add returned the token %+v, want it created by boss, with its hash and a life of one hour", got)
		}
		if again, err := c.Tokens.Add(bg, add); err != nil || again.Token.CreatedAt != first.Token.CreatedAt {
			t.Errorf("repeating the same Add: %+v, %v, want the first token", again, err)
		}
		if _, err := c.Tokens.Add(bg, newToken("default", "ci")); !errors.Is(err, task.ErrConflict) {
			t.Errorf("adding a second token with the same name: %v, want ErrConflict", err)
		}
		if _, err := c.Tokens.Add(bg, newToken("team", "ci")); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("adding a token to a namespace that does not exist: %v, want ErrNotFound", err)
		}
		_, err = c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"})
		must(t, err)
		for _, ns := range []string{"team", auth.AllNamespaces} {
			_, err = c.Tokens.Add(bg, newToken(ns, "ci"))
			must(t, err)
		}

		narrow := auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}}
		if got := fmt.Sprint(names(t, c, auth.Everything), names(t, c, narrow), names(t, c, auth.Rights{Namespace: "team", Roles: auth.Produce})); got != "[*/ci default/ci team/ci] [team/ci] []" {
			t.Errorf("tokens visible to everything, to an admin of team, and to a producer of team: %s", got)
		}
		other := newToken("default", "ci")
		other.By = narrow
		for what, do := range map[string]func(context.Context, tokens.Call) (tokens.Done, error){"revoke": c.Tokens.Revoke, "rotate": c.Tokens.Rotate} {
			if _, err := do(bg, other); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%s of a token in another namespace: %v, want ErrNotFound", what, err)
			}
		}

		pass(time.Minute)
		rotate := newToken("default", "ci")
		rotate.Overlap, rotate.Life = 2*time.Hour, 0
		turned, err := c.Tokens.Rotate(bg, rotate)
		must(t, err)
		if got := turned.Token; got.Hash != rotate.Token.Hash || got.OldHash != add.Token.Hash || got.OldUntil != first.Token.ExpiresAt || got.ExpiresAt != 0 {
			t.Errorf("Rotate returned %+v, want the old secret to expire at %v", got, first.Token.ExpiresAt)
		}
		if again, err := c.Tokens.Rotate(bg, rotate); err != nil || again.Token.OldHash != add.Token.Hash {
			t.Errorf("repeating the same Rotate: %+v, %v", again, err)
		}
		_, err = c.Tokens.Revoke(bg, newToken("default", "ci"))
		must(t, err)
		if _, err := c.Tokens.Revoke(bg, newToken("default", "ci")); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("revoking a token twice: %v, want ErrNotFound", err)
		}
		noted, err := c.Audit.Audit(bg, audit.Query{Namespace: "default", Action: "token.*", Own: true}, nil, 10)
		must(t, err)
		var said []string
		for _, e := range noted.Entries {
			said = append(said, fmt.Sprintf("%s %s by %s", e.Action, e.Target.Name, e.By.Name))
			if strings.Contains(string(e.Before)+string(e.After), "hash") {
				t.Errorf("the audit log contains a hash: %s, %s", e.Before, e.After)
			}
		}
		if got := strings.Join(said, "; "); got != "token.revoke ci by boss; token.rotate ci by boss; token.add ci by boss" {
			t.Errorf("the audit log has: %s", got)
		}
	})
}

// A first attempt that arrives after its repeat does not invalidate the secret that the repeat returned, and no other caller may repeat it.
func TestTokensAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
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
		for what, a := range map[string]tokens.Call{"one that came before": rotate("lena", 0), "one of somebody else": rotate("max", 2*time.Second)} {
			if _, err := c.Tokens.Rotate(bg, a); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(), `request_id "00000000-0000-0000-0000-000000000001"`) {
				t.Errorf("%s: %v, want ErrConflict with the request's id", what, err)
			}
		}
		if again, err := c.Tokens.Rotate(bg, second); err != nil || again.Token.Hash != second.Token.Hash || again.Token.RotatedAt != done.Token.RotatedAt {
			t.Errorf("repeating the same Rotate: %+v, %v", again, err)
		}
		third := rotate("lena", 3*time.Second)
		again, err := c.Tokens.Rotate(bg, third)
		if err != nil || again.Token.Hash != third.Token.Hash || again.Token.OldHash != done.Token.OldHash || again.Token.OldUntil != done.Token.OldUntil {
			t.Errorf("a repeat with another secret: %+v, %v, want the new hash and the unchanged old one", again, err)
		}
		for n, want := range []error{nil, task.ErrConflict} { // the window counts from the first answer
			pass(tokens.RepeatWindow * 6 / 10)
			if _, err := c.Tokens.Rotate(bg, rotate("lena", time.Duration(4+n)*time.Second)); !errors.Is(err, want) {
				t.Errorf("a repeat %d minutes later: %v, want %v", 6*(n+1), err, want)
			}
		}
	})
}

// A certificate belongs to one token only, which has no secret.
func TestTokensForCertificates(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		add := newToken("default", "billing")
		add.Token.Certificate, add.Life = "dns:billing", 0
		add.Token.Hash = auth.HashOfCertificate(add.Token.Certificate)
		first, err := c.Tokens.Add(bg, add)
		must(t, err)
		if again, err := c.Tokens.Add(bg, add); err != nil || again.Token.CreatedAt != first.Token.CreatedAt || again.Token.Certificate != "dns:billing" {
			t.Errorf("repeating the same Add: %+v, %v", again, err)
		}
		other := add
		other.Token.Name, other.Token.Namespace = "thief", auth.AllNamespaces
		if _, err := c.Tokens.Add(bg, other); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(), `already belongs to token "billing" of namespace "default"`) {
			t.Errorf("adding a second token for the same certificate: %v, want ErrConflict", err)
		}
		rotate := newToken("default", "billing")
		if _, err := c.Tokens.Rotate(bg, rotate); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), "has no secret") {
			t.Errorf("rotating a token without a secret: %v, want ErrWrongState", err)
		}
		_, err = c.Tokens.Revoke(bg, add)
		must(t, err)
		if _, err := c.Tokens.Add(bg, other); err != nil {
			t.Errorf("adding a token for a certificate whose token was revoked: %v", err)
		}
	})
}

func TestTokensNeedTheLevel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel-1, 1)
		_, err := c.Tokens.Add(bg, newToken("default", "ci"))
		_, err2 := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"})
		if err3 := c.Tokens.Require(bg, boss, true); !errors.Is(err, task.ErrWrongState) || !errors.Is(err2, task.ErrWrongState) || !errors.Is(err3, task.ErrWrongState) {
			t.Errorf("tokens below the feature level: Add, Namespaces.Add and Require returned %v, %v, %v, want ErrWrongState", err, err2, err3)
		}
	})
}

// Tokens that expired long ago are removed when a new one is added.
func TestExpiredTokensAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		must(t, w.leader.Update(bg, func(tx *store.Tx) error {
			for name, ago := range map[string]time.Duration{"ancient": tokens.ForgetAfter + time.Minute, "old": tokens.ForgetAfter - time.Minute} {
				old := newToken("default", name).Token
				old.ExpiresAt = tx.Now().Add(-ago)
				tx.Set(system.Key(system.TokenTable, old.Namespace, old.Name), system.EncodeRow(old))
			}
			return nil
		}))
		_, err := c.Tokens.Add(bg, newToken("default", "new"))
		must(t, err)
		if got := fmt.Sprint(names(t, c, auth.Everything)); got != "[default/new default/old]" {
			t.Errorf("tokens after adding one: %s, want only default/new and default/old", got)
		}
	})
}

func TestNamespaces(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		if _, err := c.Queues.PutQueue(bg, auditlog.Action{}, "team", "mail", asItIs); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("creating a queue in a namespace that does not exist: %v, want ErrNotFound", err)
		}
		if _, err := c.Schedules.NameSchedule(bg, "team", "nightly", 1); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("naming a schedule in a namespace that does not exist: %v, want ErrNotFound", err)
		}
		for range 2 {
			_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"})
			must(t, err)
		}
		for what, fill := range map[string]struct{ fill, empty func() error }{
			"queues": {func() error {
				_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "team", "mail", asItIs)
				return err
			},
				func() error { return c.Queues.DropQueue(bg, task.Author{}, "team", "mail") }},
			"tokens": {func() error { _, err := c.Tokens.Add(bg, newToken("team", "ci")); return err },
				func() error { _, err := c.Tokens.Revoke(bg, newToken("team", "ci")); return err }},
		} {
			must(t, fill.fill())
			if _, err := c.Namespaces.Remove(bg, boss, "team"); !errors.Is(err, task.ErrWrongState) || !strings.Contains(err.Error(), what) {
				t.Errorf("removing a namespace that has %s: %v, want ErrWrongState", what, err)
			}
			must(t, fill.empty())
		}
		all, err := c.Namespaces.List(bg)
		if err != nil || len(all) != 2 || all[0].Name != "default" || all[1].CreatedBy != "boss" {
			t.Errorf("namespaces are %+v, %v, want default and one created by boss", all, err)
		}
		_, err = c.Namespaces.Remove(bg, boss, "team")
		must(t, err)
		if _, err := c.Namespaces.Remove(bg, boss, "team"); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("removing a namespace twice: %v, want ErrNotFound", err)
		}
		if _, err := c.Namespaces.Remove(bg, boss, "default"); !errors.Is(err, task.ErrWrongState) {
			t.Errorf("removing the default namespace: %v, want ErrWrongState", err)
		}
	})
}

// Copies receive every change, and a change is confirmed once they have it.
func TestAccessIsCopiedAndConfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		var heard []auth.Access
		copied := NewCopy(nil)
		copied.OnAccess(func(a auth.Access) { heard = append(heard, a) })
		follow, stop := context.WithCancel(bg)
		done := make(chan struct{})
		go func() {
			defer close(done)
			copied.Follow(follow, func(ctx context.Context, after uint64, wait time.Duration) (Delta, error) {
				return c.Copies.Changes(ctx, after, Report{Node: 1}, wait)
			}, func(time.Time) {})
		}()
		pass(time.Second)
		made, err := c.Tokens.Add(bg, newToken("default", "ci"))
		must(t, err)
		began := time.Now()
		if behind, err := c.Copies.Confirm(bg, made.Version); err != nil || len(behind) != 0 || time.Since(began) > confirmTime/2 {
			t.Errorf("Confirm = %v, %v after %v, want no nodes behind", behind, err, time.Since(began))
		}
		if last := heard[len(heard)-1]; len(last.Tokens) != 1 || last.Tokens[0].Name != "ci" || last.Required {
			t.Errorf("the last copy of the tokens is %+v, want one token, not required", last)
		}
		must(t, c.Tokens.Require(bg, boss, true))
		synctest.Wait()
		if last := heard[len(heard)-1]; !last.Required || len(last.Tokens) != 1 {
			t.Errorf("after Require the last copy is %+v, want one token, required", last)
		}
		before := len(heard)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "mail", asItIs)
		must(t, err)
		pass(3 * time.Second)
		if len(heard) != before {
			t.Errorf("a change of a queue caused %d copies of the tokens, want 0", len(heard)-before)
		}
		stop()
		<-done
		gone, err := c.Tokens.Revoke(bg, newToken("default", "ci"))
		must(t, err)
		began = time.Now()
		if behind, err := c.Copies.Confirm(bg, gone.Version); err != nil || fmt.Sprint(behind) != "[n1]" || time.Since(began) != confirmTime {
			t.Errorf("without a follower: Confirm = %v, %v after %v, want [n1] after its full wait", behind, err, time.Since(began))
		}
		pass(aliveFor)
		began = time.Now()
		if behind, err := c.Copies.Confirm(bg, gone.Version); err != nil || fmt.Sprint(behind) != "[n1]" || time.Since(began) != 0 {
			t.Errorf("with a node that is not alive: Confirm = %v, %v after %v, want [n1] immediately", behind, err, time.Since(began))
		}
	})
}

// A token's last use is visible immediately, and written within minutes.
func TestTokenUses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		made, err := c.Tokens.Add(bg, newToken("default", "ci"))
		must(t, err)
		used := func() store.Time {
			t.Helper()
			all, err := c.Tokens.List(bg, auth.Everything)
			must(t, err)
			return all[0].UsedAt
		}
		at := store.TimeOf(time.Now().Truncate(time.Minute))
		tell := func(of auth.TokenName) {
			t.Helper()
			_, err := c.Copies.Changes(bg, made.Version, Report{Node: 1, Uses: []auth.Use{{Token: of, At: at}}}, 0)
			must(t, err)
		}
		tell(made.Token.ID())
		tell(auth.TokenName{Namespace: "default", Name: "gone"})
		if used() != at {
			t.Errorf("UsedAt after a report is %v, want %v", used(), at)
		}
		index := w.State.Applied().Index
		pass(2 * queues.RetireEvery)
		if wrote := w.State.Applied().Index - index; wrote != 1 || used() != at {
			t.Errorf("got %d writes and last use %v, want 1 and %v", wrote, used(), at)
		}
		c.Elected() // discards what it had in memory
		if used() != at {
			t.Errorf("UsedAt after another election is %v, want %v", used(), at)
		}
	})
}

// Tokens of one namespace leave room for those of other namespaces, and all of them leave some for tokens of all namespaces.
func TestTokensOfANamespaceLeaveRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 1)
		fill := func(ns string, count int) {
			t.Helper()
			_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: ns})
			must(t, err)
			must(t, w.leader.Update(bg, func(tx *store.Tx) error {
				for n := range count {
					made := newToken(ns, fmt.Sprint("t", n)).Token
					tx.Set(system.Key(system.TokenTable, ns, made.Name), system.EncodeRow(made))
				}
				return nil
			}))
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
