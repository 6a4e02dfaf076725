package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// inbox stands for the receivers of all webhooks, by address: what each has accepted, and how it answers.
type inbox struct {
	mu     sync.Mutex
	taken  map[string]map[string]int64 // by address and id: the number of events in the notice
	tries  map[string]int              // by address
	times  map[string][]time.Time      // of the attempts for an id
	answer func(url string) webhook.Outcome
}

func newInbox() *inbox {
	return &inbox{taken: map[string]map[string]int64{}, tries: map[string]int{}, times: map[string][]time.Time{}}
}

func (in *inbox) send(ctx context.Context, l webhook.Request) (o webhook.Outcome) {
	in.mu.Lock()
	answer := in.answer
	in.tries[l.URL]++
	in.times[l.ID] = append(in.times[l.ID], time.Now())
	in.mu.Unlock()
	if answer != nil {
		o = answer(l.URL)
	}
	if ctx.Err() != nil || o.Status == hangs { // the answer is lost, and perhaps the request
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
		return webhook.Outcome{Error: "no answer"}
	}
	if o.Delivered() {
		var body struct{ Data struct{ Count int64 } }
		if err := json.Unmarshal(l.Body, &body); err != nil {
			panic(err)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.taken[l.URL] == nil {
			in.taken[l.URL] = map[string]int64{}
		}
		in.taken[l.URL][l.ID] = body.Data.Count
	}
	return o
}

const hangs = -1

// count returns the number of events that an address was notified of, and the number of notices.
func (in *inbox) count(url string) (things int64, notices int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, n := range in.taken[url] {
		things += n
	}
	return things, len(in.taken[url])
}

// triesOf returns the number of attempts for an address, timesOf the times of those for a notice.
func (in *inbox) triesOf(url string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.tries[url]
}

func (in *inbox) timesOf(id string) []time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.times[id])
}

func (in *inbox) answers(fn func(url string) webhook.Outcome) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answer = fn
}

// post makes a replica send notices until the test ends, and check thresholds at the default period.
func (s *systemReplica) post(in *inbox, depths func() ([]Depth, bool)) {
	s.postSeldom(in, 0, depths)
}

// postSeldom is post with rare checks: a notice is sent when it is due, not because of a check.
func (s *systemReplica) postSeldom(in *inbox, period time.Duration, depths func() ([]Depth, bool)) {
	p := NewDispatcher(DispatcherConfig{Webhooks: s.control.Webhooks, Send: in.send, Period: period, Depths: func(context.Context, string,
		[]string, bool) ([]Depth, bool) {
		return depths()
	}})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	s.T.Cleanup(func() {
		stop()
		running.Wait()
	})
}

func noDepths() ([]Depth, bool) { return nil, false }

var operator = task.Author{Name: "lena", Interface: task.InterfaceGRPC}

// hook adds a webhook whose address is its name.
func hook(t *testing.T, c *control, h Webhook) {
	t.Helper()
	h.Namespace, h.URL = "default", "https://"+h.Name
	if _, err := c.Webhooks.Add(context.Background(), Call{Hook: h, Secret: webhook.NewSecret(), By: operator}); err != nil {
		t.Fatal(err)
	}
}

func hookCall(name string) Call {
	return Call{Hook: Webhook{Namespace: "default", Name: name}, By: operator}
}

// deaths is a notification of n dead letters, the seq-th of its queue.
func deaths(queue string, n, seq int64) *task.Notification {
	now := time.Now()
	return &task.Notification{Kind: task.NotifyDead, Namespace: "default", Queue: queue, Count: n, First: now, Last: now,
		Shard: 1, Seq: seq}
}

func (w *Webhooks) takes(t *testing.T, n ...*task.Notification) {
	t.Helper()
	if err := w.TakeNotifications(context.Background(), "default", n); err != nil {
		t.Fatal(err)
	}
}

