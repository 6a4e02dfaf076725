package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// TestIdleQueues: of the queues that are not examined, those that nobody takes are counted, and no others.
func TestIdleQueues(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		configs, specs := map[string]task.QueueConfig{}, []task.Spec{}
		add := func(name string, tasks int, paused bool) {
			configs[name] = task.QueueConfig{Version: 1, Settings: task.DefaultSettings(), Paused: paused}
			for range tasks {
				s := task.Spec{Type: "job", Queue: name}
				s.Fill()
				specs = append(specs, s)
			}
		}
		for i := range explain.MaxExamined {
			add(fmt.Sprintf("large-%d", i), 3, false)
		}
		add("paused", 1, true)
		add("taken", 1, false)
		add("idle", 1, false)
		add("idle-2", 2, false)
		w.must(copyQueues(ctx, w.Broker, one, configs))
		_, _, err := w.Enqueue(ctx, one, ns, specs)
		w.must(err)
		_, _, err = w.Claim(ctx, one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "taken"}}, Max: 1, MaxBytes: 1 << 20,
			Lease: time.Second},
			0)
		w.must(err)
		w.pass(2 * time.Second) // it is ready again, and somebody asked a moment ago
		got := w.status(0)
		if want := "[{idle 1 false} {idle-2 2 false}]"; fmt.Sprint(got.Idle) != want || len(got.Busy) != explain.MaxExamined {
			t.Errorf("idle queues besides the %d examined: %+v, want %s", len(got.Busy), got.Idle, want)
		}
	})
}

// status returns the status of the namespace in the shards that the broker leads.
func (w *world) status(age time.Duration) (sum NamespaceStatus) {
	w.t.Helper()
	got, err := w.NamespaceStatus(context.Background(), ns, age)
	w.must(err)
	for i := range got {
		sum.Add(&got[i].Value)
	}
	sum.Idle = Unserved(sum.Idle)
	return sum
}

// A shard that hangs, at the first read or when its queues are examined, is left out: the others have their figures all the same.
func TestStatusBesideAShardThatHangs(t *testing.T) {
	for hung, well := range map[uint32]string{one: "far", two: "near"} {
		inWorld(t, func(w *world) {
			defer w.addShard(two)()
			w.pass(5 * time.Second)
			for id, queue := range map[uint32]string{one: "near", two: "far"} {
				spec := task.Spec{Type: "job", Queue: queue}
				spec.Fill()
				_, _, err := w.Enqueue(context.Background(), id, ns, []task.Spec{spec})
				w.must(err)
			}
			began, over := make(chan struct{}), make(chan struct{})
			p, err := w.partOf(context.Background(), hung)
			w.must(err)
			p.workers = make([]task.QueueWorkers, len(p.ready))
			go func() {
				_, _, _ = change(context.Background(), p.r, func(*engine.Round) (struct{}, error) {
					close(began)
					<-over
					return struct{}{}, nil
				})
			}()
			<-began
			at := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), verb.PartTime) // as another node asks
			defer cancel()
			all, err := w.QueueStatuses(ctx, 0)
			if took := time.Since(at); err != nil || len(all) != 1 || all[0].Queue != well || !all[0].Examined || took >= verb.PartTime {
				t.Errorf("while shard %d hangs, the queues are %+v, %v after %v, want %q in less than %v", hung, all, err, took,
					well, verb.PartTime)
			}
			at = time.Now()
			if err := p.examine(context.Background()); !errors.Is(err, context.DeadlineExceeded) || time.Since(at) != shardTime {
				t.Errorf("examining the queues of shard %d, which hangs: %v after %v, want an end after %v", hung, err,
					time.Since(at), shardTime)
			}
			close(over)
			if all, err = w.QueueStatuses(context.Background(), 0); err != nil || len(all) != 2 {
				t.Errorf("when shard %d is well again, the queues are %+v, %v, want two", hung, all, err)
			}
		})
	}
}

