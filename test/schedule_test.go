package test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// TestSchedulesThroughCrashes kills the server repeatedly while two schedules tick, one of which sends its tasks to
// another shard: every second is in each history once, and has one task.
func TestSchedulesThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "2")
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client)
	for _, name := range []string{"here", "away"} {
		if _, err := operator.Schedules().Put(t.Context(), admin.ScheduleSpec{Name: name, Every: time.Second,
			Task: pawl.RawTask{Type: "tick"}, Options: []pawl.Option{pawl.Queue(name)}}); err != nil {
			t.Fatal(err)
		}
	}
	away, err := operator.Schedules().Get(t.Context(), "away")
	if err != nil {
		t.Fatal(err)
	}
	home, err := strconv.ParseUint(away.ID[15:18], 16, 12) // the position of the shard in ids
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Queues().Spread(t.Context(), "away", admin.SpreadOptions{Shards: []int{3 - int(home)}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "enough ticks between kills", startLimit, func() bool {
		s.killOften(2)
		last, err := operator.Schedules().Get(t.Context(), "away")
		return err == nil && last.Last != nil && int(last.Last.Seq) >= count(t, "PAWL_KILLS", 12)/2
	})
	for _, name := range []string{"here", "away"} {
		if _, err := operator.WithReason("the test looks").Schedules().Pause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		var why error
		t.Cleanup(func() {
			if why != nil {
				t.Logf("schedule %s: %v", name, why)
			}
		})
		eventually(t, "the history of schedule "+name+" and its tasks agree", startLimit, func() bool {
			why = wholeHistory(t, client, name)
			return why == nil
		})
	}
}

// wholeHistory returns what is wrong with the history or the tasks of a schedule that ticks each second into a queue of its name.
func wholeHistory(t *testing.T, client *pawl.Client, name string) error {
	var ticks []*admin.Tick
	for tick, err := range admin.New(client).Schedules().History(t.Context(), name) {
		if err != nil {
			return err
		}
		ticks = append(ticks, tick)
	}
	slices.Reverse(ticks)
	tasks := map[string]bool{}
	for i, tick := range ticks {
		if i > 0 && tick.PlannedAt.Sub(ticks[i-1].PlannedAt) != time.Second || tick.Outcome != admin.TickFired || tick.TaskID == "" ||
			tasks[tick.TaskID] {
			return fmt.Errorf("after %+v comes %+v", ticks[max(i-1, 0)], tick)
		}
		tasks[tick.TaskID] = true
	}
	if len(ticks) < 3 {
		return fmt.Errorf("only %d ticks", len(ticks))
	}
	n := 0
	for info, err := range admin.New(client).Tasks().List(t.Context(), admin.Filter{Queue: name}) {
		if err != nil {
			return err
		}
		if !tasks[info.ID] {
			return fmt.Errorf("task %s is of no tick", info.ID)
		}
		n++
	}
	if n != len(ticks) {
		return fmt.Errorf("%d tasks for %d ticks", n, len(ticks))
	}
	return nil
}
