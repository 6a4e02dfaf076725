package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/store"
)

func updateOf(owner string) *call {
	c := newCall(context.Background())
	c.owner, c.update = owner, func(*store.Tx) error { return nil }
	return c
}

func owners(calls []*call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.owner)
	}
	return b.String()
}

// An owner that never stops calling delays others by one of its calls at most, even if a round had no room for all that it took.
func TestOwnersTakeTurns(t *testing.T) {
	q := newQueue()
	push := func(s string) {
		t.Helper()
		for _, owner := range s {
			if err := q.push(updateOf(string(owner))); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(n int, want string) []*call {
		t.Helper()
		got := q.takeUpdates(n)
		if owners(got) != want {
			t.Fatalf("took %q, want %q", owners(got), want)
		}
		return got
	}
	push("aaaaaa")
	expect(2, "aa")
	push("b")
	expect(2, "ab")
	push("cbc")
	took := expect(5, "acbac")
	push("d")
	q.putBack(took[2:]) // b, a, c
	expect(3, "adb")
	push("b")
	expect(9, "cab")
	if q.hasUpdates() || len(q.lines)+len(q.turns) > 0 {
		t.Errorf("the queue is empty, but still has turns %v", q.turns)
	}
	for range maxWaitingOf {
		push("a")
	}
	if err := q.push(updateOf("a")); !errors.Is(err, ErrBusy) {
		t.Errorf("a call over the owner's limit returned %v, want ErrBusy", err)
	}
	push("b")
}

// Whatever is taken and put back, each owner's calls stay in order, and none is lost or repeated.
func TestTurnsKeepOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		q, pushed, taken := newQueue(), map[string][]*call{}, map[string][]*call{}
		take := func(n int) {
			got := q.takeUpdates(n)
			keep := rng.IntN(len(got) + 1)
			for _, c := range got[:keep] {
				taken[c.owner] = append(taken[c.owner], c)
			}
			q.putBack(got[keep:])
		}
		for range 100 {
			if rng.IntN(3) > 0 {
				c := updateOf(string(rune('a' + rng.IntN(4))))
				pushed[c.owner] = append(pushed[c.owner], c)
				if err := q.push(c); err != nil {
					t.Fatal(err)
				}
			} else {
				take(rng.IntN(9))
			}
		}
		for q.hasUpdates() {
			take(100)
		}
		for owner, calls := range pushed {
			if fmt.Sprint(calls) != fmt.Sprint(taken[owner]) {
				t.Fatalf("seed %d: owner %s pushed %d calls, and %d were taken, or in another order", seed, owner,
					len(calls), len(taken[owner]))
			}
		}
	}
}
