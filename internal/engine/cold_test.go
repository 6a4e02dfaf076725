package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// KeepWarm sets how many flows stay warm, and how many lanes are read at a time, for a test.
func KeepWarm(t testing.TB, warm, read int) {
	b := &lanes.Bounds
	was := *b
	t.Cleanup(func() { *b = was })
	b.Warm, b.Head, b.Heads = warm, 3, 4
	if read > 0 {
		b.FirstRead, b.TickRead, b.ClaimRead = read, read, 2*read
	}
}

// KeepHeads keeps so few tasks of a lane in memory that the next ones are read again and again.
func KeepHeads(t testing.TB, n int) {
	was := lanes.Bounds
	t.Cleanup(func() { lanes.Bounds = was })
	lanes.Bounds.LaneHead = n
}

// enqueueKeys adds a task for each of n keys.
func (w *World) enqueueKeys(n int, spec task.Spec) {
	for done := 0; done < n; {
		w.Now += 1000
		w.Round(func(r *Round) {
			Tick(r)
			for range min(1000, n-done) {
				spec.Key = fmt.Sprintf("customer-%07d", done*7919%n)
				done++
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: spec}); err != nil {
					w.T.Fatal(err)
				}
			}
		})
	}
}

func oneJob() task.Spec {
	return task.Spec{Type: "job", Queue: "default", Priority: task.Normal, Payload: []byte("1")}
}