func TestPendingNotices(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(2), newInbox()
		w.leader.postSeldom(in, time.Hour, noDepths)
		hook(t, c, Webhook{Name: "all"})
		hook(t, c, Webhook{Name: "mail", Queues: []string{"mail"}, Events: []task.NotificationKind{task.NotifyDead}})
		expect := func(what, url string, things int64, notices int) {
			t.Helper()
			synctest.Wait()
			if a, b := in.count("https://" + url); a != things || b != notices {
				t.Errorf("%s: %s was notified of %d events in %d notices, want %d in %d", what, url, a, b, things, notices)
			}
		}
		standing := func(name string) View {
			t.Helper()
			v, err := c.Webhooks.Get(t.Context(), "default", name)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		c.Webhooks.takes(t, deaths("mail", 3, 10), deaths("sms", 2, 10))
		c.Webhooks.takes(t, deaths("mail", 3, 10), deaths("mail", 1, 9)) // delivered twice
		pass(time.Second)
		expect("notifications", "all", 5, 2)
		expect("notifications", "mail", 3, 1)

		in.answers(func(url string) webhook.Outcome {
			return webhook.Outcome{Status: 500, Error: "no"}
		})
		for i := range int64(20) {
			c.Webhooks.takes(t, deaths("mail", 1, 20+i))
			pass(time.Minute)
		}
		v := standing("mail")
		if v.Pending < 1 || v.Pending > 12 || v.Failures < 5 || v.RestUntil <= v.FailedAt || v.PendingSince == 0 || v.Secrets != nil {
			t.Errorf("while its receiver fails, the webhook is %+v", v)
		}
		in.answers(nil)
		pass(maxHookBackoff)
		if a, b := in.count("https://mail"); a != 23 || b > 14 {
			t.Errorf("after its receiver recovered, it was notified of %d events in %d notices, want 23 in at most 14", a, b)
		}
		if v := standing("mail"); v.Pending != 0 || v.Failures != 0 || v.Dropped != 0 || v.RestUntil != 0 || v.LastError != "no" {
			t.Errorf("after its receiver recovered, the webhook is %+v", v)
		}

		in.answers(func(string) webhook.Outcome {
			return webhook.Outcome{Status: 503, Error: "busy", RetryAfter: 20 * time.Minute}
		})
		c.Webhooks.takes(t, deaths("mail", 1, 100))
		pass(time.Second)
		tries := in.triesOf("https://all")
		in.answers(nil)
		c.Webhooks.takes(t, deaths("sms", 1, 100))
		pass(19 * time.Minute)
		if in.triesOf("https://all") != tries {
			t.Error("the webhook was tried within the Retry-After time of its receiver")
		}
		pass(2 * time.Minute)
		if n, _ := in.count("https://all"); n != 27 {
			t.Errorf("a receiver that was busy was notified of %d events, want 27", n)
		}

		in.answers(func(string) webhook.Outcome { return webhook.Outcome{Status: 500, Error: "no"} })
		before, _ := in.count("https://mail")
		c.Webhooks.takes(t, deaths("mail", 5, 200))
		pass(28 * time.Hour)
		in.answers(nil)
		pass(2 * time.Hour)
		if after, _ := in.count("https://mail"); after != before {
			t.Errorf("after a day the receiver was still notified of %d events", after-before)
		}
		if v := standing("mail"); v.Pending != 0 || v.Dropped != 1 || v.DroppedAt == 0 {
			t.Errorf("after a day the webhook is %+v, want its notice dropped", v)
		}
		last, err := c.Webhooks.Deliveries(t.Context(), "default", "mail")
		if err != nil || len(last) > maxRecent || last[0].Outcome != Dropped || last[0].Attempts < 15 || last[0].Attempts > maxAttempts {
			t.Errorf("the last delivery after a day is %+v, %v, want it dropped", last[:1], err)
		}
		times := in.timesOf(last[0].ID)
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < 3*time.Second || gap > maxBackoff+maxHookBackoff {
				t.Errorf("attempt %d came %v after the one before", i, gap)
			}
		}
		if span := times[len(times)-1].Sub(times[0]); span < 18*time.Hour || span > maxNoticeAge {
			t.Errorf("the attempts span %v, want 18h to the maximum age", span)
		}
	})
}

