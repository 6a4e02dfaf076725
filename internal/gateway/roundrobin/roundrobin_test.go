package roundrobin

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
)

func TestShareLimits(t *testing.T) {
	if maxShares != 10_000 {
		t.Errorf("%d sets of queues are tracked, want 10,000", maxShares)
	}
}

// Queues take turns by weight. An empty queue keeps what it already gave and accrues no credit.
func TestTurnsByWeight(t *testing.T) {
	queues := []broker.Share{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}
	for _, c := range []struct {
		got   []int
		empty []bool
		n     int
		want  string
	}{
		{[]int{0, 0}, []bool{false, false}, 4, "[3 1]"}, {[]int{0, 0}, []bool{false, false}, 8, "[6 2]"}, {[]int{1, 0}, []bool{true, false}, 4, "[1 3]"},
		{[]int{0, 0}, []bool{true, false}, 4, "[0 4]"}, {[]int{1, 1}, []bool{true, true}, 4, "[1 1]"}, {[]int{0, 0}, []bool{true, true}, 4, "[0 0]"},
	} {
		credit := make([]int, 2)
		got := fmt.Sprint(plan(credit, queues, c.got, c.empty, c.n))
		if c.empty[0] && credit[0] != 0 || c.empty[1] && credit[1] != 0 {
			t.Errorf("Plan %d from queues that gave %v, empty %v: credit %v was saved", c.n, c.got, c.empty, credit)
		}
		if got != c.want {
			t.Errorf("Plan %d from queues that gave %v, empty %v = %s, want %s", c.n, c.got, c.empty, got, c.want)
		}
	}
}

// Smooth weighted round robin that is planned for many tasks at once picks the same queues as task by task.
func TestPlanAgreesWithSinglePicks(t *testing.T) {
	queues := []broker.Share{{Queue: "a", Weight: 5}, {Queue: "b", Weight: 1}, {Queue: "c", Weight: 3}}
	at, one := make([]int, 3), make([]int, 3)
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

// Sets of queues with the same weights share a state, and other sets don't.
func TestSharesAreOfEqualSets(t *testing.T) {
	var b Picker
	call := func(ns, queue string, weight int) broker.ClaimCall {
		return broker.ClaimCall{Namespace: ns, Queues: []broker.Share{{Queue: queue, Weight: weight}}}
	}
	one := b.of(call("n", "q", 1))
	if b.of(call("n", "q", 1)) != one {
		t.Error("an equal set has another state")
	}
	for _, c := range []broker.ClaimCall{call("m", "q", 1), call("n", "r", 1), call("n", "q", 2)} {
		if b.of(c) == one {
			t.Errorf("%+v has the state of another set", c)
		}
	}
	for i := len(b.states); i < maxShares; i++ {
		b.of(call("n", fmt.Sprint("q", i), 7))
	}
	if b.of(call("n", "q", 1)) != one || len(b.states) != maxShares {
		t.Errorf("the state of the first of %d sets was dropped", len(b.states))
	}
	if b.of(call("n", "last", 7)); len(b.states) != 1 {
		t.Errorf("%d sets are tracked, want 1", len(b.states))
	}
}
