package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
)

// A queue is over above either threshold, and under it again at four fifths of each that is set.
func TestThresholds(t *testing.T) {
	const minute = time.Minute
	for _, s := range []struct {
		depthOver   int64
		waitOver    time.Duration
		ready       int64
		wait        time.Duration
		over, under bool
	}{
		{10, 0, 11, 0, true, false}, {10, 0, 10, 0, false, false}, {10, 0, 9, 0, false, false}, {10, 0, 8, 0, false, true},
		{10, 0, 0, 99 * minute, false, true}, {1, 0, 2, 0, true, false}, {1, 0, 1, 0, false, false}, {1, 0, 0, 0, false, true},
		{0, 10 * minute, 0, 10*minute + 1, true, false}, {0, 10 * minute, 0, 10 * minute, false, false},
		{0, 10 * minute, 0, 8*minute + 1, false, false}, {0, 10 * minute, 0, 8 * minute, false, true},
		{0, 10 * minute, 999, 0, false, true}, {0, time.Second, 5, time.Second + 1, true, false}, {10, 10 * minute, 11, 0, true, false},
		{10, 10 * minute, 0, 11 * minute, true, false}, {10, 10 * minute, 9, 0, false, false},
		{10, 10 * minute, 0, 9 * minute, false, false}, {10, 10 * minute, 8, 8 * minute, false, true},
	} {
		h, d := &Webhook{DepthOver: s.depthOver, WaitOver: s.waitOver}, Depth{Queue: "q", Ready: s.ready, Wait: s.wait}
		if h.exceeds(d) != s.over || h.under(d) != s.under || !h.hasThreshold() {
			t.Errorf("%+v: over %t, under %t", s, h.exceeds(d), h.under(d))
		}
	}
	if h := (&Webhook{}); h.hasThreshold() || h.exceeds(Depth{Ready: 99, Wait: time.Hour}) {
		t.Error("a webhook without a threshold has one")
	}
	for told, want := range map[store.Time]bool{0: false, 1: false, store.Time(time.Minute / 1000): false, store.Time(time.Minute/1000) +
		1: true, store.Time(2 * time.Minute / 1000): true} {
		if got := recently(told, store.Time(2*time.Minute/1000)); got != want {
			t.Errorf("told at %d: recently %t, want %t", told, got, want)
		}
	}
}

// The depths of the queues of all webhooks with a threshold are requested together, and waits only if one asks for them.
func TestRequestedDepths(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		var mu sync.Mutex
		var calls []string
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(ctx context.Context, ns string, patterns []string,
			since bool) ([]Depth, bool) {
			slices.Sort(patterns)
			until, _ := ctx.Deadline()
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint(ns, patterns, since, time.Until(until)))
			return nil, false
		}})
		check := func(want ...string) {
			t.Helper()
			calls = nil
			must(t, p.checkThresholds(bg))
			slices.Sort(calls)
			if !slices.Equal(calls, want) {
				t.Errorf("requested %q, want %q", calls, want)
			}
		}
		hook(t, c, Webhook{Name: "a", Queues: []string{"never"}})
		check()
		hook(t, c, Webhook{Name: "b", Queues: []string{"q", "r"}, DepthOver: 1})
		check("default[q r] false 1s")
		hook(t, c, Webhook{Name: "c", Queues: []string{"r", "s"}, WaitOver: time.Second})
		hook(t, c, Webhook{Name: "d", Queues: []string{"s"}, DepthOver: 1})
		hookIn(t, c, "other", "e")
		w.Round(func(tx *store.Tx) {
			h, err := getHook(tx, "other", "e")
			must(t, err)
			h.WaitOver = time.Minute
			tx.Set(hookKey("other", "e"), system.EncodeRow(h))
		})
		check("default[q r s] true 1s", "other[*] true 1s")
		w.Round(func(tx *store.Tx) {
			h, err := getHook(tx, "default", "c")
			must(t, err)
			h.DisabledReason = "gone"
			tx.Set(hookKey("default", "c"), system.EncodeRow(h))
		})
		check("default[q r s] false 1s", "other[*] true 1s")
	})
}

