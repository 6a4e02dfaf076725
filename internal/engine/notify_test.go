package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/notify"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// watchFor tells the shard what webhooks subscribe to.
func watchFor(w *engine.World, rules ...task.WatchRule) {
	w.Round(func(r *engine.Round) { notify.PutWatch(r, "default", task.Watch{Version: w.Index, Rules: rules}) })
}

func allOf(queues ...string) task.WatchRule {
	return task.WatchRule{Kinds: task.NotificationKinds, Queues: queues}
}

// sentNews returns the notifications in the outbox.
func sentNews(w *engine.World) (all []*schema.Message) {
	return slices.DeleteFunc(w.Messages(1000), func(p *schema.Message) bool { return p.Notification == nil })
}

// deliverNews removes the notifications from the outbox, as the leader's sender does after delivering them.
func deliverNews(w *engine.World) (all []*task.Notification) {
	for _, p := range sentNews(w) {
		w.Round(func(r *engine.Round) { engine.Delivered(r, "default", p.Request, engine.Accepted{}, nil) })
		all = append(all, p.Notification)
	}
	return all
}

func newsLine(all []*task.Notification) (line string) {
	for _, n := range all {
		line += fmt.Sprintf("%s %s %d of %d; ", n.Kind, n.Queue, len(n.Samples), n.Count)
	}
	return line
}

func TestNoticesAreGathered(t *testing.T) {
	w := engine.NewWorld(t)
	expect := func(what, want string) []*task.Notification {
		t.Helper()
		got := deliverNews(w)
		if newsLine(got) != want {
			t.Errorf("%s: got %q, want %q", what, newsLine(got), want)
		}
		if err := w.Check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return got
	}
	w.Die("mail", 2, engine.Deadly)
	w.Pass(time.Hour)
	expect("nobody wants to hear of it", "")
	watchFor(w, allOf("ma*"))
	w.Die("sms", 2, engine.Deadly)
	w.Die("mail", 7, engine.Deadly)
	w.Pass(4 * time.Second)
	expect("it settles", "")
	w.Die("mail", 1, engine.Deadly)
	w.BecomeLeader()
	w.Pass(time.Second)
	got := expect("the first", "task.dead mail 5 of 8; ")
	if n := got[0]; len(got) == 1 {
		s := n.Samples[4]
		if s.Error != "disk 7 is full" || s.Type != "job" || s.Reason != task.ReasonNotRetryable || s.Attempt != 1 || len(s.Task) != 36 ||
			n.Last.Sub(n.First) != 4*time.Second || n.Fingerprint != fmt.Sprintf("%016x",
			fingerprint.Of("job", fingerprint.Normalize(engine.Deadly.Failure.Message))) {
			t.Errorf("unexpected notification: %+v", n)
		}
	}
	w.Die("mail", 1, engine.Deadly)
	w.Die("mail", 1, engine.FailRequest{Action: engine.FailPoison})
	w.Pass(6 * time.Second)
	expect("poison is apart, and a queue is told of once a minute", "task.poisoned mail 1 of 1; ")
	w.Pass(54 * time.Second)
	w.Die("mail", 1, engine.Deadly)
	expect("a minute after the first", "task.dead mail 1 of 1; ")
	w.Pass(10 * time.Minute)
	expect("the last", "task.dead mail 1 of 1; ")
	w.Pass(2 * time.Minute)
	rows := 0
	w.Store.Scan([]byte{schema.TableNotification}, []byte{schema.TableNotification + 1}, func(_, _ []byte) bool { rows++; return true })
	if rows != 0 {
		t.Errorf("%d notification rows are left after nothing more happened", rows)
	}

	w.Die("mail", 1, engine.Deadly)
	w.Pass(5 * time.Second)
	w.Die("mail", 2, engine.Deadly)
	w.Pass(5 * time.Minute)
	if waits := sentNews(w); len(waits) != 1 {
		t.Errorf("%d messages are undelivered for one queue, want one", len(waits))
	}
	expect("what waits for the sender", "task.dead mail 1 of 1; ")
	w.Pass(10 * time.Second)
	expect("what came behind it", "task.dead mail 2 of 2; ")

	watchFor(w)
	w.Die("mail", 2, engine.Deadly)
	w.Pass(time.Hour)
	expect("nobody wants to hear of it any more", "")
	w.Round(func(r *engine.Round) {
		notify.PutWatch(r, "default", task.Watch{Version: 1, Rules: []task.WatchRule{allOf("*")}})
	})
	w.Die("mail", 2, engine.Deadly)
	w.Pass(time.Hour)
	expect("an older copy changes nothing", "")
	w.Round(func(r *engine.Round) {
		version := w.Index
		notify.PutWatch(r, "default", task.Watch{Version: version, Rules: []task.WatchRule{allOf("none")}})
		notify.PutWatch(r, "default", task.Watch{Version: version, Rules: []task.WatchRule{allOf("*")}})
	})
	w.Die("mail", 2, engine.Deadly)
	w.Pass(time.Hour)
	expect("nor does one that is as old", "")
}

