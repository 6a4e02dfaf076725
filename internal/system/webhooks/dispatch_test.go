package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// failingReplica is a replica whose next rounds fail.
type failingReplica struct {
	*systemtest.Replica
	fails atomic.Int64 // how many rounds fail
	tried atomic.Int64 // rounds
	views atomic.Bool  // whether views fail
	after func()       // if set, called after each view
}

var errMood = errors.New("the round was lost")

func (m *failingReplica) Update(ctx context.Context, fn func(tx *store.Tx) error) error {
	if m.tried.Add(1); m.fails.Add(-1) >= 0 {
		return errMood
	}
	return m.Replica.Update(ctx, fn)
}

func (m *failingReplica) View(ctx context.Context, fn func(store.Reader) error) error {
	if m.views.Load() {
		return errMood
	}
	err := m.Replica.View(ctx, fn)
	if m.after != nil {
		m.after()
	}
	return err
}

// openFailing is open for a replica whose rounds may fail.
func (w *world) openFailing(shards int) (*control, *failingReplica) {
	s := &systemReplica{Replica: w.NewReplica(), world: w}
	m := &failingReplica{Replica: s.Replica}
	shard := system.NewShard(m)
	s.control = &control{shard, namespaces.New(namespaces.Config{Shard: shard}), New(shard, w.copyWatches, slog.New(slog.DiscardHandler))}
	s.Leader = s.control
	s.lead()
	w.Put(system.SettingsKey, system.EncodeRow(system.Settings{Replication: 3, Level: 1, NextNode: 2, DataShards: shards}))
	return s.control, m
}

// An outcome that can't be recorded is tried again, settleTries times in all, while this node leads. After that a warning
// says so, the attempt counts as not made, and the notice is sent again when its lease ends.
func TestOutcomesAreRetried(t *testing.T) {
	for _, s := range []struct {
		fails, tried int64
		took         time.Duration
	}{{0, 1, 0}, {1, 2, time.Second}, {2, 3, 2 * time.Second}, {3, 3, 2 * time.Second}} {
		inBubble(t, func(t *testing.T, w *world) {
			c, m := w.openFailing(1)
			hook(t, c, Webhook{Name: "h"})
			c.Webhooks.takes(t, deaths("q", 1, 1))
			said := &records{all: map[string]int{}}
			p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Logger: slog.New(said), Send: func(context.Context,
				webhook.Request) webhook.Outcome {
				return accepted
			}})
			a := c.Webhooks.mustAttempt(t)
			m.fails.Store(s.fails)
			m.tried.Store(0)
			began := time.Now()
			p.send(bg, a)
			if n, took := m.tried.Load(), time.Since(began); n != s.tried || took != s.took {
				t.Errorf("of %d rounds that fail: %d tries in %v, want %d in %v", s.fails, n, took, s.tried, s.took)
			}
			if st := w.status("h"); (st.Delivered == 1) != (s.fails < 3) || p.Counts(bg).Delivered != 1 {
				t.Errorf("after %d rounds that fail: %+v", s.fails, st)
			}
			if n := said.count("the outcome of a notice could not be recorded"); (n == 1) != (s.fails == 3) {
				t.Errorf("after %d rounds that fail: %d warnings that no outcome was recorded", s.fails, n)
			}
			if s.fails < 3 {
				return
			}
			m.fails.Store(0)
			pass(attemptLease)
			if again := c.Webhooks.mustAttempt(t); again.id != a.id || again.notice.Attempts != 2 {
				t.Errorf("the attempt that counts as not made is followed by %+v", again)
			}
		})
	}
}

