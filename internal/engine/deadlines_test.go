package engine

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// sharedRows returns the tasks of the shared rows of a kind, in order of time.
func (w *World) sharedRows(kind schema.DeadlineKind) (rows [][]task.ID) {
	for _, d := range w.deadlines() {
		if d.Kind == kind {
			rows = append(rows, d.Shared)
		}
	}
	return rows
}

// mustHaveRows compares the tasks of the shared rows of a kind.
func (w *World) mustHaveRows(when string, kind schema.DeadlineKind, want ...[]task.ID) {
	w.T.Helper()
	if got := w.sharedRows(kind); !slices.EqualFunc(got, want, slices.Equal[[]task.ID]) {
		w.T.Fatalf("%s: the rows name %v, want %v", when, got, want)
	}
	if err := w.Check(); err != nil {
		w.T.Fatalf("%s: %v", when, err)
	}
}

// claimAll enqueues tasks and claims them in one round.
func (w *World) claimAll(n int) (ids []task.ID, holds []Hold) {
	for range n {
		w.enqueueOne()
	}
	for _, c := range w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: n}) {
		ids = append(ids, c.ID)
		holds = append(holds, Hold{Namespace: "default", ID: c.ID, Token: c.Token})
	}
	if len(ids) != n {
		w.T.Fatalf("claimed %d of %d tasks", len(ids), n)
	}
	return ids, holds
}

// must runs a call that must not be refused.
func must[T any](w *World, call func(r *Round) (T, error)) T {
	w.T.Helper()
	out, err := Run(w, call)
	if err != nil {
		w.T.Fatal(err)
	}
	return out
}

func (w *World) ack(h Hold) {
	w.T.Helper()
	must(w, func(r *Round) (Settled, error) { return Ack(r, h, schema.Result{}) })
}

func (w *World) stateOf(id task.ID) task.State {
	w.T.Helper()
	x, err := schema.ReadExec(w.Store, "default", id)
	if err != nil {
		w.T.Fatal(err)
	}
	return x.State
}

// The tasks that are claimed in a round share one row of leases, which is deleted with the last of them. Those that end
// in a round share one row of retention.
func TestTasksShareDeadlines(t *testing.T) {
	w := NewWorld(t)
	ids, holds := w.claimAll(3)
	w.mustHaveRows("claimed", schema.OnLease, ids)
	w.ack(holds[1])
	w.ack(holds[0])
	w.mustHaveRows("two of three acked", schema.OnLease, ids)
	w.ack(holds[2])
	w.mustHaveRows("all acked", schema.OnLease)
	w.mustHaveRows("acked one by one", schema.OnForget, ids[1:2], ids[:1], ids[2:])

	more, moreHolds := w.claimAll(3)
	w.Round(func(r *Round) {
		for _, h := range moreHolds {
			if _, err := Ack(r, h, schema.Result{}); err != nil {
				t.Error(err)
			}
		}
	})
	w.mustHaveRows("acked together", schema.OnForget, ids[1:2], ids[:1], ids[2:], more)
}

// The size of a row is bounded, and tasks with other leases have other rows.
func TestRowsOfLeasesAreBounded(t *testing.T) {
	w := NewWorld(t)
	ids, _ := w.claimAll(2*deadline.MaxShared + 1)
	w.mustHaveRows("claimed", schema.OnLease, ids[:deadline.MaxShared], ids[deadline.MaxShared:2*deadline.MaxShared],
		ids[2*deadline.MaxShared:])

	w = NewWorld(t)
	a, b := w.enqueueOne(), w.enqueueOne()
	w.Round(func(r *Round) {
		for _, lease := range []time.Duration{time.Minute, 30 * time.Second} {
			if got, _ := ClaimTasks(r, &ClaimRequest{Namespace: "default", Queues: []Share{{Queue: "default"}}, Max: 1, MaxBytes: 1 << 20,
				Lease: lease, Entropy: uint64(lease)}); len(got) != 1 {
				t.Fatal("no task was claimed")
			}
		}
	})
	w.mustHaveRows("claimed for different times", schema.OnLease, []task.ID{b}, []task.ID{a})
}

