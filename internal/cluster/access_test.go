package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
)

var boss = task.Author{Name: "boss", Interface: task.InterfaceREST}

// newToken is the call that adds a token for a namespace, by a caller with all rights.
func newToken(ns, name string) tokens.Call {
	return tokens.Call{By: auth.Everything, Author: boss, Life: time.Hour, Token: auth.Token{Name: name,
		Rights: auth.Rights{Namespace: ns, Roles: auth.Consume, Queues: []string{"mail*"}}, Hash: auth.HashOf(bearer.New())}}
}

func TestNamespaces(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
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
			if _, err := c.Namespaces.Remove(bg, boss, "team"); !errors.Is(err, task.ErrWrongState) ||
				!strings.Contains(err.Error(), what) {
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
		c := w.open(1)
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
		calls := map[string]func() (uint64, error){
			"a namespace": func() (uint64, error) { return c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"}) },
			"its quotas": func() (uint64, error) {
				return c.Namespaces.SetQuotas(bg, boss, "team", task.QuotaChange{task.QuotaQueues: 7})
			},
			"a token": func() (uint64, error) {
				again := newToken("default", "ci")
				again.Token.Hash = made.Token.Hash
				done, err := c.Tokens.Add(bg, again)
				return done.Version, err
			},
			"its rotation": func() (uint64, error) {
				again := newToken("default", "ci")
				again.Token.Hash = made.Token.Hash
				done, err := c.Tokens.Rotate(bg, again)
				return done.Version, err
			},
		}
		for _, what := range []string{"a namespace", "its quotas", "a token", "its rotation"} {
			for n := range 2 {
				version, err := calls[what]()
				must(t, err)
				synctest.Wait()
				began := time.Now()
				if behind, err := c.Copies.Confirm(bg, version); err != nil || len(behind) != 0 || time.Since(began) != 0 {
					t.Errorf("%s, call %d: %v are behind after %s, %v", what, n, behind, time.Since(began), err)
				}
			}
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
		if behind, err := c.Copies.Confirm(bg, gone.Version); err != nil || fmt.Sprint(behind) != "[n1]" ||
			time.Since(began) != confirmTime {
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
		c := w.open(1)
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