// A node that loses its leadership, or stops, does not try for long to record an outcome. One that says nothing is not recorded.
func TestOutcomesAtTheEnd(t *testing.T) {
	for _, s := range []struct {
		name    string
		outcome webhook.Outcome
		stops   bool // the node stops
		leads   bool
		fails   int64
		tried   int64
		counts  DispatchCounts
	}{
		{"delivered as the node stops", accepted, true, true, 0, 1, DispatchCounts{Delivered: 1}},
		{"delivered as the node stops, and the round fails", accepted, true, true, 9, 1, DispatchCounts{Delivered: 1}},
		{"cut off as the node stops", refused, true, true, 0, 0, DispatchCounts{}},
		{"refused", refused, false, true, 0, 1, DispatchCounts{Failed: 1}},
		{"delivered by a node that leads no more", accepted, false, false, 9, 1, DispatchCounts{Delivered: 1}},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			c, m := w.openFailing(1)
			hook(t, c, Webhook{Name: "h"})
			c.Webhooks.takes(t, deaths("q", 1, 1))
			a := c.Webhooks.mustAttempt(t)
			ctx, stop := context.WithCancel(bg)
			defer stop()
			p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: func(context.Context, webhook.Request) webhook.Outcome {
				if s.stops {
					stop()
				}
				if !s.leads {
					w.newReplica().lead()
				}
				return s.outcome
			}})
			m.fails.Store(s.fails)
			m.tried.Store(0)
			began := time.Now()
			p.send(ctx, a)
			if n, took := m.tried.Load(), time.Since(began); n != s.tried || took != 0 {
				t.Errorf("%s: %d tries in %v, want %d", s.name, n, took, s.tried)
			}
			if got := p.Counts(bg); got.Delivered != s.counts.Delivered || got.Failed != s.counts.Failed {
				t.Errorf("%s: counted %+v", s.name, got)
			}
			if st := w.status("h"); (st.Pending == 0) != (s.tried == 1 && s.fails == 0 && s.outcome == accepted) {
				t.Errorf("%s: the deliveries are %+v", s.name, st)
			}
		})
	}
}

// A webhook whose receiver hangs is served by one goroutine, and holds up no other. Run returns when all have ended.
func TestOneAtATimePerWebhook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		hook(t, c, Webhook{Name: "i"})
		var now, most, sent, ended atomic.Int64
		hang := make(chan struct{})
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(context.Context, string, []string, bool) ([]Depth, bool) {
			return nil, false
		}, Send: func(ctx context.Context, r webhook.Request) webhook.Outcome {
			if r.URL == "https://i" {
				sent.Add(1)
				return accepted
			}
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-hang
			return accepted
		}})
		ctx, stop := context.WithCancel(bg)
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx); ended.Store(1) })
		for n := range int64(5) {
			c.Webhooks.takes(t, deaths("q"+string(rune('a'+n)), 1, 1))
			pass(time.Second)
		}
		if most.Load() != 1 || sent.Load() != 5 {
			t.Errorf("%d requests at a time to a receiver that hangs, %d to another one, want 1 and 5", most.Load(), sent.Load())
		}
		if got := p.Counts(bg); got.Oldest.Round(time.Millisecond) != 5*time.Second || got.Delivered != 5 {
			t.Errorf("counted %+v", got)
		}
		stop()
		synctest.Wait()
		if ended.Load() != 0 {
			t.Error("Run returned before its goroutines have ended")
		}
		close(hang)
		running.Wait()
	})
}

// The age of the oldest notice is that of all webhooks that are served, on the leader only.
func TestTheOldestNotice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		in.answers(func(string) webhook.Outcome {
			return webhook.Outcome{Status: 503, Error: "busy", RetryAfter: time.Hour}
		})
		for _, name := range []string{"h", "i", "j", "k"} {
			hook(t, c, Webhook{Name: name, Queues: []string{name}})
		}
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: in.send, Period: time.Hour, Depths: func(context.Context, string,
			[]string, bool) ([]Depth, bool) {
			return nil, false
		}})
		ctx, stop := context.WithCancel(bg)
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		oldest := func(what string, want time.Duration) {
			t.Helper()
			pass(100 * time.Millisecond)
			if got := p.Counts(bg).Oldest.Round(time.Second); got != want {
				t.Errorf("%s, the oldest notice is %v old, want %v", what, got, want)
			}
		}
		oldest("without a notice", 0)
		for _, queue := range []string{"j", "h", "i", "k"} {
			c.Webhooks.takes(t, deaths(queue, 1, 1))
			pass(time.Minute)
		}
		oldest("after four minutes", 4*time.Minute)
		_, err := c.Webhooks.Pause(bg, hookCall("j"))
		must(t, err)
		c.Webhooks.pokeDispatcher()
		oldest("without the paused one", 3*time.Minute)
		other := w.newReplica()
		other.lead()
		if got := p.Counts(bg); got.Oldest != 0 || p.oldest.Load() == 0 {
			t.Errorf("as soon as it leads no more, a node counts %+v", got)
		}
		c.Webhooks.pokeDispatcher()
		oldest("at a node that does not lead", 0)
		if p.oldest.Load() != 0 {
			t.Error("a node that does not lead remembers a notice")
		}
		stop()
		running.Wait()
	})
}