// A leader does not keep a flow for each key with waiting tasks only, whether it accepted their tasks or read them, and
// no round reads more lanes than its bound.
func TestManyWaitingKeys(t *testing.T) {
	const keys = 20_000
	for _, limited := range []bool{false, true} {
		w := NewWorld(t)
		s := task.DefaultSettings()
		if limited {
			s.PerKey.Rules = task.Rules{MaxRunning: 2, Rate: task.Rate{Limit: 100, Period: time.Second}}
		}
		w.PutQueue("default", s, false)
		q := func() *Queue { return w.Leader.queues[queueName{"default", "default"}] }
		bounded := func(when string, running int) {
			t.Helper()
			if n := q().lanes.Memory().Flows; n > lanes.Bounds.Warm+running+1 {
				t.Errorf("limited %t, %s: too many flows in memory: %d", limited, when, n)
			}
		}
		w.enqueueKeys(keys, oneJob())
		bounded("after enqueues", 0)
		claim := ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 100, Lease: time.Hour}

		w.BecomeLeader()
		got := w.Claim(claim)
		if len(got) != 100 || w.read > lanes.Bounds.ClaimRead {
			t.Errorf("limited %t: the first claim got %d tasks and read %d lanes", limited, len(got), w.read)
		}
		if w.Claim(claim); w.read > lanes.Bounds.ClaimRead {
			t.Errorf("limited %t: the second claim read %d lanes", limited, w.read)
		}
		rounds := 0
		for ; w.Leader.NextDeadline() <= w.Now; rounds++ {
			w.Round(Tick)
			if w.read > lanes.Bounds.TickRead {
				t.Fatalf("limited %t: a tick read %d lanes", limited, w.read)
			}
		}
		if most := keys/lanes.Bounds.TickRead + 2; rounds > most || q().lanes.Partial() {
			t.Errorf("limited %t: after %d ticks of at most %d, lanes are unread: %t", limited, rounds, most, q().lanes.Partial())
		}
		bounded("when all are read", 200)
		w.Round(func(r *Round) {
			for _, c := range got {
				if _, err := Ack(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		if w.Claim(claim); w.read > 0 {
			t.Errorf("limited %t: a claim read %d lanes although all are in memory", limited, w.read)
		}
		bounded("after claims", 200)
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A key that has spent tokens takes no more memory than others while it waits, and does not regain the tokens by that.
func TestWaitingKeysThatSpentTokens(t *testing.T) {
	KeepWarm(t, 10, 0)
	const keys = 100
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.Rate = task.Rate{Limit: 2, Period: time.Hour}
	w.PutQueue("default", s, false)
	for range 4 {
		w.enqueueKeys(keys, oneJob())
	}
	run := func(want int) {
		t.Helper()
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 3 * keys, Lease: time.Hour})
		if len(got) != want {
			t.Fatalf("claimed %d tasks, want %d", len(got), want)
		}
		w.Round(func(r *Round) {
			for _, c := range got {
				if _, err := Ack(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
	run(2 * keys)
	if flows := w.Leader.queues[queueName{"default", "default"}].lanes.Memory().Flows; flows < keys {
		t.Errorf("only %d flows are in memory although all keys wait for tokens", flows)
	}
	run(0)
	w.Pass(30 * time.Minute)
	run(keys)
	w.Pass(time.Hour - time.Minute) // each key has a token left then
	if flows := w.Leader.queues[queueName{"default", "default"}].lanes.Memory().Flows; flows > 11 {
		t.Errorf("%d flows are in memory although all keys have a token", flows)
	}
	w.BecomeLeader()
	run(keys)
}

// A claim whose only task is behind many lanes reads a bounded number of them, finds nothing, and is woken when more
// are read. Meanwhile it gets no task of a lower priority.
func TestClaimBehindUnreadLanes(t *testing.T) {
	KeepWarm(t, 10, 50)
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	spec := oneJob()
	w.enqueueKeys(1000, spec)
	add := func(key string, p task.Priority) task.ID {
		a, err := w.Enqueue(task.Spec{Type: "rare", Queue: "default", Key: key, Priority: p})
		if err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	add("a", task.Low)
	wanted := add("zz", task.Normal)
	w.BecomeLeader()
	claim := ClaimRequest{Queues: []Share{{Queue: "default"}}, Types: []string{"rare"}}
	if got := w.Claim(claim); len(got) != 0 || w.read > 4*lanes.Bounds.ClaimRead {
		t.Fatalf("the first claim got %v and read %d lanes", got, w.read)
	}
	for range 100 {
		w.Round(Tick)
		if len(w.Last.Woken) == 0 {
			t.Fatal("more lanes were read, but the claim that found nothing was not woken")
		}
		got := w.Claim(claim)
		if len(got) == 0 {
			continue
		}
		if got[0].ID != wanted {
			t.Errorf("claimed a task of priority %d, want the one of priority normal", got[0].Exec.Priority)
		}
		return
	}
	t.Error("the claim never found the task")
}

// A claim that finds nothing because the queue is paused reads no lanes, since more of them would not help. When all
// lanes are in memory, a pause of a type leaves nothing for ticks to read.
func TestPausedQueueReadsNothing(t *testing.T) {
	KeepWarm(t, 10, 50)
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), true)
	w.enqueueKeys(200, oneJob())
	w.BecomeLeader()
	for range 2 {
		if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}}); len(got) > 0 || w.read > lanes.Bounds.FirstRead {
			t.Errorf("a claim of a paused queue got %v and read %d lanes", got, w.read)
		}
	}
	for w.Leader.NextDeadline() <= w.Now {
		w.Round(Tick)
	}
	w.Configure("default", task.QueueConfig{Settings: task.DefaultSettings(), Holds: []task.Hold{{Type: "job"}}})
	if w.Leader.NextDeadline() <= w.Now {
		t.Error("a tick is due although all lanes are in memory")
	}
}

// When a type is released, no round puts more of its lanes in order than its bound. Meanwhile a claim gets no task of a
// lower priority, a type that is held again stays held, and in the end all tasks are claimed.
func TestReleaseOfManyKeys(t *testing.T) {
	KeepWarm(t, 10, 50)
	const keys = 1000
	w := NewWorld(t)
	s := task.DefaultSettings()
	hold := func(holds ...task.Hold) { w.Configure("default", task.QueueConfig{Settings: s, Holds: holds}) }
	hold()
	spec := oneJob()
	w.enqueueKeys(keys, spec)
	spec.Type = "other"
	spec.Key, spec.Priority = "low", task.Low
	if _, err := w.Enqueue(spec); err != nil {
		t.Fatal(err)
	}
	bounded := func(what string, most int) {
		t.Helper()
		if w.read > most {
			t.Fatalf("%s: %d lanes were put in order, which is over the limit", what, w.read)
		}
		if err := w.Check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	held := func() int64 {
		i, err := Run(w, func(r *Round) (QueueInfo, error) { return DescribeQueue(r, "default", "default") })
		if err != nil {
			t.Fatal(err)
		}
		return i.Held
	}
	job := task.Hold{Type: "job"}
	hold(job)
	hold()
	bounded("released", lanes.Bounds.TickRead)
	left := w.Leader.queues[queueName{"default", "default"}].lanes.Memory().Released
	if left != keys-10-lanes.Bounds.TickRead {
		t.Errorf("%d lanes are left to be put in order", left)
	}
	w.Round(Tick)
	bounded("a tick", lanes.Bounds.TickRead)
	hold(job)
	bounded("held again", lanes.Bounds.TickRead)
	if n := held(); n != keys {
		t.Errorf("%d tasks are held, want %d", n, keys)
	}
	if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Types: []string{"job"}, Max: 10}); len(got) > 0 {
		t.Errorf("claimed %d tasks of a held type", len(got))
	}
	hold()
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: keys})
	bounded("a claim", 2*lanes.Bounds.ClaimRead)
	if n := held(); n != 0 {
		t.Errorf("%d tasks are held although no type is", n)
	}
	for w.Leader.NextDeadline() <= w.Now {
		w.Round(Tick)
		bounded("a tick", lanes.Bounds.TickRead)
		got = append(got, w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: keys})...)
		bounded("a claim", 2*lanes.Bounds.ClaimRead)
	}
	for i, g := range got {
		if (g.Type == "other") != (i == keys) {
			t.Errorf("claim %d of %d got a task of type %q", i, len(got), g.Type)
		}
	}
	if len(got) != keys+1 {
		t.Errorf("claimed %d tasks, want %d", len(got), keys+1)
	}
}

