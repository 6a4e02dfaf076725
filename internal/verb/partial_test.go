package verb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Shards that hang, have no leader or fail are missing in an answer, which has what the others say. A refusal is the
// answer of all, and a bug no answer.
func TestAskShards(t *testing.T) {
	odd := task.Invalid("id", "is odd")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	is := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for _, c := range []struct {
		what    string
		answers map[uint32]func(context.Context) error // nil: it answers
		want    string
		took    time.Duration
		err     error
	}{
		{"all answer", nil, "[10 20 30] []", 0, nil},
		{"one hangs", map[uint32]func(context.Context) error{2: hang}, "[10 0 30] [shard 2 did not answer in time]", PartTime, nil},
		{"one has no leader", map[uint32]func(context.Context) error{3: is(task.Unavailable(time.Second, "no leader"))},
			"[10 20 0] [shard 3 no leader]", 0, nil},
		{"one fails, two hang", map[uint32]func(context.Context) error{3: is(errors.New("secret")), 2: hang, 1: hang},
			"[0 0 0] [shard 1 did not answer in time shard 2 did not answer in time shard 3 failed with an internal error]", PartTime, nil},
		{"one refuses", map[uint32]func(context.Context) error{3: is(odd), 1: is(task.Unavailable(time.Second, "no leader"))}, "[] []", 0,
			odd},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, shards := time.Now(), []uint32{1, 2, 3}
			got, err := AskShards(t.Context(), shards, func(ctx context.Context, i int) (int, error) {
				if answer := c.answers[shards[i]]; answer != nil {
					return 7, answer(ctx)
				}
				return 10 * int(shards[i]), nil
			})
			var missing []string
			for _, m := range got.Missing {
				missing = append(missing, m.String()+" "+m.Why)
			}
			if text := fmt.Sprint(got.Value, missing); text != c.want || !errors.Is(err, c.err) || time.Since(began) != c.took {
				t.Errorf("%s: %s, %v after %s; want %s, %v after %s", c.what, text, err, time.Since(began), c.want, c.err, c.took)
			}
			if err := got.CheckAny(len(shards)); (err != nil) != (len(got.Missing) == 3) {
				t.Errorf("%s: whether anybody answered: %v", c.what, err)
			}
		})
	}
	broken := errors.New("broken")
	if got, err := AskShards(t.Context(), []uint32{1}, func(context.Context, int) (int, error) { return 0, broken }); err != nil ||
		got.CheckAny(1) != broken {
		t.Errorf("the only shard fails: %v, %v", got, err)
	}
	if _, err := AskShards(t.Context(), []uint32{1}, func(context.Context, int) (int, error) { panic("ouch") }); err == nil ||
		!strings.Contains(err.Error(), "panic: ouch") {
		t.Errorf("a panic is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := AskShards(ctx, []uint32{1, 2}, func(ctx context.Context, i int) (int, error) { cancel(); return i, nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a caller who has gone gets %v", err)
	}
	if got, err := AskShards(t.Context(), nil, func(context.Context, int) (int, error) { return 0, nil }); err != nil ||
		got.CheckAny(0) != nil {
		t.Errorf("no shards: %v, %v", got, err)
	}
}

// What runs on shards runs on all of them at once: neither those that hang nor those that are slow keep others waiting, however many they
// are.
func TestRunOnShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := make([]uint32, 64)
		for i := range shards {
			shards[i] = uint32(i + 1)
		}
		var done atomic.Int32
		began := time.Now()
		out, err := RunOnShards(t.Context(), shards, func(ctx context.Context, i int) error {
			if i < 20 {
				<-ctx.Done()
			}
			return ctx.Err()
		}, func(_ context.Context, i int) error {
			if time.Sleep(time.Minute); i == 63 {
				return task.ErrUnavailable
			}
			done.Add(1)
			return nil
		})
		if took := time.Since(began); err != nil || took != time.Minute || done.Load() != 43 || len(out.Missing) != 21 {
			t.Errorf("after %v it is done in %d shards, and not in %v: %v; want 43 after a minute", took, done.Load(), out.Missing, err)
		}
	})
}

// What is missing in several answers is named once, nodes first.
func TestJoinMissing(t *testing.T) {
	got := JoinMissing([]Missing{{Shard: 10, Why: "a"}, {Node: "n2", Why: "b"}, {Shard: 2}}, nil, []Missing{{Node: "n1"}, {Shard: 0},
		{Node: "n2", Why: "c"}, {Shard: 10, Why: "d"}})
	if text := fmt.Sprint(got); text != `[node "n1" node "n2" shard 0 shard 2 shard 10]` || got[1].Why != "b" || got[4].Why != "a" {
		t.Errorf("joined: %s, %+v", text, got)
	}
}
