package fanout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Only lists of dead letters are ordered by the tasks' end times.
func TestListsOfDeadLetters(t *testing.T) {
	for _, c := range []struct {
		f    broker.Filter
		want bool
	}{
		{broker.Filter{}, false}, {broker.Filter{Queue: "q"}, false}, {broker.Filter{Queue: "q", States: []task.State{task.Dead}}, true},
		{broker.Filter{Queue: "q", States: []task.State{task.Poisoned}}, true},
		{broker.Filter{Queue: "q", States: []task.State{task.Ready}},
			false}, {broker.Filter{States: []task.State{task.Dead}}, false},
		{broker.Filter{Queue: "q", States: []task.State{task.Dead, task.Poisoned}}, false},
	} {
		if got := ListsDead(c.f); got != c.want {
			t.Errorf("ListsDead(%+v) = %t", c.f, got)
		}
	}
}

// A merged page continues where the first shard stopped. If no shard stopped and all tasks fit, there is no next page.
func TestPagesAreMerged(t *testing.T) {
	at := func(n uint64) []byte { id := task.NewID(1, int64(n), n); return id[:] }
	page := func(next []byte, tasks ...uint64) (p broker.Page) {
		p.Next = next
		for _, n := range tasks {
			p.Tasks = append(p.Tasks, &broker.View{Envelope: &schema.Envelope{ID: task.ID(at(n))}, Exec: &schema.Exec{}})
		}
		return p
	}
	for _, c := range []struct {
		pages []broker.Page
		limit int
		want  string
		next  []byte
	}{
		{[]broker.Page{page(at(3), 9, 4)}, 9, "9 4 ", at(3)},
		{[]broker.Page{page(nil, 9), page(nil, 8)}, 2, "9 8 ", nil},
		{[]broker.Page{page(nil, 9), page(nil, 8, 7)}, 2, "9 8 ", at(8)},
		{[]broker.Page{page(at(5), 9), page(at(3), 4)}, 9, "9 ", at(5)},
		{[]broker.Page{page(at(3), 4), page(at(5), 9)}, 9, "9 ", at(5)},
	} {
		views, next := merge(c.pages, false, c.limit)
		got := ""
		for _, v := range views {
			got += fmt.Sprint(v.ID.UnixMilli(), " ")
		}
		if got != c.want || !slices.Equal(next, c.next) {
			t.Errorf("merge(%+v) = %q, next %v, want %q, next %v", c.pages, got, next, c.want, c.next)
		}
	}
}
