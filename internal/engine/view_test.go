package engine

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// pages reads a whole list and returns how many tasks each page had, and all of them.
func (w *World) pages(f query.Filter, limit int) (sizes []int, ids []task.ID) {
	w.T.Helper()
	var cursor []byte
	for {
		p, err := query.List(w.Store, "default", f, cursor, limit)
		if err != nil {
			w.T.Fatal(err)
		}
		sizes = append(sizes, len(p.Tasks))
		for _, v := range p.Tasks {
			ids = append(ids, v.ID)
		}
		if cursor = p.Next; cursor == nil {
			return sizes, ids
		}
	}
}

// A page ends when it has read about 8 MiB, whatever they belong to, and the next one continues after it.
func TestPageEndsByBytes(t *testing.T) {
	const mib = 1 << 20
	large := bytes.Repeat([]byte("x"), mib)
	for _, c := range []struct {
		name            string
		payload, result []byte
		states          []task.State
	}{
		{"payloads", large, nil, nil},
		{"results", nil, large, nil},
		{"dead letters", large, nil, []task.State{task.Dead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWorld(t)
			var all []task.ID
			for range 20 {
				w.Pass(time.Millisecond) // ids and ends differ by the millisecond
				a, err := w.Enqueue(task.Spec{Type: "job", Payload: c.payload})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, a.ID)
				w.settle(a.ID, c.states == nil, c.result)
			}
			slices.Reverse(all)
			sizes, ids := w.pages(query.Filter{Queue: "default", States: c.states}, 1000)
			if !slices.Equal(sizes, []int{8, 8, 4}) {
				t.Errorf("20 tasks of 1 MiB were listed in pages of %d, want 8, 8 and 4", sizes)
			}
			if !slices.Equal(ids, all) {
				t.Errorf("listed %v, want %v", ids, all)
			}
		})
	}
}

// settle claims the next task and acks it, or makes it a dead letter.
func (w *World) settle(id task.ID, ack bool, result []byte) {
	w.T.Helper()
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
	if len(got) != 1 || got[0].ID != id {
		w.T.Fatalf("claimed %v, want %s", got, id)
	}
	hold := Hold{Namespace: "default", ID: id, Token: got[0].Token}
	_, err := Run(w, func(r *Round) (Settled, error) {
		if ack {
			return Ack(r, hold, schema.Result{Data: result})
		}
		return Fail(r, hold, FailRequest{Action: FailDead})
	})
	if err != nil {
		w.T.Fatal(err)
	}
}

// A page is not ended by bytes before it has a task, and has no Next if nothing follows.
func TestPageIsNotEmpty(t *testing.T) {
	w := NewWorld(t)
	payload := append([]byte("needle"), bytes.Repeat([]byte("x"), 1<<20-6)...)
	for range 20 {
		if _, err := w.Enqueue(task.Spec{Type: "job", Payload: payload}); err != nil {
			t.Fatal(err)
		}
		payload = bytes.Repeat([]byte("x"), 1<<20)
		w.Pass(time.Millisecond)
	}
	if sizes, _ := w.pages(query.Filter{Text: "needle"}, 1000); !slices.Equal(sizes, []int{1}) {
		t.Errorf("the oldest of 20 tasks was found in pages of %d, want one page", sizes)
	}
	if sizes, _ := w.pages(query.Filter{}, 5); !slices.Equal(sizes, []int{5, 5, 5, 5}) {
		t.Errorf("20 tasks were listed in pages of %d, want 4 pages of 5", sizes)
	}
}

// A search through large payloads ends early, and the next page continues.
func TestSearchIsBoundedByBytes(t *testing.T) {
	w := NewWorld(t)
	payload := bytes.Repeat([]byte("x"), 1<<20)
	for range 80 {
		w.Pass(time.Millisecond)
		if _, err := w.Enqueue(task.Spec{Type: "job", Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []query.Filter{{Text: "none"}, {Text: "none", Queue: "default"}, {Tag: "none", States: []task.State{task.Ready}}} {
		p, err := query.List(w.Store, "default", f, nil, 10)
		if err != nil || p.Next == nil {
			t.Fatalf("%+v: the first page searched all 80 MiB (%v)", f, err)
		}
		if p, err = query.List(w.Store, "default", f, p.Next, 10); err != nil || p.Next != nil || len(p.Tasks) > 0 {
			t.Errorf("%+v: the second page has %d tasks, or is not the last (%v)", f, len(p.Tasks), err)
		}
	}
}
