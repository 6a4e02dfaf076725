package fanout

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func TestLimitsAreStable(t *testing.T) {
	if fanLimit != 16 {
		t.Errorf("a call starts up to %d goroutines, want 16", fanLimit)
	}
}

// Once a part has returned, those that are left have 800 ms, and as much again after each further one.
func TestPartsAreLate(t *testing.T) {
	const hangs = time.Hour
	for _, c := range []struct {
		name  string
		parts []time.Duration
		took  time.Duration
		late  string
	}{
		{"one that hangs", []time.Duration{0, hangs, 10 * time.Millisecond}, 810 * time.Millisecond, "1"},
		{"several that hang, and slow ones", []time.Duration{hangs, 1300 * time.Millisecond, hangs, 600 * time.Millisecond}, 2100 * time.Millisecond, "02"},
		{"the last a moment too late", []time.Duration{0, 800*time.Millisecond - 1, 1600 * time.Millisecond}, 1600*time.Millisecond - 1, "2"},
		{"all slow", []time.Duration{5 * time.Second, 5 * time.Second}, 5 * time.Second, ""},
		{"one alone", []time.Duration{5 * time.Second}, 5 * time.Second, ""},
		{"none", nil, 0, ""},
		{"more than run at a time", append(slices.Repeat([]time.Duration{hangs}, fanLimit-1), slices.Repeat([]time.Duration{300 * time.Millisecond}, 10)...), 3800 * time.Millisecond, "01234567891011121314"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			late := ""
			for i, err := range EachUntilLate(t.Context(), len(c.parts), func(ctx context.Context, i int) error {
				select {
				case <-time.After(c.parts[i]):
					return ctx.Err()
				case <-ctx.Done():
					return ctx.Err()
				}
			}) {
				if err != nil {
					late += fmt.Sprint(i)
				}
			}
			if took := time.Since(began); took != c.took || late != c.late {
				t.Errorf("%s: late are %q after %s, want %q after %s", c.name, late, took, c.late, c.took)
			}
		})
	}
}

// Only lists of dead letters are ordered by the tasks' end times.
func TestListsOfDeadLetters(t *testing.T) {
	for _, c := range []struct {
		f    broker.Filter
		want bool
	}{
		{broker.Filter{}, false}, {broker.Filter{Queue: "q"}, false}, {broker.Filter{Queue: "q", States: []task.State{task.Dead}}, true}, {broker.Filter{Queue: "q", States: []task.State{task.Poisoned}}, true},
		{broker.Filter{Queue: "q", States: []task.State{task.Ready}}, false}, {broker.Filter{States: []task.State{task.Dead}}, false}, {broker.Filter{Queue: "q", States: []task.State{task.Dead, task.Poisoned}}, false},
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