// While the lanes of a released type are put in order, claims of other types don't wait for them, nor do claims of all
// types if it is held again, and the oldest of them counts as waiting.
func TestClaimsBesideReleasedLanes(t *testing.T) {
	KeepWarm(t, 10, 50)
	const keys = 1000
	w := NewWorld(t)
	hold := func(types ...string) {
		c := task.QueueConfig{Settings: task.DefaultSettings()}
		for _, typ := range types {
			c.Holds = append(c.Holds, task.Hold{Type: typ})
		}
		w.Configure("default", c)
	}
	claim := func(max int, types ...string) (got []string) {
		t.Helper()
		for _, c := range w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Types: types, Max: max, Lease: time.Hour}) {
			got = append(got, c.Type)
		}
		return got
	}
	add := func(typ string) {
		t.Helper()
		if _, err := w.Enqueue(task.Spec{Type: typ, Queue: "default", Priority: task.Low}); err != nil {
			t.Fatal(err)
		}
	}
	released := func() int { return w.Leader.queues[queueName{"default", "default"}].lanes.Memory().Released }
	hold()
	w.enqueueKeys(keys, oneJob())
	w.Pass(time.Minute)
	add("rare")
	hold("job")
	hold()
	if got := claim(1, "rare"); !slices.Equal(got, []string{"rare"}) || released() == 0 {
		t.Errorf("a claim of another type got %q with %d released lanes left", got, released())
	}
	if got := claim(10 + lanes.Bounds.TickRead); len(got) != 10+lanes.Bounds.TickRead || released() != keys-10-lanes.Bounds.TickRead {
		t.Errorf("claimed %d tasks of lanes that are in order, %d lanes are left", len(got), released())
	}
	add("rare")
	if got := claim(keys); len(got) == 0 || len(got) == keys || slices.Contains(got, "rare") {
		t.Errorf("a claim of all types got %d tasks, %d of them of a lower priority than the lanes left", len(got),
			len(slices.DeleteFunc(got, func(typ string) bool { return typ != "rare" })))
	}
	hold("job")
	if got := claim(1); !slices.Equal(got, []string{"rare"}) {
		t.Errorf("with the type held again, a claim got %q, want the rare task", got)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// While the lanes of a released type are put in order, its breaker may put it on trial. Each lane is then considered for the probe.
func TestTrialBesideReleasedLanes(t *testing.T) {
	for _, c := range []struct {
		shown string // the key whose task is shown before; "": none
		of    task.Priority
		want  string
	}{{"", 0, "k"}, {"younger", task.Normal, "k"}, {"higher", task.High, "higher"}, {"lower", task.Low, "k"}} {
		KeepWarm(t, 0, 1)
		w := NewWorld(t)
		s := task.DefaultSettings()
		s.Breaker = task.Breaker{FailureRate: 50, MinAttempts: 1, Window: time.Minute, Hold: time.Minute, Probes: 1}
		s.Breaker.Fill()
		add := func(key string, p task.Priority) {
			t.Helper()
			if _, err := w.Enqueue(task.Spec{Type: "job", Queue: "default", Key: key, Priority: p}); err != nil {
				t.Fatal(err)
			}
		}
		claim := func() []Claimed { return w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}}) }
		w.PutQueue("default", s, false)
		add("", task.Normal)
		first := claim()[0]
		add("k", task.Normal)
		lanes.Bounds.TickRead = 0
		w.Configure("default", task.QueueConfig{Settings: s, Holds: []task.Hold{{Type: "job"}}})
		w.PutQueue("default", s, false)
		if _, err := Run(w, func(r *Round) (Settled, error) {
			return Fail(r, Hold{Namespace: "default", ID: first.ID, Token: first.Token}, FailRequest{Action: FailDead})
		}); err != nil {
			t.Fatal(err)
		}
		if c.shown != "" {
			add(c.shown, c.of)
		}
		q := w.Leader.queues[queueName{"default", "default"}]
		w.Now = q.breakers.Of("job").Until
		w.Round(Tick)
		if m := q.lanes.Memory(); m.Released != 1 || q.breakers.Of("job").State != breaker.Probing {
			t.Fatalf("shown %q: %d lanes are left to be put in order, and the breaker is %s", c.shown, m.Released,
				q.breakers.Of("job").State)
		}
		lanes.Bounds.TickRead = 1
		w.Round(Tick)
		if err := w.Check(); err != nil {
			t.Error(err)
		}
		if got := claim(); len(got) != 1 || got[0].Key != c.want {
			t.Errorf("shown %q: claimed %v, want the task of key %q", c.shown, got, c.want)
		}
	}
}