// TestPartsStayApart: a queue in several shards is one in the status of all, and each shard still has its own.
func TestPartsStayApart(t *testing.T) {
	parts := []*part{{all: []*QueueStatus{{Queue: "a", Ready: 1, Blocked: []Blocked{{Why: task.WhyNoWorker, Tasks: 1}}}}},
		{all: []*QueueStatus{{Queue: "b", Ready: 5}, {Queue: "a", Ready: 2, Blocked: []Blocked{{Why: task.WhyNoWorker, Tasks: 2}}}}}}
	all := join(parts)
	if len(all) != 2 || all[0].Ready != 3 || all[0].Waits(task.WhyNoWorker) != 3 || all[1].Ready != 5 {
		t.Errorf("joined, the parts are %+v", all)
	}
	if a := parts[0].all[0]; a.Ready != 1 || a.Waits(task.WhyNoWorker) != 1 {
		t.Errorf("the first part has become %+v", a)
	}
}

// TestIdleParts: a queue in several shards is idle if nobody takes any part with ready tasks.
func TestIdleParts(t *testing.T) {
	idle, served, empty := QueueStatus{Idle: true, Ready: 1}, QueueStatus{Ready: 1}, QueueStatus{}
	for _, c := range []struct {
		a, b QueueStatus
		want bool
	}{{idle, idle, true}, {idle, empty, true}, {empty, idle, true}, {idle, served, false}, {served, idle, false}, {empty, empty, false}} {
		sum := c.a
		if sum.Add(&c.b); sum.Idle != c.want {
			t.Errorf("idle of %+v plus %+v = %v, want %v", c.a, c.b, sum.Idle, c.want)
		}
		inWorld(t, func(w *world) { // so it is if different nodes report the parts
			w.statusCache.at, w.statusCache.took = time.Now(), time.Second
			c.a.Namespace, c.b.Namespace = ns, ns
			w.statusCache.last = &statusRead{terms: termsOf(w.Broker),
				parts: []*part{{shard: one, all: []*QueueStatus{&c.a}}, {shard: two, all: []*QueueStatus{&c.b}}}}
			unserved := func(noWorker bool) []QueueCount {
				got, err := w.QueueCounts(context.Background(), CountsQuery{Namespace: ns, State: task.Ready, NoWorker: noWorker},
					time.Minute)
				w.must(err)
				return Unserved(SumCounts(got[0].Value, got[1].Value))
			}
			if counts, idle := unserved(true), w.status(time.Minute).Idle; (len(counts) == 1) != c.want || (len(idle) == 1) != c.want {
				t.Errorf("%+v and %+v: without workers are %v, idle are %v, want any: %v", c.a, c.b, counts, idle, c.want)
			}
			if all := unserved(false); (len(all) == 1) != (c.a.Ready+c.b.Ready > 0) {
				t.Errorf("%+v and %+v: the counts of all queues are %v", c.a, c.b, all)
			}
		})
	}
}

// TestNewDeadLetters: a dead letter is new for an hour, unless it is replayed or discarded; a task that dies again is new again.
func TestNewDeadLetters(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		die := func(queue string) task.ID {
			id := w.enqueue(task.Spec{Queue: queue})[0]
			got := <-w.claim(ctx, call(queue), 0)
			w.settle(Settle{Verb: Fail, Hold: hold(got[0]), Fail: Failing{Action: engine.FailDead}})
			return id
		}
		is := func(when string, dead, fresh int64) {
			t.Helper()
			got := w.status(0)
			if got.Dead != dead || got.NewDead != fresh || got.MoreNewDead {
				t.Errorf("%s: %d dead letters, %d of them new (more: %v), want %d and %d", when, got.Dead, got.NewDead,
					got.MoreNewDead, dead, fresh)
			}
		}
		is("at first", 0, 0)
		old := die("mail")
		w.pass(59 * time.Minute)
		is("59 minutes later", 1, 1)
		w.pass(2 * time.Minute)
		is("61 minutes later", 1, 0)
		replayed, discarded := die("mail"), die("video")
		is("with two more", 3, 2)
		err := operateTask(ctx, w.Broker, Retry, replayed)
		w.must(err)
		err = operateTask(ctx, w.Broker, Discard, discarded)
		w.must(err)
		is("when both are handled", 1, 0)
		got := <-w.claim(ctx, call("mail"), 0)
		w.settle(Settle{Verb: Fail, Hold: hold(got[0]), Fail: Failing{Action: engine.FailDead}})
		is("when the replayed one has died again", 2, 1)
		err = operateTask(ctx, w.Broker, Retry, old)
		w.must(err)
		is("when the old one is replayed", 1, 1)
	})
}