// A test of a webhook sends a notice now, whatever its state, and is recorded. If its receiver accepts it, pending notices are due.
func TestTestsOfWebhooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		var got []webhook.Request
		outcome := refused
		outcome.Error = strings.Repeat("n", 300)
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: func(_ context.Context, r webhook.Request) webhook.Outcome {
			got = append(got, r)
			return outcome
		}})
		try := func() Delivery {
			t.Helper()
			d, err := p.Test(bg, operator, "default", "h")
			must(t, err)
			return d
		}
		c.Webhooks.takes(t, deaths("q", 1, 1))
		c.Webhooks.mustAttempt(t) // is in flight
		d := try()
		last, err := c.Webhooks.Deliveries(bg, "default", "h")
		if d.Outcome != FailedFor || d.Attempts != 1 || d.Status != 500 || len(d.Error) != 300 || err != nil || len(last) != 1 ||
			len(last[0].Error) != 256 || last[0].ID != d.ID || got[0].ID != d.ID {
			t.Errorf("a test that fails: %+v, recorded as %+v", d, last)
		}
		if s := w.status("h"); s.Failures != 0 || s.Failed != 0 || p.Counts(bg).Failed != 1 {
			t.Errorf("a test that fails counts as a delivery: %+v", s)
		}
		outcome = accepted
		if d := try(); d.Outcome != Delivered || c.Webhooks.attempt(t) != nil || p.Counts(bg).Delivered != 1 {
			t.Errorf("a test that succeeds: %+v, or what is in flight is sent again", d)
		}
		w.amend(func(s *Status) { s.Failures, s.FailsSince, s.RestUntil = 1, 5, store.TimeOf(time.Now().Add(time.Hour)) })
		outcome = refused
		if try(); w.status("h").Failures != 1 || c.Webhooks.attempt(t) != nil {
			t.Error("a test that fails ended the rest of the webhook")
		}
		outcome = accepted
		for len(c.Webhooks.dispatch) > 0 {
			<-c.Webhooks.dispatch
		}
		if try(); w.status("h").Failures != 0 || w.status("h").RestUntil != 0 || w.status("h").FailsSince != 0 ||
			len(c.Webhooks.dispatch) != 1 || c.Webhooks.attempt(t) == nil {
			t.Errorf("after a test that succeeds the deliveries are %+v", w.status("h"))
		}
		if _, err := c.Webhooks.Pause(bg, hookCall("h")); err != nil || try().Outcome != Delivered {
			t.Errorf("testing a paused webhook: %v", err)
		}
		if all := w.Audited("default"); len(all) != 7 ||
			!strings.Contains(all[1], `webhook.test webhook h:  → {"outcome":"failed","status":500}`) {
			t.Errorf("the audit log is %q", all)
		}
		ctx, stop := context.WithCancel(bg)
		stop()
		w.writesNothing("a test whose caller has gone", func() {
			if d, err := p.Test(ctx, operator, "default", "h"); !errors.Is(err, context.Canceled) || d != (Delivery{}) {
				t.Errorf("%+v, %v", d, err)
			}
		})
		if p.tests.InUse() != 0 {
			t.Error("a test is still counted")
		}
	})
}

// A dispatcher has a default period and needs no logger. A new leader, and a notice whose outcome is unknown, wake it.
func TestDispatcherWakes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, m := w.openFailing(1)
		if p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks}); p.cfg.Period != 10*time.Second || p.log == nil {
			t.Errorf("the configuration is %+v", p.cfg)
		}
		log := slog.New(slog.DiscardHandler)
		if p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Period: time.Second, Logger: log}); p.cfg.Period != time.Second ||
			p.log != log {
			t.Errorf("the configuration is %+v", p.cfg)
		}
		hook(t, c, Webhook{Name: "h"})
		drain := func() {
			for _, ch := range []chan struct{}{c.Webhooks.dispatch, c.Webhooks.firstHook} {
				for len(ch) > 0 {
					<-ch
				}
			}
		}
		drain()
		m.fails.Store(1)
		if err := c.Webhooks.TakeNotifications(bg, "default", []*task.Notification{deaths("q", 1, 1)}); !errors.Is(err, errMood) ||
			len(c.Webhooks.dispatch) != 1 {
			t.Errorf("notifications whose round was lost: %v, want it reported, and the dispatcher woken", err)
		}
		drain()
		c.Webhooks.Elected()
		if len(c.Webhooks.dispatch) != 1 || len(c.Webhooks.firstHook) != 1 {
			t.Error("a new leader's dispatcher was not woken")
		}
		drain()
		if hook(t, c, Webhook{Name: "i"}); len(c.Webhooks.firstHook) != 1 {
			t.Error("a webhook was added, and the dispatcher was not woken")
		}
	})
}

