package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/task"
)

// visited describes where an operation is: its state, the current visit and those postponed, as shard.step; ! for an open one, $ for a
// swept one.
func visited(o *operation.Operation) string {
	out := o.State.String()
	if o.Stopping != 0 {
		out += " to " + o.Stopping.String()
	}
	for _, v := range append([]operation.Visit{o.Visit}, o.Postponed...) {
		out += fmt.Sprintf(" %d.%d", v.Shard, v.Step)
		if v.Swept {
			out += "$"
		}
		if v.Open {
			out += "!"
		}
	}
	return out
}

// A shard that does not answer is asked again when the others are done, with the same step; before that if the operation is to stop.
func TestPostponedShards(t *testing.T) {
	type advance = operation.Advance
	silent := func(shard uint32, step uint64, next uint32) advance {
		return advance{Shard: shard, Step: step, Unanswered: true, Next: next}
	}
	answer := func(shard uint32, step uint64, matched int64) advance {
		return advance{Shard: shard, Step: step, Answer: operation.StepAnswer{Tally: operation.Tally{Matched: matched, Done: matched},
			Next: []byte{1}}}
	}
	swept := func(shard uint32, step uint64, next uint32) advance {
		a := answer(shard, step, 1)
		a.Next, a.Answer.Swept = next, true
		return a
	}
	away := answer(2, 1, 0)
	away.Answer.Away = 1
	refused := advance{Shard: 2, Step: 1, Failed: "refused"}
	refusedSwept, fiveAway, refusedAfter := refused, answer(1, 1, 5), refused
	refusedSwept.Shard, refusedSwept.Answer.Swept = 1, true
	fiveAway.Answer.Done, fiveAway.Answer.Away = 4, 1
	refusedAfter.Shard, refusedAfter.Step = 1, 2
	oneAway, refusedAfterAway, away31 := fiveAway, refused, away
	away31.Shard = 3
	oneAway.Shard, refusedAfterAway.Step = 2, 2
	type order = func(*engine.Round, string, task.ID, task.Author) (*operation.Operation, error)
	pause, resume, abort := order(operation.Pause), order(operation.Resume), order(operation.Abort)
	type events = []struct {
		does any
		want string
		done int64
	}
	for name, c := range map[string]struct {
		spec operation.Spec
		events
	}{
		"the others go first": {operation.Spec{}, events{
			{answer(1, 1, 3), "running 1.2", 3}, {silent(1, 2, 2), "running 2.1 1.2!", 3}, {silent(1, 2, 2), "running 2.1 1.2!", 3},
			{answer(1, 2, 9), "running 2.1 1.2!", 3}, {answer(2, 1, 4), "running 2.2 1.2!", 7}, {answer(2, 1, 4), "running 2.2 1.2!", 7},
			{silent(2, 2, 3), "running 3.1 1.2! 2.2!", 7}, {swept(3, 1, 0), "running 1.2! 2.2!", 8},
			{silent(1, 2, 0), "running 2.2! 1.2!", 8}, {swept(2, 2, 4), "running 4.1 1.2!", 9}, {swept(4, 1, 0), "running 1.2!", 10},
			{silent(1, 2, 0), "running 1.2!", 10}, {answer(1, 2, 2), "running 1.3", 12}, {swept(1, 3, 0), "done 1.4$", 13}}},
		"a pause collects the open steps": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {silent(2, 1, 3), "running 3.1 1.1! 2.1!", 0},
			{pause, "running to paused 3.1 1.1! 2.1!", 0}, {answer(3, 1, 1), "running to paused 1.1! 2.1! 3.2", 1},
			{silent(1, 1, 4), "running to paused 2.1! 3.2 1.1!", 1}, {away, "running to paused 2.2! 3.2 1.1!", 1},
			{answer(2, 2, 5), "running to paused 1.1! 3.2 2.3", 6}, {silent(1, 1, 4), "running to paused 1.1! 3.2 2.3", 6},
			{answer(1, 1, 2), "paused 1.2 3.2 2.3", 8}, {resume, "running 1.2 3.2 2.3", 8}, {swept(1, 2, 0), "running 3.2 2.3", 9},
			{swept(3, 2, 0), "running 2.3", 10}, {swept(2, 3, 0), "done 2.4$", 11}}},
		"a pause in a finished shard": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {pause, "running to paused 2.1 1.1!", 0},
			{swept(2, 1, 3), "running to paused 1.1! 2.2$", 1}, {answer(1, 1, 1), "paused 1.2 2.2$", 2}, {resume, "running 1.2 2.2$", 2},
			{swept(1, 2, 3), "running 3.1 2.2$", 3}, {swept(3, 1, 0), "running 2.2$", 4}, {swept(2, 2, 0), "done 2.3$", 5}}},
		"a pause that is taken back": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {pause, "running to paused 2.1 1.1!", 0},
			{silent(2, 1, 3), "running to paused 1.1! 2.1!", 0}, {resume, "running 1.1! 2.1!", 0},
			{silent(1, 1, 3), "running 3.1 2.1! 1.1!", 0}}},
		"an abort collects the open steps": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {abort, "running to aborted 2.1 1.1!", 0},
			{answer(2, 1, 1), "running to aborted 1.1! 2.2", 1}, {swept(1, 1, 3), "aborted 1.2$ 2.2", 2}}},
		"an abort in a pause": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {pause, "running to paused 2.1 1.1!", 0},
			{answer(2, 1, 1), "running to paused 1.1! 2.2", 1}, {answer(1, 1, 1), "paused 1.2 2.2", 2}, {abort, "aborted 1.2 2.2", 2}}},
		"a failure collects the open steps": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {refused, "running to failed 1.1! 2.2", 0},
			{silent(1, 1, 3), "running to failed 1.1! 2.2", 0}, {swept(1, 1, 0), "failed 1.2$ 2.2", 1}}},
		"a failure in an open step": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {refused, "running to failed 1.1! 2.2", 0},
			{advance{Shard: 1, Step: 1, Failed: "too"},
				"failed 1.2 2.2", 0}}},
		"a failure is final": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {oneAway, "running 2.2! 1.1!", 4}, {refusedAfterAway, "running to failed 1.1! 2.3",
				4},
			{pause, "running to failed 1.1! 2.3", 4}, {resume, "running to failed 1.1! 2.3", 4}, {abort, "running to failed 1.1! 2.3", 4},
			{swept(1, 1, 3), "failed 1.2$ 2.3", 5}}},
		"outcomes that a former leader reports when it leads again": {operation.Spec{}, events{
			{silent(1, 1, 2), "running 2.1 1.1!", 0}, {silent(2, 1, 3), "running 3.1 1.1! 2.1!", 0},
			{swept(3, 1, 4), "running 4.1 1.1! 2.1!", 1}, {swept(4, 1, 0), "running 1.1! 2.1!", 2}, {silent(1, 1, 2), "running 1.1! 2.1!",
				2}, {silent(1, 1, 4), "running 1.1! 2.1!", 2},
			{swept(1, 1, 3), "running 1.1! 2.1!", 2}, {swept(1, 1, 5), "running 5.1 2.1!", 3}}},
		"a shard that answers again is asked before it forgets its step": {operation.Spec{}, events{
			{answer(1, 1, 3), "running 1.2", 3}, {silent(1, 2, 2), "running 2.1 1.2!", 3}, {10 * time.Hour, "running 2.1 1.2!", 3},
			{answer(2, 1, 1), "running 2.2 1.2!", 4}, {14 * time.Hour, "running 2.2 1.2!", 4}, {answer(2, 2, 1), "running 1.2! 2.3", 5},
			{answer(1, 2, 1), "running 1.3 2.3", 6}, {10 * time.Hour, "running 1.3 2.3", 6}, {answer(1, 3, 1), "running 1.4 2.3", 7},
			{24 * time.Hour, "running 1.4 2.3", 7}, {swept(1, 4, 3), "running 3.1 2.3", 8}, {away31, "running 2.3 3.2!", 8},
			{24 * time.Hour, "running 2.3 3.2!", 8}, {pause, "running to paused 2.3 3.2!", 8},
			{answer(2, 3, 1), "running to paused 3.2! 2.4", 9}, {24 * time.Hour, "running to paused 3.2! 2.4", 9},
			{answer(3, 2, 0), "paused 3.3 2.4", 9}}},
		"a failure in a searched shard": {operation.Spec{}, events{{refusedSwept, "failed 1.2$", 0}}},
		"a failure at the maximum": {operation.Spec{Max: 5}, events{{fiveAway, "running 1.2!", 4},
			{refusedAfter, "failed 1.3", 4}}},
		"a maximum counts tasks that may have been done": {operation.Spec{Max: 5}, events{{silent(1, 1, 2), "running 1.1", 0},
			{answer(1, 1, 5), "done 1.2", 5}}},
		"so does a canary, until it is over": {operation.Spec{Canary: 2}, events{
			{silent(1, 1, 2), "running 1.1", 0}, {answer(1, 1, 2), "paused 1.2", 2}, {resume, "running 1.2", 2},
			{silent(1, 2, 2), "running 2.1 1.2!", 2}}},
	} {
		w := engine.NewWorld(t)
		c.spec.Action = task.Move
		o, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Start(r, "default", 0, w.NewID(), c.spec)
		})
		for i, e := range c.events {
			w.BecomeLeader()
			if wait, ok := e.does.(time.Duration); ok {
				w.Now = w.Now.Add(wait)
			} else if do, ok := e.does.(order); ok && err == nil {
				_, err = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) { return do(r, "default", o.ID, task.Author{}) })
				if errors.Is(err, task.ErrWrongState) && o.Stopping == operation.Failed {
					err = nil
				}
			} else if err == nil {
				_, err = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
					return operation.Advanced(r, "default", o.ID, e.does.(advance))
				})
			}
			if err != nil {
				t.Fatalf("%s, %d: %v", name, i+1, err)
			}
			if o, err = operation.Show(w.Store, "default", o.ID); err != nil || visited(o) != e.want || o.Done != e.done {
				t.Fatalf("%s, %d: %s after %d tasks, %v, want %s after %d", name, i+1, visited(o), o.Done, err, e.want, e.done)
			}
		}
		if err := w.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// silentShards is a model of an operation in several shards, of which some hang now and then. The first is its home.