// TestNewDeadLettersAddUp over parts of a queue, and over nodes.
func TestNewDeadLettersAddUp(t *testing.T) {
	one, many := QueueStatus{NewDead: 1}, QueueStatus{NewDead: 9, MoreNewDead: true}
	if one.Add(&many); one.NewDead != 10 || !one.MoreNewDead {
		t.Errorf("the sum over parts of a queue is %+v", one)
	}
	a, b := NamespaceStatus{NewDead: 1}, NamespaceStatus{NewDead: 9, MoreNewDead: true}
	if a.Add(&b); a.NewDead != 10 || !a.MoreNewDead {
		t.Errorf("the sum over nodes is %+v", a)
	}
}

// TestStatusFollowsLeadership: a node that no longer leads a shard does not report it from what it has read before: the next leader does.
func TestStatusFollowsLeadership(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"})
		for _, terms := range []map[uint32]uint64{nil, {one: 99}, {one: 1, two: 1}} {
			w.statusCache.at, w.statusCache.took = time.Now(), time.Minute
			w.statusCache.last = &statusRead{terms: terms,
				parts: []*part{{shard: two, all: []*QueueStatus{{Namespace: ns, Queue: "a", Ready: 7}}}}}
			got, err := w.NamespaceStatus(context.Background(), ns, time.Minute)
			w.must(err)
			if len(got) != 1 || got[0].Shard != one || got[0].Term != termsOf(w.Broker)[one] || got[0].Value.Ready != 1 {
				t.Errorf("after terms %v: the report is %+v, want one task that is ready in shard %d only", terms, got, one)
			}
		}
	})
}

// TestNamespaceAddsUp: the numbers of the queues of one namespace are added up, and an expensive result is reused for a while.
func TestNamespaceAddsUp(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		of := func(ns, queue string, n int64, idle, examined bool) *QueueStatus {
			return &QueueStatus{Namespace: ns, Queue: queue, Scheduled: n, Ready: 2 * n, Claimed: 3 * n, Retrying: 4 * n, Dead: 5 * n,
				Poisoned: 6 * n, NewDead: 7 * n, Idle: idle, Examined: examined}
		}
		w.statusCache.at, w.statusCache.took = time.Now(), time.Second
		known := []*QueueStatus{of(ns, "a", 1, false, true), of(ns, "b", 10, true, false), of("other", "a", 100, true, true),
			of(ns, "c", 1000, true, false)}
		w.statusCache.last = &statusRead{terms: termsOf(w.Broker), parts: []*part{{shard: one, apart: map[string]int64{ns: 3, "other": 4},
			all: known}}, queues: known}
		got := w.status(time.Minute)
		if want := "[{b 20 false} {c 2000 false}]"; len(got.Queues) != 3 || fmt.Sprint(got.Idle) != want || len(got.Busy) != 1 ||
			got.Busy[0].Queue != "a" {
			t.Errorf("NamespaceStatus has queues %v, idle %+v, want %s, busy %v", got.Queues, got.Idle, want, got.Busy)
		}
		if got.Scheduled != 1011 || got.Ready != 2022 || got.Claimed != 3033 || got.Retrying != 4044 || got.Dead != 5055 ||
			got.Poisoned != 6066 || got.NewDead != 7077 || got.Apart != 3 {
			t.Errorf("NamespaceStatus adds the tasks up to %+v", got)
		}
		two := got
		if two.Add(&got); len(two.Queues) != 3 || two.Scheduled != 2022 || two.Ready != 4044 || two.Claimed != 6066 ||
			two.Retrying != 8088 || two.Dead != 10110 || two.Poisoned != 12132 || two.NewDead != 14154 || two.Apart != 6 ||
			fmt.Sprint(two.Idle) != "[{b 40 false} {c 4000 false}]" || len(two.Busy) != 1 {
			t.Errorf("the sum of two nodes is %+v", two)
		}
		w.pass(statusShare*time.Second - time.Millisecond)
		if all, err := w.QueueStatuses(ctx, time.Minute); err != nil || len(all) != 4 {
			t.Errorf("a result that took a second was not reused for %d seconds: %v, %v", statusShare, all, err)
		}
		w.pass(time.Millisecond)
		if all, err := w.QueueStatuses(ctx, time.Minute); err != nil || len(all) != 0 {
			t.Errorf("after that time the result was reused: %v, %v", all, err)
		}
	})
}