// The namespaces do not wait for each other while a shard hangs: what the other shards have is known a second later.
func TestNamespacesBesideAHangingShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(ctx context.Context, _ string, _ []string,
			_ bool) ([]Depth, bool) {
			<-ctx.Done()
			return []Depth{{Queue: "q", Ready: 7}}, true
		}})
		const spaces = 5
		for i := range spaces {
			ns := fmt.Sprint("ns", i)
			hookIn(t, c, ns, "h")
			w.Round(func(tx *store.Tx) {
				h, err := getHook(tx, ns, "h")
				must(t, err)
				h.DepthOver = 6
				tx.Set(hookKey(ns, "h"), system.EncodeRow(h))
			})
		}
		began := time.Now()
		must(t, p.checkThresholds(bg))
		over := 0
		for i := range spaces {
			if w.Get(overKey(fmt.Sprint("ns", i), "h", "q")) != nil {
				over++
			}
		}
		if took := time.Since(began); took > time.Second || over != spaces {
			t.Errorf("after %v, the queues of %d of %d namespaces are known to be over their thresholds", took, over, spaces)
		}
	})
}

// Webhooks are notified of the queues within their patterns, of each kind that they subscribe to, with the levels. What
// they do not subscribe to is remembered all the same.
func TestCrossingNotices(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "both", Queues: []string{"q*"}, DepthOver: 10, WaitOver: time.Hour, Events: ofThresholds})
		hook(t, c, Webhook{Name: "under", Queues: []string{"q*"}, DepthOver: 10, Events: ofThresholds[1:]})
		var depths []Depth
		missing := false
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(context.Context, string, []string, bool) ([]Depth, bool) {
			return depths, missing
		}})
		pending := func(name string) string {
			var all []string
			scanPending(w.State, "default", name, func(k, v []byte) bool {
				n, err := system.DecodeRow[notice](k, v)
				must(t, err)
				l := n.Notification.Level
				all = append(all, fmt.Sprintf("%s %s %d/%d %v/%v since %d", n.Notification.Kind, n.Notification.Queue, l.Depth,
					l.DepthOver, l.Wait, l.WaitOver, l.Since.Unix()-946684800))
				return true
			})
			slices.Sort(all)
			return strings.Join(all, ", ")
		}
		check := func(what string, both, under string, d ...Depth) {
			t.Helper()
			depths = d
			must(t, p.checkThresholds(bg))
			if a, b := pending("both"), pending("under"); a != both || b != under {
				t.Errorf("%s: notices %q and %q, want %q and %q", what, a, b, both, under)
			}
		}
		over := "queue.over q1 11/10 1s/1h0m0s since 0"
		check("over", over, "", Depth{"q1", 11, time.Second}, Depth{"r", 99, 0}, Depth{"q2", 1, 0})
		pass(2 * time.Minute)
		check("still over", over, "", Depth{"q1", 20, time.Second}, Depth{"q2", 1, 0})
		missing = true
		check("a silent shard", over, "", Depth{"q1", 1, 0}, Depth{"q2", 1, 0})
		check("a silent shard, and no queue", over, "")
		missing = false
		under := "queue.under q1 3/10 2s/1h0m0s since 0"
		check("under", over+", "+under, "queue.under q1 3/10 2s/0s since 0", Depth{"q1", 3, 2 * time.Second})
		if n := rowsOf(w.State, []byte{system.OverTable}); n != 2 {
			t.Errorf("%d rows of queues, want 2 within the minute", n)
		}
		pass(crossEvery - time.Microsecond)
		must(t, p.checkThresholds(bg))
		if n := rowsOf(w.State, []byte{system.OverTable}); n != 2 {
			t.Errorf("%d rows of queues, want 2 until the minute is over", n)
		}
		pass(time.Second)
		must(t, p.checkThresholds(bg))
		if n := rowsOf(w.State, []byte{system.OverTable}); n != 0 {
			t.Errorf("%d rows of queues, want none after the minute", n)
		}
		w.writesNothing("a check of queues that are under", func() { must(t, p.checkThresholds(bg)) })
	})
}