// Breakers and late schedules are reported with their reasons, and no other events.
func TestNoticesOfBreakersAndSchedules(t *testing.T) {
	w := engine.NewWorld(t)
	watchFor(w, allOf("*"))
	cause := breaker.Info{Type: "job", Failed: 3, Attempts: 4, Window: time.Minute, Error: "down\nat line 7"}
	for range 2 {
		w.Round(func(r *engine.Round) {
			r.Breakers = append(r.Breakers, breaker.Change{Namespace: "default", Queue: "mail", Info: cause},
				breaker.Change{Namespace: "default", Queue: "mail", Info: cause, Closed: breaker.ByProbes})
			for range 2 {
				r.Events = append(r.Events, engine.Event{Kind: "schedule.missed", Namespace: "default", Name: "nightly",
					Queue: "mail", Type: "job", Reason: "missed", Count: 7},
					engine.Event{Kind: "operation.done", Namespace: "default", Queue: "mail", Count: 9})
			}
		})
		w.Pass(2 * time.Minute)
		got := deliverNews(w)
		if want := "breaker.closed mail 1 of 1; breaker.opened mail 1 of 1; schedule.missed mail 2 of 14; "; newsSorted(got) != want {
			t.Fatalf("got the notifications %q, want %q", newsSorted(got), want)
		}
		for _, n := range got {
			want := map[task.NotificationKind]task.NotificationSample{
				task.NotifyBreakerOpened:  {Type: "job", Error: "down", Reason: cause.Reason()},
				task.NotifyBreakerClosed:  {Type: "job", Error: "down", Reason: string(breaker.ByProbes)},
				task.NotifyScheduleMissed: {Type: "job", Schedule: "nightly", Reason: "missed", Count: 7},
			}[n.Kind]
			want.At = n.Last
			if got := n.Samples[0]; fmt.Sprint(got) != fmt.Sprint(want) || n.Fingerprint != "" {
				t.Errorf("%s has the sample %+v with fingerprint %q, want %+v", n.Kind, got, n.Fingerprint, want)
			}
		}
	}
}

