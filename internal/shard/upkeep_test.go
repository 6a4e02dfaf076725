package shard

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// onLoop runs fn on the loop of a bench.
func (b *bench) onLoop(fn func(*loop)) {
	b.t.Helper()
	done := make(chan struct{})
	if err := b.runOnLoop(b.t.Context(), func(l *loop) { defer close(done); fn(l) }); err != nil {
		b.t.Fatal(err)
	}
	<-done
}

// Zero values get the documented defaults.
func TestDefaults(t *testing.T) {
	var c Config
	c.setDefaults()
	want := Limits{RoundBytes: 4 << 20, RoundCalls: 4096, CallBytes: 16 << 20, ReplayBytes: 64 << 20, ReplayEntries: 100_000,
		KeepBytes: 256 << 20}
	if c.Limits != want || c.TickInterval != 100*time.Millisecond || c.ElectionTicks != 10 {
		t.Errorf("the defaults are %+v, %v, %d", c.Limits, c.TickInterval, c.ElectionTicks)
	}
	if got := c.Node(5<<32 | 7); got != "7" {
		t.Errorf("node 7 is called %q", got)
	}
	c.Fatal(nil)
	c.Logger.Info("nobody hears it")
	c.Hooks.Elected(LeaderTerm{})
	c.Hooks.BeforeSeal(nil)
	c.Hooks.Committed(nil, Stamp{})
	c.Hooks.Dropped(true)
	mine := &struct{ noObserver }{}
	c = Config{Observe: mine, Node: func(uint64) string { return "n7" }, Limits: Limits{RoundCalls: 1}}
	if c.setDefaults(); c.Observe != mine || c.Node(7) != "n7" || c.Limits.RoundCalls != 1 {
		t.Errorf("the given values became %+v", c)
	}
}

// A trail knows where each step began, for as many of the last steps as are kept.
func TestTrail(t *testing.T) {
	tr := trail{step: 100}
	for i, c := range []struct {
		bytes int
		want  []uint64
	}{{99, nil}, {1, []uint64{2}}, {100, []uint64{2, 3}}, {50, []uint64{2, 3}}, {500, []uint64{2, 3, 5}}, {99, []uint64{2, 3, 5}},
		{1, []uint64{2, 3, 5, 7}}} {
		if tr.add(uint64(i+1), c.bytes); !slices.Equal(tr.from, c.want) { // #nosec G115 -- small
			t.Errorf("after entry %d the trail is %v, want %v", i+1, tr.from, c.want)
		}
	}
	for steps, want := range []uint64{7, 5, 3, 2, 0, 0} {
		if got := tr.end(steps); got != want {
			t.Errorf("end(%d) = %d, want %d", steps, got, want)
		}
	}
	for i := range uint64(maxTrail) {
		tr.add(100+i, 100)
	}
	if len(tr.from) != maxTrail || tr.from[0] != 100 || tr.end(maxTrail-1) != 100 {
		t.Errorf("the trail has %d steps from %d", len(tr.from), tr.from[0])
	}
}

// The state is flushed when more of the log than allowed is not flushed yet, and again whenever that happens.
func TestFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 10
		b := startBench(t, fixture{limits: Limits{ReplayEntries: entries}})
		defer b.close()
		durable := func() uint64 {
			at, err := b.state.Durable()
			if err != nil {
				t.Fatal(err)
			}
			return at.Index
		}
		begins := b.status().First
		for range 3 {
			for b.state.Applied().Index+1-begins < entries {
				if _, err := b.set("k", "v"); err != nil {
					t.Fatal(err)
				}
			}
			before := durable()
			time.Sleep(time.Second)
			if got := durable(); got != before {
				t.Errorf("with %d entries in the log the state was flushed up to %d", entries, got)
			}
			at, err := b.set("k", "v")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := durable(); got != at.Index {
				t.Errorf("with one more entry the state is flushed up to %d, want %d", got, at.Index)
			}
			b.onLoop(func(l *loop) {
				if l.upkeep.bytes != 0 || l.upkeep.from != at.Index || l.upkeep.flushing {
					t.Errorf("after a flush up to %d, %d bytes after entry %d count as unflushed", at.Index, l.upkeep.bytes, l.upkeep.from)
				}
			})
			if begins = b.status().First; begins != at.Index+1 {
				t.Errorf("the log begins at %d, want it truncated up to %d", begins, at.Index)
			}
		}
	})
}