// A namespace whose rows are damaged is reported, and the others are checked all the same.
func TestDamageInOneNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, ns := range all {
			hookIn(t, c, ns, "hook")
			w.Round(func(tx *store.Tx) {
				h, err := getHook(tx, ns, "hook")
				must(t, err)
				h.DepthOver = 1
				tx.Set(hookKey(ns, "hook"), system.EncodeRow(h))
			})
		}
		w.Put(overKey("c", "hook", "q"), []byte{99})
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(context.Context, string, []string, bool) ([]Depth, bool) {
			return []Depth{{Queue: "q", Ready: 2}}, false
		}})
		if err := p.checkThresholds(bg); err == nil || !strings.HasPrefix(err.Error(), `namespace "c": `) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("a check with a damaged row in namespace c: %v", err)
		}
		for _, ns := range all {
			if over := rowsOf(w.State, overKey(ns, "hook", "")); over != 1 {
				t.Errorf("namespace %s: %d queues are over, want 1", ns, over)
			}
		}
	})
}

// The webhooks that were removed, or whose threshold a queue has crossed back, before a crossing is recorded, are not notified.
func TestLateCrossings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h", DepthOver: 10, Events: ofThresholds})
		h := w.row("h")
		w.writesNothing("a crossing of a webhook that is removed", func() {
			must(t, c.Webhooks.crossed(bg, "default", []Webhook{{Namespace: "default", Name: "gone", DepthOver: 1, Queues: []string{"*"}}},
				[]Depth{{Queue: "q", Ready: 99}}, false))
		})
		late := crossing{"h", Depth{Queue: "q", Ready: 99}, true}
		run := func(x crossing) (dropped bool) {
			w.Round(func(tx *store.Tx) {
				var err error
				dropped, err = cross(tx, "default", x)
				must(t, err)
			})
			return dropped
		}
		if run(late) || w.status("h").Pending != 1 {
			t.Errorf("a crossing: %+v", w.status("h"))
		}
		w.writesNothing("a crossing that is recorded", func() { run(late) })
		late.over = false
		w.writesNothing("the end of what nothing is known of", func() { run(crossing{"h", Depth{Queue: "r"}, false}) })
		run(late)
		w.writesNothing("an end that is recorded", func() { run(late) })
		if w.status("h").Pending != 2 || h.Name != "h" {
			t.Errorf("two crossings: %+v", w.status("h"))
		}
		w.amend(func(s *Status) { s.Pending = 1000 })
		must(t, c.Webhooks.crossed(bg, "default", []Webhook{h}, []Depth{{Queue: "s", Ready: 99}, {Queue: "u", Ready: 99}}, false))
		if s := w.status("h"); s.Dropped != 2 || c.Webhooks.dropped.Load() != 2 {
			t.Errorf("crossings without room: %+v, %d dropped here", s, c.Webhooks.dropped.Load())
		}
	})
}