func newsSorted(all []*task.Notification) string {
	slices.SortFunc(all, func(a, b *task.Notification) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return newsLine(all)
}

// Erasing a namespace removes it from memory, and leaves the others.
func TestErasedNoticesAreForgotten(t *testing.T) {
	w := engine.NewWorld(t)
	watchFor(w, allOf("*"))
	w.Die("mail", 2, engine.Deadly)
	notify.Policy.Erased(w.Leader, "other")
	w.Die("mail", 1, engine.Deadly)
	w.Pass(5 * time.Second)
	if got := newsLine(deliverNews(w)); got != "task.dead mail 3 of 3; " {
		t.Errorf("after another namespace was erased: %q", got)
	}
	w.Die("mail", 1, engine.Deadly)
	for _, c := range []struct {
		table byte
		want  string
	}{{schema.TableNotification, "task.dead mail 1 of 1; "}, {schema.TableWatch, ""}} {
		w.Round(func(r *engine.Round) {
			lo, hi := schema.TableBounds("default", c.table)
			r.Tx().Scan(lo, hi, func(k, _ []byte) bool { r.Tx().Delete(bytes.Clone(k)); return true })
		})
		notify.Policy.Erased(w.Leader, "default")
		w.Die("mail", 1, engine.Deadly)
		w.Pass(2 * time.Minute)
		if got := newsLine(deliverNews(w)); got != c.want {
			t.Errorf("after the rows of table %d were erased: %q, want %q", c.table, got, c.want)
		}
	}
}

// A namespace that was erased has no subscriptions, nor has a new one of the same name.
func TestErasedSubscriptions(t *testing.T) {
	w := engine.NewWorld(t)
	w.Round(func(r *engine.Round) {
		notify.PutWatch(r, "other", task.Watch{Version: 1, Rules: []task.WatchRule{allOf("*")}})
	})
	if err := eraseAll(w, "other", 9, 100); err != nil {
		t.Fatal(err)
	}
	w.Round(func(r *engine.Round) {
		engine.PutQueue(r, "other", "mail", task.QueueConfig{Version: 1, Settings: task.DefaultSettings()})
		n := &engine.NewTask{Namespace: "other", ID: w.NewID(), Spec: task.Spec{Queue: "mail", Type: "job"}}
		n.Fill()
		if _, err := engine.Enqueue(r, n); err != nil {
			t.Fatal(err)
		}
	})
	w.Round(func(r *engine.Round) {
		got, _ := engine.ClaimTasks(r, &engine.ClaimRequest{Namespace: "other", Queues: []engine.Share{{Queue: "mail"}}, Max: 1,
			MaxBytes: 1 << 20})
		if len(got) != 1 {
			t.Fatalf("claimed %+v, want one task", got)
		}
		if _, err := engine.Fail(r, engine.Hold{Namespace: "other", ID: got[0].ID, Token: got[0].Token}, engine.Deadly); err != nil {
			t.Fatal(err)
		}
	})
	w.Pass(2 * time.Minute)
	if got := schema.ListMessages(w.Store, "other", task.ID{}, 10); len(got) > 0 {
		t.Errorf("%d notifications are on their way", len(got))
	}
}

// An outdated deadline changes nothing, and a malformed one is damage.
func TestOldDeadlineOfNotices(t *testing.T) {
	w := engine.NewWorld(t)
	watchFor(w, allOf("*"))
	w.Die("mail", 1, engine.Deadly)
	due := func(rest string) {
		w.Round(func(r *engine.Round) {
			notify.Policy.Due[schema.OnNotification](r, schema.Deadline{At: w.Now, Kind: schema.OnNotification, Namespace: "default",
				Rest: []byte(rest)})
		})
	}
	due("task.dead\x00mail")
	due("task.dead\x00other")
	if got := sentNews(w); len(got) != 0 {
		t.Errorf("%d notifications were sent before they were due", len(got))
	}
	defer func() {
		if recover() == nil {
			t.Error("a deadline without a queue was accepted")
		}
	}()
	w.T = new(testing.T)
	due("task.dead")
}

// Whatever the timing, all deaths in watched queues are reported once, in order, and at most once a minute per queue.
func TestNoticesAddUp(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := engine.NewWorld(t)
		watchFor(w, allOf("a", "b"))
		type name struct {
			kind  task.NotificationKind
			queue string
		}
		want, got := map[name]int64{}, map[name]int64{}
		last := map[name]*task.Notification{}
		take := func() {
			for _, n := range deliverNews(w) {
				of := name{n.Kind, n.Queue}
				got[of] += n.Count
				if before := last[of]; before != nil && (n.Seq < before.Seq+time.Minute.Microseconds() || n.First.Before(before.Last)) {
					t.Errorf("seed %d: %s %s was sent %v after the previous one, begins at %v, and the previous one ended at %v",
						seed, n.Kind, n.Queue, time.Duration(n.Seq-before.Seq)*time.Microsecond, n.First, before.Last)
				}
				last[of] = n
			}
		}
		for range 300 {
			switch rng.IntN(5) {
			case 0, 1:
				queue, n := []string{"a", "b", "c"}[rng.IntN(3)], 1+rng.IntN(8)
				of := name{task.NotifyDead, queue}
				f := engine.Deadly
				if rng.IntN(3) == 0 {
					of.kind, f = task.NotifyPoisoned, engine.FailRequest{Action: engine.FailPoison}
				}
				w.Die(queue, n, f)
				if queue != "c" {
					want[of] += int64(n)
				}
			case 2:
				w.Pass(time.Duration(rng.IntN(90_000)) * time.Millisecond)
			case 3:
				take()
			case 4:
				w.BecomeLeader()
			}
		}
		if err := w.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for range 3 {
			w.Pass(2 * time.Minute)
			take()
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d: notified of %v, but %v died", seed, got, want)
		}
	}
}