type silentShards struct {
	*testing.T
	seed   uint64
	shards []*engine.World // from index 1
	ids    [][]task.ID     // tasks that existed at the start
	hangs  []bool
	late   []func()  // steps that were requested
	former [5]func() // records the outcome of the first step that was lost in a shard, by a leader that leads again
	seen   map[string]bool
}

func newSilentShards(t *testing.T, seed uint64, seen map[string]bool) *silentShards {
	m := &silentShards{T: t, seed: seed, shards: []*engine.World{nil}, ids: [][]task.ID{nil}, hangs: make([]bool, 5), seen: seen}
	for range 4 {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		w.PutQueue("other", task.DefaultSettings(), false)
		var ids []task.ID
		for i := range 12 {
			a, err := w.Enqueue(task.Spec{Type: "job", Queue: "default", Priority: task.Priority(1 + i%3)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.ID)
		}
		m.shards, m.ids = append(m.shards, w), append(m.ids, ids)
	}
	return m
}

// step is what the leader of the home does, unless it dies in between.
func (m *silentShards) step(o *operation.Operation, x uint64) {
	home, shard := m.shards[1], m.shards[o.Shard]
	c := stepCall(home, o, int64(1+x>>16%5))
	c.Filter = o.In(o.Shard)
	m.late = append(m.late, func() {
		if _, err := doStep(shard, c, nil); err != nil && !errors.Is(err, operation.ErrStepPassed) {
			m.Fatalf("seed %d: %v", m.seed, err)
		}
	})
	if x>>24%4 == 0 {
		if again := m.former[o.Shard]; again != nil && x>>44%4 == 0 {
			again()
			m.former[o.Shard] = nil
		}
		return
	}
	next := operation.Advance{Shard: o.Shard, Step: o.Step, Unanswered: m.hangs[o.Shard]}
	if !next.Unanswered || x>>26%2 == 0 { // one that hangs may do its step
		var err error
		if next.Answer, err = doStep(shard, c, nil); err != nil {
			m.Fatalf("seed %d: %v", m.seed, err)
		}
	}
	if o.Last < 4 {
		next.Next = o.Last + 1
	}
	if x>>28%3 == 0 {
		if m.former[o.Shard] == nil {
			m.former[o.Shard] = func() { m.record(o, next) }
		}
		return
	}
	for range 1 + x>>40%2 {
		then := m.record(o, next)
		waits := next.Unanswered && then.Shard == o.Shard && then.Step == o.Step
		if waits && o.Stopping == 0 && o.CanPostpone() && (next.Next != 0 || len(o.Postponed) > 0) {
			m.Errorf("seed %d: the operation waits for shard %d: %s", m.seed, o.Shard, visited(then))
		}
		if len(then.Postponed) > 0 {
			m.seen["postponed"] = true
			m.seen[then.State.String()+" with postponed"] = true
			m.seen["to "+then.Stopping.String()+" with postponed"] = true
		}
	}
}

func (m *silentShards) record(o *operation.Operation, a operation.Advance) *operation.Operation {
	then, err := engine.Run(m.shards[1], func(r *engine.Round) (*operation.Operation, error) {
		return operation.Advanced(r, "default", o.ID, a)
	})
	if err != nil {
		m.Fatalf("seed %d: %v", m.seed, err)
	}
	return then
}

// judge compares the counts of an operation that does not run with the tasks of all shards.
func (m *silentShards) judge(o *operation.Operation) {
	var done, all int64
	for i, ids := range m.ids {
		if i > 0 {
			done += changedBy(m.shards[i], m.T, m.seed, o, ids)
			all += int64(len(ids))
		}
	}
	if done != o.Done || o.Matched != o.Done+o.SkippedCount() || o.State == operation.Done && o.Matched != all {
		m.Errorf("seed %d: %s changed %d of %d tasks: %s, the counts are %+v", m.seed, o.Spec.Action, done, all, visited(o), o.Tally)
	}
}

// However shards hang, steps are lost, repeated or late, the operation is paused, resumed or aborted, under any leader: whenever the
// operation does not run, its counts agree with the tasks of all shards, and each was changed at most once; at its end, each was changed or
// skipped.
func TestOperationsPassShardsThatHang(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		m := newSilentShards(t, seed, seen)
		action := []task.BulkAction{task.Cancel, task.Move, task.SetPriority, task.Discard}[seed%4]
		spec := operation.Spec{Action: action, Filter: query.Filter{Queue: "default"}, ToQueue: "other", Priority: task.Low,
			Canary: int64(seed % 3 * 4)}
		spec.Filter.States, _ = action.Selects(nil)
		home := m.shards[1]
		o, err := engine.Run(home, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Start(r, "default", 0, home.NewID(), spec)
		})
		order := func(do func(*engine.Round, string, task.ID, task.Author) (*operation.Operation, error)) {
			_, _ = engine.Run(home, func(r *engine.Round) (*operation.Operation, error) { return do(r, "default", o.ID, task.Author{}) })
		}
		for step := uint64(0); err == nil && !o.State.Ended(); step++ {
			if step > 5000 {
				t.Fatalf("seed %d: the operation did not end: %s", seed, visited(o))
			}
			x := task.Mix(seed<<32 | step)
			one := 1 + x>>8%4
			for _, w := range m.shards[1:] {
				w.Now += 1000
			}
			switch x % 8 {
			case 0:
				m.shards[one].BecomeLeader()
			case 1: // new tasks are not selected
				if _, err := m.shards[one].Enqueue(task.Spec{Type: "job", Queue: "default"}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			case 2:
				order(operation.Pause)
			case 3:
				order(operation.Resume)
			case 4:
				if len(m.late) > 0 {
					m.late[x>>12%uint64(len(m.late))]()
				}
			case 5:
				deliverMoved(m.shards[one], t, x)
			default:
				m.hangs[one] = !m.hangs[one]
			}
			if seed%5 == 0 && step == 60 {
				order(operation.Abort)
			}
			if o, err = operation.Show(home.Store, "default", o.ID); err != nil {
				break
			}
			if o.State != operation.Running {
				m.judge(o)
				continue
			}
			m.step(o, x)
			if o, err = operation.Show(home.Store, "default", o.ID); err == nil && o.State != operation.Running {
				m.judge(o)
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, again := range m.late { // all of them arrive once more
			again()
		}
		m.judge(o)
		for _, w := range m.shards[1:] {
			if err := w.Check(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
	for _, want := range []string{"postponed", "paused with postponed", "aborted with postponed", "to paused with postponed",
		"to aborted with postponed"} {
		if !seen[want] {
			t.Errorf("no operation was %s", want)
		}
	}
}

// However long the other shards take, the counts hold what a shard has done in a step that it did not answer: it forgets its steps at some
// time.
func TestSlowOperationsCountUnansweredSteps(t *testing.T) {
	m := newSilentShards(t, 1, map[string]bool{})
	home := m.shards[1]
	spec := operation.Spec{Action: task.SetPriority, Filter: query.Filter{Queue: "default"}, Priority: task.Low}
	spec.Filter.States, _ = task.SetPriority.Selects(nil)
	o, err := engine.Run(home, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Start(r, "default", 0, home.NewID(), spec)
	})
	for m.hangs[1] = true; err == nil && o.State == operation.Running; o, err = operation.Show(home.Store, "default", o.ID) {
		m.step(o, 1<<24|1<<28) // of three tasks
		m.hangs[1] = false
		for _, w := range m.shards[1:] {
			w.Pass(4 * 24 * time.Hour)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	m.judge(o)
}