// A claim that ends in its round leaves no row of leases.
func TestLeaseOfOneRound(t *testing.T) {
	w := NewWorld(t)
	id := w.enqueueOne()
	w.Round(func(r *Round) {
		got, _ := ClaimTasks(r, &ClaimRequest{Namespace: "default", Queues: []Share{{Queue: "default"}}, Max: 1,
			MaxBytes: 1 << 20, Entropy: 1})
		if len(got) != 1 {
			t.Fatal("no task was claimed")
		}
		if _, err := Ack(r, Hold{Namespace: "default", ID: id, Token: got[0].Token}, schema.Result{}); err != nil {
			t.Fatal(err)
		}
	})
	w.mustHaveRows("acked in its round", schema.OnLease)
	w.mustHaveRows("acked in its round", schema.OnForget, []task.ID{id})
}

// An extended lease gets a row of its own; those granted together with it end when they would have. It may also be
// extended to the same time.
func TestExtendedLeaseEndsLater(t *testing.T) {
	w := NewWorld(t)
	ids, holds := w.claimAll(3)
	lease := must(w, func(r *Round) (store.Time, error) { return Extend(r, holds[0], Extension{}) }).Sub(w.Now)
	w.mustHaveRows("one extended by nothing", schema.OnLease, ids, ids[:1])
	w.Pass(lease / 2)
	must(w, func(r *Round) (store.Time, error) { return Extend(r, holds[0], Extension{}) })
	w.mustHaveRows("one extended", schema.OnLease, ids, ids[:1])
	w.Pass(lease/2 + time.Second)
	for i, want := range []task.State{task.Claimed, task.Ready, task.Ready} {
		if got := w.stateOf(ids[i]); got != want {
			t.Errorf("after the first leases ended, task %d is %s, want %s", i, got, want)
		}
	}
	w.mustHaveRows("two have ended", schema.OnLease, ids[:1])
	w.Pass(lease / 2)
	if got := w.stateOf(ids[0]); got != task.Ready {
		t.Errorf("after its lease ended, the task is %s, want ready", got)
	}
	w.mustHaveRows("all have ended", schema.OnLease)
}

// A new leader doesn't know how many leases are left in the rows of the previous one. It keeps the rows until they are
// due, and ends the remaining leases.
func TestLeasesOfAnotherLeader(t *testing.T) {
	w := NewWorld(t)
	ids, holds := w.claimAll(3)
	w.BecomeLeader()
	w.ack(holds[0])
	w.ack(holds[1])
	w.mustHaveRows("two acked", schema.OnLease, ids)
	more, moreHolds := w.claimAll(2)
	w.mustHaveRows("more claimed for the same time", schema.OnLease, ids, more)
	w.ack(moreHolds[0])
	w.mustHaveRows("one of those acked", schema.OnLease, ids, more)
	w.ack(moreHolds[1])
	w.mustHaveRows("all of those acked", schema.OnLease, ids)
	w.Pass(time.Hour)
	if got := w.stateOf(ids[2]); got != task.Ready {
		t.Errorf("an hour later, the last task is %s, want ready", got)
	}
	w.mustHaveRows("an hour later", schema.OnLease)
}

// The row of a retention that was cut short by a replay has no effect, and the task is kept for its full retention after its second end.
func TestRetentionAfterReplay(t *testing.T) {
	w := NewWorld(t)
	keep := 20 * 24 * time.Hour
	a, err := w.Enqueue(task.Spec{Type: "job", Retention: &keep})
	if err != nil {
		t.Fatal(err)
	}
	w.settle(a.ID, false, nil)
	w.Pass(keep / 2)
	must(w, func(r *Round) (struct{}, error) { return struct{}{}, Retry(r, "default", a.ID) })
	w.settle(a.ID, true, nil)
	w.mustHaveRows("ended twice", schema.OnForget, []task.ID{a.ID}, []task.ID{a.ID})
	w.Pass(keep / 2)
	w.mustHaveRows("when the first retention would have ended", schema.OnForget, []task.ID{a.ID})
	if got := w.stateOf(a.ID); got != task.Succeeded {
		t.Errorf("at the end of the first retention the task is %s, want succeeded", got)
	}
	w.Pass(keep / 2)
	w.mustHaveRows("when the second has ended", schema.OnForget)
	if _, err := schema.ReadExec(w.Store, "default", a.ID); err == nil {
		t.Error("the task still exists after its second retention")
	}
}

