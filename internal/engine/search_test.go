package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// rare moves a few tasks of a queue to each state, and returns how many.
func (w *World) rare(queue, typ string) map[task.State]int {
	w.T.Helper()
	want := map[task.State]int{task.Dead: 219, task.Poisoned: 3, task.Claimed: 30, task.Retrying: 20, task.Scheduled: 25,
		task.Cancelled: 40, task.Discarded: 15, task.Succeeded: 60, task.Ready: 10}
	for _, s := range []task.State{task.Dead, task.Poisoned, task.Claimed, task.Retrying, task.Scheduled, task.Cancelled, task.Discarded,
		task.Succeeded, task.Ready} {
		for range want[s] {
			w.Now += 1000
			spec := task.Spec{Type: typ, Queue: queue, Payload: []byte("x")}
			if s == task.Scheduled {
				spec.Delay = 30 * 24 * time.Hour
			}
			a, err := w.Enqueue(spec)
			if err != nil {
				w.T.Fatal(err)
			}
			w.Bring(a.ID, queue, s)
		}
	}
	return want
}

// Bring moves a new task to a state.
func (w *World) Bring(id task.ID, queue string, s task.State) {
	w.T.Helper()
	hold := Hold{Namespace: "default", ID: id}
	switch s {
	case task.Scheduled, task.Ready:
		return
	case task.Cancelled, task.Discarded:
	default:
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: queue}}, Lease: time.Hour})
		if len(got) != 1 || got[0].ID != id {
			w.T.Fatalf("claimed %v, want %s", got, id)
		}
		hold.Token = got[0].Token
	}
	_, err := Run(w, func(r *Round) (struct{}, error) {
		var err error
		boom := schema.Failure{Message: fmt.Sprintf("boom at %s", id), Type: "error"}
		switch s {
		case task.Cancelled:
			err = Cancel(r, "default", id)
		case task.Discarded:
			err = Discard(r, "default", id, 0)
		case task.Succeeded:
			_, err = Ack(r, hold, schema.Result{})
		case task.Retrying:
			later := 30 * 24 * time.Hour
			_, err = Fail(r, hold, FailRequest{Failure: boom, RetryIn: &later})
		case task.Dead:
			_, err = Fail(r, hold, FailRequest{Action: FailDead, Failure: boom})
		case task.Poisoned:
			_, err = Fail(r, hold, FailRequest{Action: FailPoison, Failure: boom})
		}
		return struct{}{}, err
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

// A filter by state, type or error finds its few tasks in one page, reading few rows, however many newer tasks there
// are in its queue or another.
func TestSearchReadsFewRows(t *testing.T) {
	w := NewWorld(t)
	for _, q := range []string{"mail", "busy", "third"} {
		w.PutQueue(q, task.DefaultSettings(), false)
	}
	want := w.rare("mail", "mail.rare")
	all := 0
	for _, n := range want {
		all += n
	}
	old, err := w.Enqueue(task.Spec{Type: "busy.rare", Queue: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < Size(40_000); n += 1000 {
		w.Now += 20_000
		w.Round(func(r *Round) {
			for i := range 1000 {
				s := task.Spec{Type: fmt.Sprint("busy.", i%5), Queue: "busy", Priority: task.Normal}
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Fresh: true, Spec: s}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for range 15 {
		w.Now += 20_000
		w.Round(func(r *Round) {
			for range 100 {
				s := task.Spec{Type: "third", Queue: "third", Priority: task.Normal}
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Fresh: true, Spec: s}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	type search struct {
		filter query.Filter
		want   int
	}
	searches := []search{
		{query.Filter{Type: "mail.rare"}, all},
		{query.Filter{Type: "busy.rare"}, 1},
		{query.Filter{Queue: "busy", Type: "busy.rare"}, 1},
		{query.Filter{Queue: "busy", Type: "mail.rare"}, 0},
		{query.Filter{Queue: "third", Type: "busy.1"}, 0},
		{query.Filter{Type: "no.such"}, 0},
		{query.Filter{Error: "boom"}, 242},
		{query.Filter{Error: "boom at " + old.ID.String()}, 0},
		{query.Filter{States: []task.State{task.Dead, task.Succeeded, task.Claimed}}, 309},
		{query.Filter{States: []task.State{task.Dead}, Type: "busy.0"}, 0},
		{query.Filter{States: []task.State{task.Succeeded}, Type: "busy.0"}, 0},
		{query.Filter{States: []task.State{task.Retrying, task.Dead}, Type: "mail.rare", Error: "boom"}, 239},
		{query.Filter{States: []task.State{task.Dead}, Within: []string{"busy"}}, 0},
		{query.Filter{States: []task.State{task.Dead}, Not: "mail"}, 0},
	}
	for s, n := range want {
		if s != task.Ready { // of which the other queue has many
			searches = append(searches, search{query.Filter{States: []task.State{s}}, n}, search{query.Filter{States: []task.State{s},
				Queue: "busy"}, 0})
		}
		searches = append(searches, search{query.Filter{States: []task.State{s}, Queue: "mail"}, n},
			search{query.Filter{States: []task.State{s},
				Type: "mail.rare"}, n})
	}
	for _, leader := range []string{"the same leader", "a new leader"} {
		for _, s := range searches {
			c := &rowCounter{Reader: w.Store}
			p, err := query.List(c, "default", s.filter, nil, 1000)
			if err != nil || len(p.Tasks) != s.want || p.Next != nil {
				t.Errorf("%s: %+v found %d tasks, with more to read: %t (%v), want all %d", leader, s.filter, len(p.Tasks),
					p.Next != nil, err, s.want)
			}
			if most := 6000 + 5*s.want; c.rows > most {
				t.Errorf("%s: %+v read %d rows to find %d tasks, want at most %d", leader, s.filter, c.rows, len(p.Tasks), most)
			}
		}
		w.BecomeLeader()
		w.enqueueInto("busy", 100, nil)
	}
}

// The row of a lease is deleted with the last of its tasks. Until then it may list some that have ended or are forgotten.
func TestSearchOfClaimedPassesOverForgotten(t *testing.T) {
	w := NewWorld(t)
	keep := time.Minute
	for _, s := range []task.Spec{{Type: "job"}, {Type: "job"}, {Type: "job", Retention: &keep}} {
		if _, err := w.Enqueue(s); err != nil {
			t.Fatal(err)
		}
	}
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 3, Lease: time.Hour})
	for _, c := range []Claimed{got[0], got[2]} {
		w.ack(Hold{Namespace: "default", ID: c.ID, Token: c.Token})
	}
	w.Pass(15 * time.Minute)
	if _, err := schema.ReadExec(w.Store, "default", got[2].ID); err == nil {
		t.Fatal("the third task was not forgotten")
	}
	p, err := query.List(w.Store, "default", query.Filter{States: []task.State{task.Claimed}}, nil, 10)
	if err != nil || len(p.Tasks) != 1 || p.Tasks[0].ID != got[1].ID {
		t.Errorf("a search for claimed tasks found %v, %v", p.Tasks, err)
	}
}