// The webhooks of one receiver that is down are not all retried at the same time, however long it is down.
func TestRetriesAreSpread(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		w.leader.postSeldom(in, time.Hour, noDepths)
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			hook(t, c, Webhook{Name: name})
		}
		in.answers(func(string) webhook.Outcome { return webhook.Outcome{Status: 500, Error: "no"} })
		c.Webhooks.takes(t, deaths("mail", 1, 1))
		pass(time.Hour)
		all := map[string][]time.Time{}
		for _, name := range names {
			last, err := c.Webhooks.Deliveries(t.Context(), "default", name)
			if err != nil || len(last) != 1 {
				t.Fatalf("deliveries: %+v, %v, want one", last, err)
			}
			all[name] = in.timesOf(last[0].ID)
		}
		for i, most := range []time.Duration{minBackoff, 3 * minBackoff, 9 * minBackoff, 27 * minBackoff, 81 * minBackoff,
			243 * minBackoff} {
			pauses := map[time.Duration]bool{}
			for _, name := range names {
				pause := all[name][i+1].Sub(all[name][i])
				if pauses[pause.Truncate(time.Millisecond)] = true; pause < most*3/4 || pause > most+time.Second {
					t.Errorf("%s: attempt %d came %v after the one before, want %v or up to a quarter less", name, i+2, pause, most)
				}
			}
			if len(pauses) < 3 {
				t.Errorf("attempt %d of the 4 webhooks came after pauses %v, want at least 3 different ones", i+2, pauses)
			}
		}
		rest := func(n int, chance float64) time.Duration {
			s := Status{Failures: n}
			s.count(0, webhook.Outcome{Error: "no"}, chance)
			return time.Duration(s.RestUntil) * time.Microsecond
		}
		for n := range 20 {
			if a, b := rest(n, 0), rest(n, 1); b > maxHookBackoff || a != b*3/4 {
				t.Errorf("after %d failures a webhook rests for %v to %v", n+1, a, b)
			}
		}
	})
}

// Invalid webhooks are refused, and the error names the field.
func TestWebhookRules(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		add := func(h Webhook, secret string) error {
			h.Namespace, h.URL = "default", "https://a"
			_, err := c.Webhooks.Add(t.Context(), Call{Hook: h, Secret: secret, By: operator})
			return err
		}
		for want, h := range map[string]Webhook{
			"depth_over: -1 is not between": {Name: "a", DepthOver: -1, Events: []task.NotificationKind{task.NotifyQueueOver}},
			"wait_over: 1ms is not between": {Name: "a", WaitOver: time.Millisecond, Events: []task.NotificationKind{
				task.NotifyQueueOver}},
			"events: queue.over and queue.under need a threshold": {Name: "a", Events: []task.NotificationKind{task.NotifyQueueUnder}},
			"depth_over: 5 is given, and events": {Name: "a", DepthOver: 5,
				Events: []task.NotificationKind{task.NotifyDead}},
			"wait_over: 5s is given, and events": {Name: "a", WaitOver: 5 * time.Second,
				Events: []task.NotificationKind{task.NotifyDead}},
			"queues: \"(x)\" is not a pattern": {Name: "a", Queues: []string{"(x)"}},
			"queues: 33 patterns":              {Name: "a", Queues: slices.Repeat([]string{"x"}, 33)},
		} {
			if err := add(h, "s"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", h, err, want)
			}
		}
		if err := add(Webhook{Name: "a"}, "s"); err != nil {
			t.Fatal(err)
		}
		if err := add(Webhook{Name: "a"}, "s"); err != nil {
			t.Errorf("repeating the Add with the same secret: %v", err)
		}
		if err := add(Webhook{Name: "a"}, "other"); !errors.Is(err, task.ErrConflict) {
			t.Errorf("adding another webhook with the same name: %v, want ErrConflict", err)
		}
		zero := int64(0)
		five := int64(5)
		set := hookCall("a")
		set.Change = Change{DepthOver: &five}
		if _, err := c.Webhooks.Set(t.Context(), set); err == nil || !strings.Contains(err.Error(), "depth_over: 5") {
			t.Errorf("setting a threshold without events for it: %v, want an error about depth_over", err)
		}
		set.Change.Events = []task.NotificationKind{task.NotifyQueueOver}
		if v, err := c.Webhooks.Set(t.Context(), set); err != nil || v.DepthOver != 5 || len(v.Queues) != 1 {
			t.Errorf("setting a threshold and its event: %+v, %v", v, err)
		}
		set.Change = Change{DepthOver: &zero}
		if _, err := c.Webhooks.Set(t.Context(), set); err == nil || !strings.Contains(err.Error(), "need a threshold") {
			t.Errorf("removing the threshold of a subscribed event: %v, want an error", err)
		}
		for i := range MaxWebhooks - 1 {
			if err := add(Webhook{Name: fmt.Sprint("h", i)}, "s"); err != nil {
				t.Fatal(err)
			}
		}
		if err := add(Webhook{Name: "one-too-many"}, "s"); err == nil || !strings.Contains(err.Error(),
			"the limit of 100 webhooks per namespace") {
			t.Errorf("adding more webhooks than the limit: %v", err)
		}
		if err := c.Webhooks.Remove(t.Context(), hookCall("none")); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("removing a webhook that does not exist: %v, want ErrNotFound", err)
		}
	})
}