// A webhook that is removed or damaged while it is tested has no record of the test.
func TestRemovedDuringATest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		before := uint64(0)
		meanwhile := func() { w.Damage(hookKey("default", "h")) }
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: func(context.Context, webhook.Request) webhook.Outcome {
			meanwhile()
			before = w.State.Applied().Index
			return accepted
		}})
		row := w.Get(hookKey("default", "h"))
		if d, err := p.Test(bg, operator, "default", "h"); err == nil || d.Outcome != Delivered || w.State.Applied().Index != before {
			t.Errorf("a webhook that is damaged meanwhile: %+v, %v, or something was written", d, err)
		}
		w.Put(hookKey("default", "h"), row)
		meanwhile = func() { must(t, c.Webhooks.Remove(bg, hookCall("h"))) }
		if d, err := p.Test(bg, operator, "default", "h"); err != nil || d.Outcome != Delivered || w.State.Applied().Index != before {
			t.Errorf("a webhook that is removed meanwhile: %+v, %v, or something was written", d, err)
		}
	})
}

// A node that can't read what is due looks again after a period, and says so unless it stops.
func TestUnreadableDueNotices(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, m := w.openFailing(1)
		said := &records{all: map[string]int{}}
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Period: time.Minute, Logger: slog.New(said)})
		ctx, stop := context.WithCancel(bg)
		if wait := p.checkDue(ctx); wait != idleCheck || said.count("") != 0 {
			t.Errorf("without anything due, the next look is after %v", wait)
		}
		m.fails.Store(2)
		if wait := p.checkDue(ctx); wait != time.Minute || said.count("pending notices for webhooks could not be read") != 1 {
			t.Errorf("after a round that failed, the next look is after %v", wait)
		}
		stop()
		if p.checkDue(ctx); said.count("") != 0 {
			t.Error("a node that stops says that it can't read what is due")
		}
	})
}

// A webhook whose status is damaged is reported, and holds up no other.
func TestUnreadableStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "a"})
		hook(t, c, Webhook{Name: "h"})
		c.Webhooks.takes(t, deaths("q", 1, 1))
		w.Put(statusKey("default", "a"), []byte{99})
		said, in := &records{all: map[string]int{}}, newInbox()
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Period: time.Minute, Logger: slog.New(said), Send: in.send})
		if wait := p.checkDue(bg); wait != time.Minute || said.count("pending notices for webhooks could not be read") != 1 {
			t.Errorf("the next look is after %v, want a minute, and one warning", wait)
		}
		p.work.Wait()
		if in.tries["https://h"] != 1 || in.tries["https://a"] != 0 {
			t.Errorf("notices were sent to %v, want one to h", in.tries)
		}
	})
}

// A notice whose row is damaged is looked at once in a period, not all the time, and the log says that it can't be sent.
func TestUnreadableNotice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, m := w.openFailing(1)
		hook(t, c, Webhook{Name: "h"})
		c.Webhooks.takes(t, deaths("q", 1, 1))
		scanPending(w.State, "default", "h", func(k, _ []byte) bool {
			w.Put(slices.Clone(k), []byte{99})
			return true
		})
		said := &records{all: map[string]int{}}
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Period: time.Minute, Logger: slog.New(said), Send: newInbox().send})
		ctx, stop := context.WithCancel(bg)
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		m.tried.Store(0)
		pass(10 * time.Minute)
		if tried, warned := m.tried.Load(), said.count("the next notice for a webhook could not be read"); tried > 40 ||
			warned < 9 || warned > 12 {
			t.Errorf("in ten minutes there were %d rounds and %d warnings, want two or three, and one, in each minute", tried, warned)
		}
		stop()
		running.Wait()
		if n := said.count("the next"); n != 0 {
			t.Errorf("%d warnings as the node stops", n)
		}
	})
}

// A node that loses its leadership tells the shards nothing more, and looks for no webhooks.
func TestLostLeadership(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, m := w.openFailing(1)
		if c.Webhooks.mayHaveHooks(bg) {
			t.Error("a webhook may exist")
		}
		hook(t, c, Webhook{Name: "h"})
		if !c.Webhooks.mayHaveHooks(bg) {
			t.Error("no webhook can exist")
		}
		m.after = func() { w.newReplica().lead() }
		if some, err := c.Webhooks.TellShards(bg, ""); some != nil || err != nil || len(w.watches) != 0 {
			t.Errorf("after the leadership was lost: %v, %v, shards were told %v", some, err, w.watches)
		}
		m.after = nil
		if c.Webhooks.mayHaveHooks(bg) {
			t.Error("a node that does not lead looks for webhooks")
		}
	})
}