// A few large entries are flushed as well as many small ones, and those that a restart has applied again count, too.
func TestFlushesByBytes(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limits := Limits{ReplayBytes: 10_000}
			b := startBench(t, fixture{limits: limits})
			for range 3 {
				for i, size := range []int{9000, 2000} {
					before, err := b.state.Durable()
					if err != nil {
						t.Fatal(err)
					}
					at, err := b.set("k", strings.Repeat("v", size))
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					now, err := b.state.Durable()
					if want := []uint64{before.Index, at.Index}[i]; err != nil || now.Index != want {
						t.Errorf("after another %d bytes the state is flushed up to %d, %v, want %d; restarts: %v", size, now.Index,
							err, want, restarts)
					}
					if restarts {
						b = startBench(t, fixture{mem: b.stopped(), limits: limits})
						time.Sleep(time.Second)
					}
				}
			}
			b.close()
		})
	}
}

// A replica counts as active for as long as it is heard from, and for five seconds after.
func TestActiveReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := calmGroup(t)
		l := w.leader()
		silent, other := w.nodes[l.num%3], w.nodes[(l.num+1)%3]
		check := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			st, err := l.shard.Status(t.Context())
			if err != nil || st.Progress[silent.id].Active != want || !st.Progress[other.id].Active {
				t.Errorf("%+v, %v, want that replica %d is active and that of %d: %v", st.Progress, err, other.id, silent.id, want)
			}
		}
		check(time.Minute, true)
		w.isolate(silent.num, true, true)
		check(4*time.Second, true)
		check(4*time.Second, false)
		w.heal()
		check(4*time.Second, true)
		w.endAll()
	})
}

// status returns the status of a bench.
func (b *bench) status() Status {
	b.t.Helper()
	st, err := b.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// A leader keeps the log for silent replicas, within bounds; a follower keeps little; and nothing unflushed is ever removed.
func TestLogIsKeptForLaggingReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 11, 3, new(sometimes))
		w.calm, w.keepBytes = true, 16<<10 // a step is 1 KiB
		for _, n := range w.nodes {
			n.start(0)
		}
		l := w.leader()
		dead, follower := w.nodes[l.num%3], w.nodes[(l.num+1)%3].alive()
		write := func(n int) (at Stamp) {
			for range n {
				_, stamp, err := Update(t.Context(), l.shard, func(tx *store.Tx) (int, error) {
					tx.Set([]byte("k"), []byte(strings.Repeat("v", 1<<10)))
					return 0, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				at = stamp
			}
			time.Sleep(time.Second)
			for _, m := range []*life{l, follower} {
				if err := m.state.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond * (silentTicks + 2*checkTicks))
			return at
		}
		kept := func(m *life) uint64 {
			st, err := m.shard.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (st.Progress != nil) != (m == l) {
				t.Errorf("replica %d reports the others' progress: %v", m.id, st.Progress)
			}
			return st.Last + 1 - st.First
		}
		write(40)
		if n := kept(l); n != 0 {
			t.Errorf("with all replicas up to date the leader keeps %d entries, want none", n)
		}
		if n := kept(follower); n != 1 {
			t.Errorf("a follower keeps %d entries, want one step", n)
		}
		dead.end(false)
		write(30)
		if n := kept(l); n != 16 {
			t.Errorf("for a silent replica the leader keeps %d entries, want 16 steps", n)
		}
		w.endAll()
	})
}