// Pending notices are bounded, and dropped ones are counted.
func TestPendingNoticesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "a"})
		for i := range 12 {
			var some []*task.Notification
			for n := range 100 {
				some = append(some, deaths(fmt.Sprintf("q%d", 100*i+n), 1, 1))
			}
			c.Webhooks.takes(t, some...)
		}
		c.Webhooks.takes(t, deaths("q1", 1, 2)) // is merged into the pending notice
		v, err := c.Webhooks.Get(t.Context(), "default", "a")
		if err != nil || v.Pending != maxPending || v.Dropped != 200 || c.Webhooks.dropped.Load() != 200 {
			t.Errorf("the webhook is %+v, %v, and this node counts %d dropped notices, want 200", v, err, c.Webhooks.dropped.Load())
		}
		if err := c.Webhooks.Remove(t.Context(), hookCall("a")); err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, tab := range []byte{system.HookTable, system.WebhookStatusTable, system.RecentTable, system.PendingTable,
			system.UntriedTable, system.OverTable} {
			w.State.Scan([]byte{tab}, []byte{tab + 1}, func(_, _ []byte) bool { left++; return true })
		}
		if n := system.GetNumber(w.State, system.PendingsKey); left != 0 || n != 0 {
			t.Errorf("after Remove %d rows are left, and %d notices are counted", left, n)
		}
	})
}

// Shards learn what webhooks subscribe to when it changes, and again from each new leader. A shard that can't be
// reached learns of it later.
func TestShardsLearnSubscriptions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		w.leader.post(newInbox(), noDepths)
		w.cut(2, errors.New("no leader"))
		hook(t, c, Webhook{Name: "a", Queues: []string{"mail"}})
		behind, err := c.Webhooks.TellShards(t.Context(), "")
		if err != nil || fmt.Sprint(behind) != "[2]" {
			t.Errorf("TellShards = %v, %v, want shard 2 unconfirmed", behind, err)
		}
		wants := func(shard uint32) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			watch := w.watches[shard]["default"]
			return watch.Wants(task.NotifyDead, "mail") && !watch.Wants(task.NotifyDead, "sms") &&
				!watch.Wants(task.NotifyQueueOver, "mail")
		}
		if !wants(1) || wants(2) {
			t.Errorf("shard 1 knows the subscription: %t, shard 2: %t, want only shard 1", wants(1), wants(2))
		}
		w.mu.Lock()
		w.fails = map[uint32]error{}
		w.mu.Unlock()
		pass(2 * checkEvery)
		if !wants(2) {
			t.Error("shard 2 did not receive the subscription after it was reachable again")
		}
		if err := c.Webhooks.Remove(t.Context(), hookCall("a")); err != nil {
			t.Fatal(err)
		}
		pass(2 * checkEvery)
		if wants(1) || wants(2) {
			t.Error("the shards still have the subscription of a removed webhook")
		}
	})
}