// TestCountsEnd: a count with no time to wait ends after some rows and reports that there may be more; one with time counts all, by state.
func TestCountsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"mail": {Version: 1, Settings: task.DefaultSettings()}}))
		specs := make([]task.Spec, 1000)
		for i := range specs {
			specs[i] = task.Spec{Type: "job", Queue: "mail"}
			specs[i].Fill()
		}
		for range countRows/len(specs) + 1 {
			_, _, err := w.Enqueue(ctx, one, ns, specs)
			w.must(err)
		}
		for _, c := range []struct {
			patience time.Duration
			claims   int
			want     string
		}{{0, 0, "5000 map[ready:5000], more: true"}, {time.Second, 7, "6000 map[claimed:7 ready:5993], more: false"}} {
			if c.claims > 0 {
				_, _, err := w.Claim(ctx, one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "mail"}}, Max: c.claims, MaxBytes: 1 << 20,
					Lease: time.Hour}, 0)
				w.must(err)
			}
			out, err := CountMatches.Call(ctx, w, MatchCount{OnShard: OnShard{one, ns}, Filter: Filter{Queue: "mail"}, Wait: c.patience})
			w.must(err)
			n := out.Matches
			states := map[string]int64{}
			for s, k := range n.States {
				states[s.String()] = k
			}
			if got := fmt.Sprintf("%d %v, more: %t", n.Count, states, n.Next != nil); got != c.want {
				t.Errorf("with a wait of %v: %s, want %s", c.patience, got, c.want)
			}
		}
	})
}

// TestSlowStatus: reading the status of all queues goes on after its caller has given up, and whoever asks meanwhile or
// soon after gets its result.
func TestSlowStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Type: "job", Queue: "mail"})
		reads := 0
		w.cfg.Workers = func(_ context.Context, queues []QueueName) []task.QueueWorkers {
			reads++
			<-time.After(5 * time.Second) // some nodes are slow to answer
			return make([]task.QueueWorkers, len(queues))
		}
		ask := func(patience time.Duration) ([]*QueueStatus, error) {
			ctx, cancel := context.WithTimeout(w.t.Context(), patience)
			defer cancel()
			return w.QueueStatuses(ctx, time.Minute)
		}
		for range 2 {
			if all, err := ask(2 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller who waits for two seconds got %v, %v", all, err)
			}
		}
		for _, patience := range []time.Duration{2 * time.Second, time.Millisecond} {
			if all, err := ask(patience); err != nil || len(all) != 1 || all[0].Queue != "mail" || reads != 1 {
				t.Errorf("after four seconds: %v, %v, read %d times", all, err, reads)
			}
		}
		w.pass(time.Minute)
		if all, err := ask(10 * time.Second); err != nil || len(all) != 1 || reads != 2 {
			t.Errorf("a minute later: %v, %v, read %d times", all, err, reads)
		}
		w.pass(time.Minute)
		if _, err := ask(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who waits for a second got %v", err)
		}
		w.Stop()
		if _, err := ask(time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("a stopped broker answers %v", err)
		}
	})
}

// A claim that is released after the broker has stopped stays in place until its lease ends: nothing runs any more.
func TestNothingIsReleasedAfterStop(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Stop()
		w.background(func() { t.Error("a stopped broker began something") })
		w.pass(time.Second)
	})
}