// Shared deadlines are merged with the following ones of the same time, kind and namespace.
func TestJoinedDeadlines(t *testing.T) {
	a, b, c := task.ID{1}, task.ID{2}, task.ID{3}
	first := schema.Deadline{At: 5, Kind: schema.OnForget, Namespace: "ns", Shared: []task.ID{a}}
	behind := func(change func(d *schema.Deadline)) schema.Deadline {
		d := schema.Deadline{At: 5, Kind: schema.OnForget, Namespace: "ns", Shared: []task.ID{b, c}}
		change(&d)
		return d
	}
	keyed := schema.Deadline{At: 5, Kind: schema.OnKey, Namespace: "ns", Keys: [][]byte{[]byte("k")}}
	same := behind(func(*schema.Deadline) {})
	alone := schema.Deadline{At: 5, Kind: schema.OnTick, Namespace: "ns", Rest: []byte("x")}
	for name, k := range map[string]struct {
		due  []schema.Deadline
		n    int
		want []task.ID
	}{
		"one":               {[]schema.Deadline{first}, 1, []task.ID{a}},
		"two":               {[]schema.Deadline{first, same}, 2, []task.ID{a, b, c}},
		"three":             {[]schema.Deadline{first, same, first}, 3, []task.ID{a, b, c, a}},
		"another time":      {[]schema.Deadline{first, behind(func(d *schema.Deadline) { d.At = 6 })}, 1, []task.ID{a}},
		"another kind":      {[]schema.Deadline{first, behind(func(d *schema.Deadline) { d.Kind = schema.OnForgotten })}, 1, []task.ID{a}},
		"another namespace": {[]schema.Deadline{first, behind(func(d *schema.Deadline) { d.Namespace = "nt" })}, 1, []task.ID{a}},
		"others between":    {[]schema.Deadline{first, behind(func(d *schema.Deadline) { d.Namespace = "nt" }), same}, 1, []task.ID{a}},
		"keys":              {[]schema.Deadline{keyed, keyed}, 2, nil},
		"not shared":        {[]schema.Deadline{alone, alone}, 1, nil},
	} {
		if d, n := schema.Joined(k.due); n != k.n || !slices.Equal(d.Shared, k.want) || len(d.Keys) > 0 && len(d.Keys) != n ||
			d.Compare(k.due[0]) != 0 {
			t.Errorf("%s: Joined merged %d to %+v, want %d with %v", name, n, d, k.n, k.want)
		}
	}
}

// An invalid shared row is refused.
func TestSharedRowsAreRead(t *testing.T) {
	key := func(kind schema.DeadlineKind) []byte { return schema.DeadlineKey(5, kind, "ns", []byte("12345678")) }
	ids := []task.ID{{1}, {2}}
	shared, keyed := schema.Deadline{Shared: ids}.Value(), schema.Deadline{Keys: [][]byte{[]byte("a"), []byte("bc")}}.Value()
	for name, c := range map[string]struct {
		k, v []byte
		ok   bool
	}{
		"shared":              {key(schema.OnForget), shared, true},
		"shared, of no task":  {key(schema.OnLease), nil, false},
		"shared, cut short":   {key(schema.OnLease), shared[:31], false},
		"of keys":             {key(schema.OnKey), keyed, true},
		"of request ids":      {key(schema.OnRequest), keyed, true},
		"of no key":           {key(schema.OnKey), nil, false},
		"of keys, cut short":  {key(schema.OnKey), keyed[:len(keyed)-1], false},
		"not shared":          {key(schema.OnDue), nil, true},
		"not shared, of many": {key(schema.OnDue), shared, false},
		"no namespace":        {bytes.ReplaceAll(key(schema.OnDue)[:12], []byte{0, 'n'}, []byte("xn")), nil, false},
		"too short":           {key(schema.OnDue)[:10], nil, false},
	} {
		v := bytes.Clone(c.v)
		d, ok := schema.ParseDeadline(c.k, v)
		clear(v) // a row is valid only during the call
		if ok != c.ok || ok && (d.At != 5 || d.Namespace != "ns" || string(d.Rest) != "12345678" || !bytes.Equal(d.Key(), c.k) ||
			!bytes.Equal(d.Value(), c.v)) {
			t.Errorf("%s: ParseDeadline = %+v, %t", name, d, ok)
		}
	}
}