// Leaders change, receivers fail and hang, webhooks pause. In the end each webhook was notified of everything that
// happened, and of nothing twice except under the same id.
func TestPendingNoticesModel(t *testing.T) {
	for seed := range seeds(6) {
		inBubble(t, func(t *testing.T, w *world) {
			rng := rand.New(rand.NewPCG(seed, 1))
			in := newInbox()
			first := w.open(1)
			replicas := []*systemReplica{w.leader, w.newReplica(), w.newReplica()}
			for _, s := range replicas {
				s.postSeldom(in, time.Minute, noDepths)
			}
			for _, name := range []string{"a", "b", "c"} {
				hook(t, first, Webhook{Name: name})
			}
			var luck sync.Mutex
			in.answers(func(url string) webhook.Outcome {
				luck.Lock()
				defer luck.Unlock()
				switch n := rng.IntN(10); {
				case url == "https://c" || n < 4:
					return webhook.Outcome{Status: 200}
				case n < 6:
					return webhook.Outcome{Status: hangs}
				}
				return webhook.Outcome{Status: 500, Error: "no"}
			})
			dice := rand.New(rand.NewPCG(seed, 2))
			want, seq := int64(0), map[string]int64{}
			for range 150 {
				c := w.leader.control
				switch dice.IntN(6) {
				case 0, 1, 2:
					queue, n := fmt.Sprint("q", dice.IntN(4)), 1+dice.Int64N(5)
					seq[queue]++
					notifications := deaths(queue, n, seq[queue])
					want += n
					c.Webhooks.takes(t, notifications)
					if dice.IntN(2) == 0 {
						c.Webhooks.takes(t, notifications)
					}
				case 3:
					pass(time.Duration(dice.IntN(200)) * time.Second)
				case 4:
					replicas[dice.IntN(3)].lead()
				case 5:
					call := hookCall("b")
					call.By.Reason = "now and then"
					var err error
					if dice.IntN(2) == 0 {
						_, err = c.Webhooks.Pause(t.Context(), call)
					} else {
						_, err = c.Webhooks.Resume(t.Context(), call)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			in.answers(nil)
			if _, err := w.leader.control.Webhooks.Resume(t.Context(), hookCall("b")); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Hour) // one that failed often while others did not has a long backoff
			for _, name := range []string{"a", "b", "c"} {
				if n, _ := in.count("https://" + name); n != want {
					t.Errorf("seed %d: %s was notified of %d events, want %d", seed, name, n, want)
				}
				v, err := w.leader.control.Webhooks.Get(t.Context(), "default", name)
				if err != nil || v.Pending != 0 || v.Dropped != 0 {
					t.Errorf("seed %d: webhook %s is %+v, %v, want nothing pending or dropped", seed, name, v, err)
				}
			}
			if n := system.GetNumber(w.State, system.PendingsKey); n != 0 {
				t.Errorf("seed %d: %d notices are counted, want none", seed, n)
			}
		})
	}
}

// A webhook is notified when a queue crosses a threshold, and not again until the queue was under it. No queue counts
// as under it while a shard is silent.
func TestCrossings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		var mu sync.Mutex
		var depths []Depth
		missing := false
		at := func(m bool, d ...Depth) {
			mu.Lock()
			depths, missing = d, m
			mu.Unlock()
			pass(checkEvery + time.Second)
		}
		w.leader.post(in, func() ([]Depth, bool) {
			mu.Lock()
			defer mu.Unlock()
			return depths, missing
		})
		hook(t, c, Webhook{Name: "a", DepthOver: 10, WaitOver: time.Minute, Events: []task.NotificationKind{task.NotifyQueueOver,
			task.NotifyQueueUnder}})
		notices := 0
		expect := func(what string, more int) {
			t.Helper()
			notices += more
			if _, n := in.count("https://a"); n != notices {
				t.Errorf("%s: got %d notices, want %d", what, n, notices)
			}
		}
		at(false, Depth{Queue: "q", Ready: 10})
		expect("at it", 0)
		at(false, Depth{Queue: "q", Ready: 11})
		expect("over it", 1)
		at(false, Depth{Queue: "q", Ready: 9})
		expect("nearly under it", 0)
		at(true, Depth{Queue: "q", Ready: 1})
		expect("under it, as far as is known", 0)
		at(true, Depth{Queue: "r", Ready: 20})
		expect("another one, with a silent shard", 1)
		at(false, Depth{Queue: "q", Ready: 8}, Depth{Queue: "r", Ready: 20})
		expect("under it", 1)
		pass(crossEvery)
		at(false, Depth{Queue: "q", Ready: 1, Wait: 61 * time.Second}, Depth{Queue: "r", Ready: 20})
		expect("one waits for long", 1)
		at(false, Depth{Queue: "q", Ready: 1, Wait: 49 * time.Second}, Depth{Queue: "r", Ready: 20})
		expect("one waits for nearly as long", 0)
		pass(crossEvery)
		expect("a minute later", 0)
		at(false, Depth{Queue: "r", Ready: 20})
		expect("the queue is gone", 1)
		next := w.newReplica()
		next.post(in, func() ([]Depth, bool) { return []Depth{{Queue: "r", Ready: 30}}, false })
		next.lead()
		pass(3 * checkEvery)
		expect("another leader", 0)
	})
}