// However many types are released at the same time, a round puts no more lanes in order than its bound.
func TestReleaseOfManyTypes(t *testing.T) {
	KeepWarm(t, 10, 50)
	w := NewWorld(t)
	c := task.QueueConfig{Settings: task.DefaultSettings()}
	w.Configure("default", c)
	var holds []task.Hold
	for i, p := range task.Priorities {
		typ := fmt.Sprint("job", i)
		for k := range 200 { // a key with lanes of several types would not be cold
			if _, err := w.Enqueue(task.Spec{Type: typ, Queue: "default", Priority: p, Key: fmt.Sprint(typ, "-", k)}); err != nil {
				t.Fatal(err)
			}
		}
		holds = append(holds, task.Hold{Type: typ})
	}
	c.Holds = holds
	w.Configure("default", c)
	c.Holds = nil
	if w.Configure("default", c); w.read > lanes.Bounds.TickRead {
		t.Errorf("a round put %d lanes in order, want at most %d", w.read, lanes.Bounds.TickRead)
	}
	for w.Leader.NextDeadline() <= w.Now {
		if w.Round(Tick); w.read > lanes.Bounds.TickRead {
			t.Errorf("a tick put %d lanes in order, want at most %d", w.read, lanes.Bounds.TickRead)
		}
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// A breaker that waits for a task to probe with does not consider its type unused while there are unread lanes.
func TestBreakerWaitsForUnreadLanes(t *testing.T) {
	KeepWarm(t, 10, 50)
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.Breaker = task.Breaker{FailureRate: 50, MinAttempts: 2, Window: 5 * time.Minute, Hold: time.Minute, Probes: 1}
	s.Breaker.Fill()
	w.PutQueue("default", s, false)
	claim := ClaimRequest{Queues: []Share{{Queue: "default"}}, Types: []string{"mail"}, Max: 2}
	for range 3 {
		if _, err := w.Enqueue(task.Spec{Type: "mail", Queue: "default", Key: "zz"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range w.Claim(claim) {
		w.Round(func(r *Round) {
			if _, err := Fail(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, FailRequest{Action: FailDead}); err != nil {
				t.Fatal(err)
			}
		})
	}
	w.enqueueKeys(1000, oneJob())
	b := func() *breaker.Breaker { return w.Leader.queues[queueName{"default", "default"}].breakers.Of("mail") }
	w.Pass(time.Minute)
	if b() == nil || b().State != breaker.Probing {
		t.Fatalf("the breaker is not probing: %+v", b())
	}
	w.Now = b().Until
	w.BecomeLeader()
	w.Round(Tick)
	if !w.Leader.queues[queueName{"default", "default"}].lanes.Partial() {
		t.Fatal("all lanes were read before the test of unread ones")
	}
	if b() == nil || b().State != breaker.Probing {
		t.Fatalf("the breaker did not wait for unread lanes: %+v", b())
	}
	for w.Leader.NextDeadline() <= w.Now {
		w.Round(Tick)
	}
	if got := w.Claim(claim); len(got) != 1 || b().Probe != got[0].ID {
		t.Errorf("claimed %d tasks as probes, want one", len(got))
	}
}

// Keys take turns in the same order, cold or not: two leaders that get the same calls return the same tasks, in the same order.
func TestColdOrder(t *testing.T) {
	for seed := range uint64(20) {
		want := claimsOf(t, seed, 1000, 0)
		for _, warm := range []int{0, 3} {
			if got := claimsOf(t, seed, warm, 0); !slices.Equal(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Errorf("seed %d, %d warm flows: claim %d of %d got %q, want %q", seed, warm, at, len(want), got[at:min(at+3, len(got))],
					want[at:min(at+3, len(want))])
			}
		}
	}
}

// Cold lanes in memory agree with the rows after every step, even while lanes are read and put in order one by one.
func TestColdSteps(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { claimsOf(t, seed, 0, 1) })
	}
}

// claimsOf returns the keys of the tasks that a random sequence of calls claims. If lanes is not 0, that many are read
// or put in order at a time, and everything is checked after every step.
func claimsOf(t *testing.T, seed uint64, warm, lanes int) (got []string) {
	KeepWarm(t, warm, lanes)
	w, rng := NewWorld(t), rand.New(rand.NewPCG(seed, 1))
	s := task.DefaultSettings()
	s.Keys = map[string]task.KeyRules{"k1": {Weight: 3}, "k2": {Weight: 10, Rules: task.Rules{MaxRunning: 1}}}
	w.Configure("default", task.QueueConfig{Settings: s})
	var running []Claimed
	for step := range 600 {
		if lanes > 0 {
			if err := w.Check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if rng.IntN(3) == 0 {
				w.Round(Tick)
			}
		}
		if len(running) == 0 { // else running keys are reordered only when they come first
			w.Now += store.Time(rng.IntN(3_000_000))
		}
		switch rng.IntN(9) {
		case 0, 1, 2:
			spec := oneJob()
			spec.Key, spec.Type, spec.Priority = fmt.Sprint("k", rng.IntN(12)), fmt.Sprint("t", rng.IntN(3)), task.Priorities[rng.IntN(2)]
			if _, err := w.Enqueue(spec); err != nil {
				t.Fatal(err)
			}
		case 3, 4:
			c := ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 1 + rng.IntN(2), Lease: time.Hour}
			if rng.IntN(2) == 0 {
				c.Types = []string{fmt.Sprint("t", rng.IntN(3)), "t0"}
			}
			for _, g := range w.Claim(c) {
				got = append(got, fmt.Sprintf("%s/%s at %d", g.Key, g.Type, w.Now))
				running = append(running, g)
			}
		case 5:
			var holds []task.Hold
			for typ := range 3 {
				if rng.IntN(2) == 0 {
					holds = append(holds, task.Hold{Type: fmt.Sprint("t", typ)})
				}
			}
			w.Configure("default", task.QueueConfig{Settings: s, Holds: holds})
		default:
			if len(running) == 0 {
				continue
			}
			at := rng.IntN(len(running))
			h := Hold{Namespace: "default", ID: running[at].ID, Token: running[at].Token}
			running = slices.Delete(running, at, at+1)
			release := rng.IntN(4) == 0
			if _, err := Run(w, func(r *Round) (Settled, error) {
				if release {
					return Release(r, h, 0)
				}
				return Ack(r, h, schema.Result{})
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	return got
}

// BenchmarkWaitingKeys measures how much of a leader's memory a key with waiting tasks only takes, and how long a new
// leader takes for its first claim and to read all keys.
func BenchmarkWaitingKeys(b *testing.B) {
	limited := task.DefaultSettings()
	limited.PerKey.Rules = task.Rules{MaxRunning: 2, Rate: task.Rate{Limit: 100, Period: time.Second}}
	b.Run("limited", func(b *testing.B) { benchWaitingKeys(b, limited, 1) })
	b.Run("ordered", func(b *testing.B) { benchWaitingKeys(b, strictOrder(), 1) })
	b.Run("ordered, two each", func(b *testing.B) { benchWaitingKeys(b, strictOrder(), 2) })
}

func benchWaitingKeys(b *testing.B, s task.Settings, each int) {
	keys := Size(1_000_000)
	w := BenchWorld(b)
	w.PutQueue("default", s, false)
	for range each {
		w.enqueueKeys(keys, oneJob())
	}
	enqueued := perKey(w, keys)
	for b.Loop() {
		w.BecomeLeader()
		began := time.Now()
		if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}}); len(got) != 1 {
			b.Fatalf("claimed %d tasks", len(got))
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "ms-first-claim")
		rounds, slowest := 0, time.Duration(0)
		for ; w.Leader.NextDeadline() <= w.Now; rounds++ {
			before := time.Now()
			w.Round(Tick)
			slowest = max(slowest, time.Since(before))
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-all-read")
		b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest-round")
		b.ReportMetric(float64(rounds), "rounds")
		b.ReportMetric(perKey(w, keys), "B/key-read")
	}
	b.ReportMetric(enqueued, "B/key-enqueued")
}

// perKey returns a leader's memory per key. The leader can't be used afterwards.
func perKey(w *World, keys int) float64 {
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	all := used()
	w.Leader = nil
	return float64(all-used()) / float64(keys)
}