// The last report of a shard is remembered for two days, and those older are removed, hourly, thousands at a time.
func TestOldReportsAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		limit := store.TimeOf(time.Now().Add(-48 * time.Hour))
		put := func(n int, at store.Time) {
			w.Round(func(tx *store.Tx) {
				for i := range n {
					tx.Set(seenKey(deaths(fmt.Sprint(at, "-", i), 1, 1)), system.EncodeRow(lastTaken{1, at}))
				}
			})
		}
		put(1, limit)
		put(1, limit+9)
		put(2001, limit-1)
		left := func() int { return rowsOf(w.State, []byte{system.SeenTable}) }
		for i, want := range []int{3, 2, 2} {
			if must(t, c.Webhooks.forgetSeen(bg)); left() != want {
				t.Errorf("look %d left %d reports, want %d", i, left(), want)
			}
		}
		put(1, limit-2)
		pass(time.Hour - time.Microsecond)
		if must(t, c.Webhooks.forgetSeen(bg)); left() != 3 {
			t.Errorf("within the hour %d reports are left, want 3", left())
		}
		pass(time.Microsecond)
		if must(t, c.Webhooks.forgetSeen(bg)); left() != 0 {
			t.Errorf("an hour later %d reports are left, want none", left())
		}
		w.Put(seenKey(deaths("q", 1, 1)), []byte{99})
		pass(time.Hour)
		if err := c.Webhooks.forgetSeen(bg); err == nil || !strings.Contains(err.Error(), "row") {
			t.Errorf("a report that can't be read: %v", err)
		}
		if err := c.Webhooks.forgetSeen(bg); err != nil {
			t.Errorf("within the hour after that: %v", err)
		}
		pass(time.Hour)
		w.newReplica().lead()
		w.writesNothing("a node that does not lead", func() { must(t, c.Webhooks.forgetSeen(bg)) })
	})
}

// records is a log's handler that counts what it gets, by message.
type records struct {
	slog.Handler
	mu  sync.Mutex
	all map[string]int
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) Handle(_ context.Context, of slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[of.Message]++
	return nil
}

// count returns how often messages that begin so were logged since the last call.
func (r *records) count(begin string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, times := range r.all {
		if strings.HasPrefix(m, begin) {
			n += times
			delete(r.all, m)
		}
	}
	return n
}

// Regular checks say in the log what fails, run only on the leader, and only once there is a webhook.
func TestRegularChecks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, m := w.openFailing(2)
		said := &records{all: map[string]int{}}
		var asked atomic.Int64
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Period: time.Minute, Logger: slog.New(said), Send: newInbox().send,
			Depths: func(context.Context, string, []string, bool) ([]Depth, bool) {
				asked.Add(1)
				return nil, false
			}})
		ctx, stop := context.WithCancel(bg)
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		pass(30*time.Minute + time.Second)
		hook(t, c, Webhook{Name: "h", DepthOver: 1})
		pass(10 * time.Minute)
		if n := asked.Swap(0); n < 10 || n > 11 {
			t.Errorf("depths were requested %d times in 10 minutes, want 10", n)
		}
		if n := said.count(""); n != 0 {
			t.Errorf("%d messages when all is well", n)
		}
		w.cut(2, errors.New("no leader"))
		must(t, c.Webhooks.Remove(bg, hookCall("h")))
		pass(5 * time.Minute)
		if n := said.count("not all shards have the current"); n != 5 || said.count("") != 0 {
			t.Errorf("%d warnings of a shard that can't be told, want 5", n)
		}
		w.cut(2, nil)
		pass(time.Minute)
		said.count("")
		m.views.Store(true)
		pass(5 * time.Minute)
		if a, b := said.count("not all shards"), said.count("thresholds of webhooks could not be checked"); a != 5 || b != 5 {
			t.Errorf("%d and %d warnings while the shard can't be read, want 5 of each", a, b)
		}
		m.views.Store(false)
		pass(61 * time.Minute)
		said.count("")
		w.Put(seenKey(deaths("q", 1, 1)), []byte{99})
		pass(3 * time.Hour)
		if n := said.count("old reports of shards could not be removed"); n == 0 || said.count("") != 0 {
			t.Errorf("%d messages of old reports that can't be read", n)
		}
		hook(t, c, Webhook{Name: "h", DepthOver: 1})
		asked.Store(0)
		w.newReplica().lead()
		pass(time.Hour)
		if n := asked.Load(); n > 1 || said.count("") != 0 {
			t.Errorf("a node that does not lead requested depths %d times", n)
		}
		stop()
		running.Wait()
		if n := said.count(""); n != 0 {
			t.Errorf("%d messages at the end", n)
		}
	})
}
