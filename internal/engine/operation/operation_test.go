package operation

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A step takes a chunk, but no more than what is left of Max and of the canary; none while the operation is stopping or waits.
func TestStepSize(t *testing.T) {
	for _, c := range []struct {
		o    Operation
		want int
	}{
		{Operation{}, 100},
		{Operation{Spec: Spec{Max: 150}, Tally: Tally{Matched: 20}}, 100},
		{Operation{Spec: Spec{Max: 50}, Tally: Tally{Matched: 20}}, 30},
		{Operation{Spec: Spec{Max: 1}}, 1},
		{Operation{Spec: Spec{Max: 20}, Tally: Tally{Matched: 20}}, 0},
		{Operation{Spec: Spec{Max: 20}, Tally: Tally{Matched: 30}}, 0},
		{Operation{Spec: Spec{Canary: 50}, Tally: Tally{Matched: 20}}, 30},
		{Operation{Spec: Spec{Canary: 1}}, 1},
		{Operation{Spec: Spec{Canary: 50, Max: 25}, Tally: Tally{Matched: 20}}, 5},
		{Operation{Spec: Spec{Canary: 50}, Tally: Tally{Matched: 20}, Progress: Progress{Probed: true}}, 100},
		{Operation{Stopping: Paused}, 0},
		{Operation{Progress: Progress{Visit: Visit{Swept: true}}}, 0},
	} {
		if got := c.o.Wants(100); got != c.want {
			t.Errorf("Wants of %+v = %d, want %d", c.o, got, c.want)
		}
	}
}

// Each shard selects the tasks that existed when it was counted, by its own clock, or up to the operator's bound if that is earlier.
func TestFilterOfAShard(t *testing.T) {
	for _, c := range []struct {
		asked store.Time
		until []ShardTime
		want  store.Time
	}{
		{0, nil, 101}, {0, []ShardTime{{1, 90}, {2, 80}, {3, 70}}, 81}, {0, []ShardTime{{1, 90}}, 101},
		{80, []ShardTime{{2, 80}}, 80}, {81, []ShardTime{{2, 80}}, 81}, {82, []ShardTime{{2, 80}}, 81},
	} {
		o := Operation{CreatedAt: 100, Spec: Spec{Filter: query.Filter{CreatedBefore: c.asked}, Until: c.until}}
		if got := o.In(2).CreatedBefore; got != c.want {
			t.Errorf("%+v: the shard's filter has CreatedBefore %d, want %d", c, got, c.want)
		}
	}
}

// The first errors of all steps are kept, and everything is counted.
func TestTallyAdds(t *testing.T) {
	step := func(n int) *Tally {
		t := &Tally{Matched: 20, Done: 3}
		for i := range n {
			t.fail(task.ID{byte(i)}, fmt.Sprint(n))
		}
		t.skip(task.SkipSame, 2)
		return t
	}
	sum := &Tally{}
	for _, n := range []int{8, 8, 8} {
		sum.add(step(n))
	}
	if sum.Matched != 60 || sum.Done != 9 || sum.Failed != 24 || sum.SkippedCount() != 6 || len(sum.Skipped) != 1 ||
		len(sum.Errors) != maxTaskErrors || sum.Errors[8].ID != (task.ID{0}) || sum.Errors[9].ID != (task.ID{1}) {
		t.Errorf("the sum of the steps is %+v", sum)
	}
	if many := step(30); many.Failed != 30 || len(many.Errors) != maxTaskErrors {
		t.Errorf("a single step with 30 errors has %+v", many)
	}
}

// Values stored by a later release have a name.
func TestStateNames(t *testing.T) {
	for s, want := range map[State]string{Running: "running", Failed: "failed", Failed + 1: "state_6"} {
		if s.String() != want {
			t.Errorf("state %d is %q, want %q", s, s, want)
		}
	}
}