func TestMeters(t *testing.T) {
	w := engine.NewWorld(t)
	for i, queue := range []string{"mail-1", "mail-1", "mail-2", "sms"} {
		w.Now = w.Now.Add(time.Second)
		if _, err := w.Enqueue(task.Spec{Type: fmt.Sprint("t", i), Queue: queue, Priority: task.Priority(1 + i%3)}); err != nil {
			t.Fatal(err)
		}
	}
	line := func(patterns []string, since bool) (s string) {
		all, err := query.Meters(w.Store, "default", patterns, since)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Since != 0 {
				s += fmt.Sprintf("%s %d %v; ", m.Queue, m.Ready, w.Now.Sub(m.Since))
			} else {
				s += fmt.Sprintf("%s %d; ", m.Queue, m.Ready)
			}
		}
		return s
	}
	for _, c := range []struct {
		patterns []string
		since    bool
		want     string
	}{{[]string{"mail*"}, true, "mail-1 2 3s; mail-2 1 1s; "}, {[]string{"*"}, false, "mail-1 2; mail-2 1; sms 1; "},
		{[]string{"x"}, true, ""}} {
		if got := line(c.patterns, c.since); got != c.want {
			t.Errorf("Meters(%v) = %q, want %q", c.patterns, got, c.want)
		}
	}
	w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "mail-1"}}, Lease: time.Hour})
	if got := line([]string{"mail-1"}, true); got != "mail-1 1 3s; " && got != "mail-1 1 2s; " {
		t.Errorf("Meters after a claim = %q", got)
	}
}

// BenchmarkDeath makes tasks dead letters, ten in a round: without webhooks, with one that does not subscribe to dead
// letters, and with one that does.
func BenchmarkDeath(b *testing.B) {
	for _, c := range []struct {
		name  string
		rules []task.WatchRule
	}{{"none", nil}, {"other", []task.WatchRule{allOf("other")}}, {"one", []task.WatchRule{allOf("*")}}} {
		b.Run(c.name, func(b *testing.B) {
			s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			w := &engine.World{T: b, Store: s, Now: engine.Dawn}
			w.BecomeLeader()
			w.PutQueue("default", task.DefaultSettings(), false)
			if c.rules != nil {
				watchFor(w, c.rules...)
			}
			const batch = 10
			bytes := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				w.EnqueueMany(batch, []byte(`{}`))
				claimed := w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: batch, Lease: time.Hour})
				b.StartTimer()
				w.Now += 1000
				w.Round(func(r *engine.Round) {
					for _, c := range claimed {
						if _, err := engine.Fail(r, engine.Hold{Namespace: "default", ID: c.ID, Token: c.Token},
							engine.Deadly); err != nil {
							b.Fatal(err)
						}
					}
				})
				bytes += w.Written
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
			b.ReportMetric(float64(bytes)/float64(b.N*batch), "bytes/task")
		})
	}
}
