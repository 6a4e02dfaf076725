package tokens_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
)

// asking returns a call with a request id.
func asking(n byte, at time.Duration) tokens.Call {
	a := newToken("default", "ci")
	a.Request, a.Asked, a.Overlap = task.ID{15: n}, time.Unix(1000, 0).Add(at), time.Hour
	return a
}

// only returns the one token, as it is written.
func (c *world) only(t *testing.T) auth.Token {
	t.Helper()
	all, err := c.Tokens.List(bg, auth.Everything)
	if must(t, err); len(all) != 1 {
		t.Fatalf("there are %+v", all)
	}
	return all[0]
}

// announces reports whether nodes are told of a change of tokens after a version.
func (c *world) announces(after uint64) bool {
	changes := c.shard.Changes(after)
	return changes.Access && !changes.All
}

// A repeat of the call that added a token replaces its secret, a call under another request id does not; and what a
// repeat was given is valid.
func TestRepeatedAdd(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		_, err := c.Tokens.Add(bg, asking(1, 0))
		must(t, err)
		_, err = c.Tokens.Add(bg, asking(2, time.Second))
		is(t, err, task.ErrConflict, `token "ci" already exists`)
		repeat := asking(1, time.Second)
		before := c.State.Applied().Index
		done, err := c.Tokens.Add(bg, repeat)
		if must(t, err); done.Token.Hash != repeat.Token.Hash || c.only(t).Hash != repeat.Token.Hash || !c.announces(before) {
			t.Errorf("a repeat was given %+v, and %+v is written", done.Token, c.only(t))
		}
		other := asking(1, 2*time.Second)
		other.Life = time.Minute
		_, err = c.Tokens.Add(bg, other)
		is(t, err, task.ErrConflict, "was given to another request")
		if got := c.only(t).Hash; got != repeat.Token.Hash {
			t.Error("a call that was refused has replaced the secret")
		}
		anew := asking(3, 0)
		if done, err := c.Tokens.Rotate(bg, anew); err != nil || done.Token.OldHash != repeat.Token.Hash ||
			c.only(t).Hash != anew.Token.Hash {
			t.Errorf("a rotation under another id: %+v, %v", done.Token, err)
		}
	})
}

// A request may be repeated up to the end of its window.
func TestTheRepeatWindow(t *testing.T) {
	for late, want := range map[time.Duration]error{0: nil, time.Millisecond: task.ErrConflict} {
		inBubble(t, func(t *testing.T, c *world) {
			_, err := c.Tokens.Add(bg, newToken("default", "ci"))
			must(t, err)
			first, err := c.Tokens.Rotate(bg, asking(1, 0))
			must(t, err)
			pass(time.Until(first.Token.RotatedAt.Add(tokens.RepeatWindow).Time()) + late)
			if _, err := c.Tokens.Rotate(bg, asking(1, time.Second)); !errors.Is(err, want) {
				t.Errorf("%v after the window: %v", late, err)
			}
		})
	}
}

// The secret before a rotation stays valid for the overlap, of a token that never expires too.
func TestOverlaps(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		add := newToken("default", "ci")
		add.Life = 0
		_, err := c.Tokens.Add(bg, add)
		must(t, err)
		rotate := newToken("default", "ci")
		rotate.Overlap, rotate.Life = time.Hour, 0
		done, err := c.Tokens.Rotate(bg, rotate)
		if must(t, err); done.Token.OldHash != add.Token.Hash || done.Token.OldUntil != done.Token.RotatedAt.Add(time.Hour) {
			t.Errorf("rotated: %+v", done.Token)
		}
		rotate = newToken("default", "ci")
		done, err = c.Tokens.Rotate(bg, rotate)
		if must(t, err); done.Token.OldHash != (auth.Hash{}) || done.Token.OldUntil != 0 {
			t.Errorf("rotated without an overlap: %+v", done.Token)
		}
		before := c.State.Applied().Index
		_, err = c.Tokens.Revoke(bg, newToken("default", "ci"))
		if must(t, err); !c.announces(before) {
			t.Error("nodes are not told of a revoked token")
		}
	})
}

// Whether tokens are required is written and audited when it changes.
func TestRequire(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		c.Round(func(tx *store.Tx) { c.shard.Note(tx, system.Change{Kind: system.AccessChanged}) })
		for _, on := range []bool{false, true, true, false} {
			before := c.State.Applied().Index
			was := len(c.Audited("default"))
			must(t, c.Tokens.Require(bg, boss, on))
			changed := c.State.Applied().Index != before
			if changed != c.announces(before) || len(c.Audited("default"))-was != map[bool]int{true: 1}[changed] {
				t.Errorf("required %v: written %v, told %v, audited %q", on, changed, c.announces(before), c.Audited("default"))
			}
		}
		for i, want := range []string{`:  → {"tokens_required":true}`, `: {"tokens_required":true} →`} {
			if got := c.Audited("default")[i]; !strings.HasPrefix(got, "boss ") || !strings.HasSuffix(got, want) {
				t.Errorf("audited %s, want %s", got, want)
			}
		}
	})
	inBubble(t, func(t *testing.T, c *world) {
		c.Damage([]byte{'A', 0, 'h'}) // the head of the audit log
		before := c.State.Applied().Index
		if err := c.Tokens.Require(bg, boss, true); err == nil || c.State.Applied().Index != before {
			t.Errorf("with a damaged audit log: %v", err)
		}
	})
}

// Uses of tokens are written together, never an older one over a newer one, and none of a token that is gone.
func TestUses(t *testing.T) {
	inBubble(t, func(t *testing.T, c *world) {
		_, err := c.Tokens.Add(bg, newToken("default", "ci"))
		must(t, err)
		ci := auth.TokenName{Namespace: "default", Name: "ci"}
		at := store.TimeOf(time.Now())
		for _, u := range []struct {
			of       auth.TokenName
			at, want store.Time
			wrote    bool
		}{{ci, at, at, true}, {ci, at - 5, at, false}, {auth.TokenName{Namespace: "default", Name: "gone"}, at, at, false},
			{ci, at + 5, at + 5, true}} {
			c.Tokens.NoteUses([]auth.Use{{Token: u.of, At: u.at}})
			if got := c.only(t).UsedAt; got != u.want {
				t.Errorf("%v at %v: used at %v, want %v", u.of, u.at, got, u.want)
			}
			before := c.State.Applied().Index
			must(t, c.Tokens.WriteUses(bg))
			if got := c.only(t).UsedAt; got != u.want || (c.State.Applied().Index != before) != u.wrote {
				t.Errorf("%v at %v: written as %v in %d rounds, want %v", u.of, u.at, got, c.State.Applied().Index-before, u.want)
			}
		}
		c.Round(func(*store.Tx) {})
		rounds := c.Updates
		if must(t, c.Tokens.WriteUses(bg)); c.Updates != rounds {
			t.Error("no uses were written in a round")
		}
	})
}