// For a queue that oscillates about a threshold, each kind of notice is sent at most once a minute, and the last one matches the state.
func TestCrossingsAreSpaced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		var ready atomic.Int64
		depths := func() ([]Depth, bool) { return []Depth{{Queue: "q", Ready: ready.Load()}}, false }
		w.leader.post(in, depths)
		hook(t, c, Webhook{Name: "a", DepthOver: 10, Events: []task.NotificationKind{task.NotifyQueueOver, task.NotifyQueueUnder}})
		told := map[task.NotificationKind][]time.Time{}
		look := func() {
			pass(checkEvery)
			last, err := c.Webhooks.Deliveries(t.Context(), "default", "a")
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range last {
				if at := d.CreatedAt.Time(); !slices.ContainsFunc(told[d.Kind], at.Equal) {
					told[d.Kind] = append(told[d.Kind], at)
				}
			}
		}
		for i := range 60 {
			if ready.Store(20 * int64(1-i%2)); i == 30 {
				next := w.newReplica()
				next.post(in, depths)
				next.lead()
				c = next.control
			}
			look()
		}
		for kind, times := range told {
			if len(times) < 5 || len(times) > 11 {
				t.Errorf("%s was sent %d times in 10 minutes, want 5 to 11", kind, len(times))
			}
			slices.SortFunc(times, time.Time.Compare)
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < time.Minute {
					t.Errorf("%s was sent again after %v, want at least a minute", kind, gap)
				}
			}
		}
		for _, stands := range []int64{20, 0} {
			ready.Store(stands)
			for range 14 {
				look()
			}
			last, err := c.Webhooks.Deliveries(t.Context(), "default", "a")
			if want := map[int64]task.NotificationKind{20: task.NotifyQueueOver, 0: task.NotifyQueueUnder}[stands]; err != nil ||
				last[0].Kind != want {
				t.Errorf("with %d ready tasks the last notice was %s, want %s", stands, last[0].Kind, want)
			}
		}
		if rows := rowsOf(w.State, hookPrefix(system.OverTable, "default", "a")); rows != 0 {
			t.Errorf("%d rows are left for a queue that is under its threshold", rows)
		}
	})
}

// rowsOf counts the rows whose keys have a prefix.
func rowsOf(r store.Reader, prefix []byte) (n int) {
	r.Scan(prefix, system.PrefixEnd(prefix), func(_, _ []byte) bool {
		n++
		return true
	})
	return n
}

// Notices are ordered by the time at which they are due, whatever their ids.
func TestPendingKeys(t *testing.T) {
	h := &Webhook{Namespace: "default", Name: "a"}
	a, b := newNoticeID(5, h, deaths("q", 1, 1), 1), newNoticeID(6, h, deaths("q", 1, 1), 1)
	if a.created() != 5 || a == b || !strings.HasPrefix(a.String(), "msg_") {
		t.Errorf("ids are %s and %s, want two with the prefix msg_", a, b)
	}
	keys := []string{string(pendingKey("default", "a", 9, a)), string(pendingKey("default", "a", 10, b)),
		string(pendingKey("default", "a", 300, a)), string(pendingKey("default", "ab", 1, a))}
	if !slices.IsSorted(keys) {
		t.Errorf("keys are not sorted: %x", keys)
	}
	if due, id := dueOf([]byte(keys[2])); due != store.Time(300) || id != a {
		t.Errorf("dueOf = %d and %s, want 300 and the first id", due, id)
	}
}

