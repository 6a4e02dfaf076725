package fanout

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/lanes"
)

// Queues take turns by weight. An empty queue provides what it already gave, and neither gains nor loses credit.
func TestTurnsByWeight(t *testing.T) {
	queues := []broker.Share{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}
	for _, c := range []struct {
		got          []int
		empty        []bool
		n            int
		want, credit string
	}{
		{[]int{0, 0}, []bool{false, false}, 4, "[3 1]", "[0 0]"}, {[]int{0, 0}, []bool{false, false}, 8, "[6 2]", "[0 0]"},
		{[]int{1, 0}, []bool{true, false}, 4, "[1 3]", "[-1 1]"}, {[]int{0, 0}, []bool{true, false}, 4, "[0 4]", "[0 0]"},
		{[]int{1, 1}, []bool{true, true}, 4, "[1 1]", "[-1 1]"}, {[]int{0, 0}, []bool{true, true}, 4, "[0 0]", "[0 0]"},
	} {
		credit := make(lanes.Credit, 2)
		if got := fmt.Sprint(plan(credit, queues, c.got, c.empty, c.n)); got != c.want || fmt.Sprint(credit) != c.credit {
			t.Errorf("Plan %d from queues that gave %v, empty %v = %s and the credit %v, want %s and %s", c.n, c.got, c.empty, got,
				credit, c.want, c.credit)
		}
	}
}

// Smooth weighted round robin that is planned for many tasks at once picks the same queues as task by task.
func TestPlanAgreesWithSinglePicks(t *testing.T) {
	queues := []broker.Share{{Queue: "a", Weight: 5}, {Queue: "b", Weight: 1}, {Queue: "c", Weight: 3}}
	at, one := make(lanes.Credit, 3), make(lanes.Credit, 3)
	sum := make([]int, 3)
	for n := range 20 {
		want := plan(at, queues, make([]int, 3), make([]bool, 3), n)
		for range n {
			for i, k := range plan(one, queues, make([]int, 3), make([]bool, 3), 1) {
				sum[i] += k
			}
		}
		for i := range want {
			if sum[i] -= want[i]; sum[i] != 0 {
				t.Fatalf("Plan = %v for %d tasks, off by %v", want, n, sum)
			}
		}
	}
}

// Claims at the same time share the turns as claims one after the other do. What a claim was to take but did not is owed.
func TestTurnsAtTheSameTime(t *testing.T) {
	var p Picker
	call := broker.ClaimCall{Queues: []broker.Share{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}, Max: 1}
	none := []bool{false, false}
	plan := func(turn *Turn) []int { return turn.Plan([]int{0, 0}, none, 1) }
	var turns []*Turn
	sum := make([]int, 2)
	for range 8 {
		turn := p.Begin(call)
		turns = append(turns, turn)
		for i, n := range plan(turn) {
			sum[i] += n
		}
	}
	if want := "[6 2]"; fmt.Sprint(sum) != want {
		t.Errorf("8 turns at the same time take %v, want %s", sum, want)
	}
	for _, turn := range turns[1:] {
		turn.End(plan(turn), none)
	}
	turns[0].End([]int{0, 0}, none) // it was to take one of a
	if got, want := plan(p.Begin(call)), plan(turns[0]); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the next takes %v, want what the first should have taken: %v", got, want)
	}
}

// Workers for one type and workers for all take from two queues over shards: each get them by their weights. With one
// credit for both, the ones would only get the one queue, and the others the other.
func TestTurnsByTypes(t *testing.T) {
	var p Picker
	got := map[string][]int{}
	for range 40 {
		for _, types := range [][]string{{"x"}, nil, {"x", "y"}, {"y", "x"}} {
			c := broker.ClaimCall{Queues: []broker.Share{{Queue: "a", Weight: 1}, {Queue: "b", Weight: 1}}, Types: types, Max: 1}
			turn := p.Begin(c)
			want := turn.Plan([]int{0, 0}, []bool{false, false}, 1)
			turn.End(want, []bool{false, false})
			name := fmt.Sprint(len(types))
			if got[name] == nil {
				got[name] = make([]int, 2)
			}
			for i, n := range want {
				got[name][i] += n
			}
		}
	}
	if want := "map[0:[20 20] 1:[20 20] 2:[40 40]]"; fmt.Sprint(got) != want {
		t.Errorf("claims by their number of types take %v, want %s", got, want)
	}
}