// Changes of a webhook take effect immediately, and wake the senders.
func TestWebhooksAreChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		hook(t, c, Webhook{Name: "a"})
		looked := func() bool {
			select {
			case <-c.Webhooks.dispatch:
				return true
			default:
				return false
			}
		}
		change := func(do func(context.Context, Call) (View, error), a Call) View {
			t.Helper()
			v, err := do(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		set := hookCall("a")
		set.Change.Queues = []string{"mail"}
		if v := change(c.Webhooks.Set, set); fmt.Sprint(v.Queues) != "[mail]" {
			t.Errorf("after setting one pattern the queues are %v", v.Queues)
		}
		pause := hookCall("a")
		pause.By.Reason = "too loud"
		at := store.TimeOf(time.Now())
		if v := change(c.Webhooks.Pause, pause); !v.Paused || v.PausedReason != "too loud" || v.PausedBy != operator.Name ||
			v.PausedAt < at {
			t.Errorf("after Pause the webhook is %+v", v)
		}
		c.Webhooks.takes(t, deaths("mail", 1, 1))
		if a, err := c.Webhooks.nextAttempt(t.Context(), "default", "a"); a != nil || err != nil {
			t.Errorf("nextAttempt of a paused webhook = %+v, %v, want none", a, err)
		}
		if v, err := c.Webhooks.Get(t.Context(), "default", "a"); err != nil || v.Pending != 1 || v.DroppedAt != 0 || v.Dropped != 0 ||
			c.Webhooks.dropped.Load() != 0 {
			t.Errorf("a notice for a paused webhook was lost: %+v, %v", v, err)
		}
		pass(time.Minute)
		looked()
		if v := change(c.Webhooks.Resume, hookCall("a")); v.Paused || v.PausedAt != 0 || !looked() {
			t.Errorf("after Resume the webhook is %+v, or the dispatcher was not woken", v)
		}
		c.Webhooks.takes(t, deaths("mail", 1, 2)) // is merged into the pending notice
		if v, err := c.Webhooks.Get(t.Context(), "default", "a"); err != nil || v.Pending != 1 {
			t.Errorf("after a pause %d notices are pending, %v, want 1", v.Pending, err)
		}
		var secrets []string
		for i := range maxHookSecrets + 1 {
			rotate := hookCall("a")
			rotate.Secret, rotate.Overlap = fmt.Sprint("s", i), time.Hour
			change(c.Webhooks.Rotate, rotate)
			a, err := c.Webhooks.nextAttempt(t.Context(), "default", "a")
			if err != nil || i == 0 && a == nil {
				t.Fatal(a, err)
			}
			h, _, err := system.GetRow[Webhook](w.State, hookKey("default", "a"))
			must(t, err)
			secrets = h.secrets(store.TimeOf(time.Now()))
		}
		if fmt.Sprint(secrets) != "[s3 s2 s1]" {
			t.Errorf("requests are signed with the secrets %v, want the last three", secrets)
		}
		// A webhook that is removed while it is tested leaves nothing behind.
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: func(ctx context.Context, l webhook.Request) webhook.Outcome {
			must(t, c.Webhooks.Remove(ctx, hookCall("a")))
			return in.send(ctx, l)
		}})
		if _, err := p.Test(t.Context(), operator, "default", "a"); err != nil {
			t.Error(err)
		}
		if _, left := w.State.Get(recentKey("default", "a")); left {
			t.Error("a webhook that was removed during its test left recent deliveries behind")
		}
	})
}

// Checking thresholds that nothing has crossed does not wake the dispatcher, and a crossing that is too early to be reported is not lost.
func TestCrossingsThatAreNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h", Events: []task.NotificationKind{task.NotifyQueueOver, task.NotifyQueueUnder}, DepthOver: 10})
		for len(c.Webhooks.dispatch) > 0 {
			<-c.Webhooks.dispatch
		}
		if must(t, c.Webhooks.cross(5)); len(c.Webhooks.dispatch) != 0 {
			t.Error("the dispatcher was woken although nothing was crossed")
		}
		for _, ready := range []int64{100, 0, 100, 0} {
			must(t, c.Webhooks.cross(ready))
		}
		if v, err := c.Webhooks.Get(bg, "default", "h"); err != nil || v.Pending != 2 || c.Webhooks.dropped.Load() != 0 {
			t.Errorf("after crossing the threshold four times, %d notices are pending and %d were dropped, %v, want 2 pending", v.Pending,
				c.Webhooks.dropped.Load(), err)
		}
	})
}

// The depths of queues are not requested while there is no webhook, and are from the first one on.
func TestNoDepthsWithoutWebhooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, in := w.open(1), newInbox()
		w.leader.post(in, func() ([]Depth, bool) { return []Depth{{Queue: "q", Ready: 11}}, false })
		pass(time.Minute)
		w.Rounds.Lock()
		before := w.Updates
		w.Rounds.Unlock()
		pass(time.Hour)
		w.Rounds.Lock()
		n := w.Updates - before
		w.Rounds.Unlock()
		if n > 10 { // one in ten minutes for notices that may be due
			t.Errorf("%d rounds were run in an idle hour, want at most 10", n)
		}
		hook(t, c, Webhook{Name: "a", DepthOver: 10, Events: []task.NotificationKind{task.NotifyQueueOver}})
		pass(checkEvery + 2*time.Second)
		if _, n := in.count("https://a"); n != 1 {
			t.Errorf("got %d notices of a queue over its threshold, want 1", n)
		}
	})
}
