package cluster

import (
	"testing"

	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/task"
)

// A schedule's name is registered with a shard, which does not change, and a version that grows. Forgetting an older version is a no-op.
func TestScheduleNames(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 2)
		_, err := c.Schedules.ScheduleHome(bg, "default", "nightly")
		is(t, err, task.ErrNotFound, `"nightly"`)
		first, err := c.Schedules.NameSchedule(bg, "default", "nightly", 2)
		if must(t, err); first.Shard != 2 || first.Version == 0 {
			t.Errorf("NameSchedule = %+v, want shard 2 and a version", first)
		}
		second, err := c.Schedules.NameSchedule(bg, "default", "nightly", 1)
		if must(t, err); second.Shard != 2 || second.Version <= first.Version {
			t.Errorf("naming it again = %+v, after %+v, want the same shard and a higher version", second, first)
		}
		count := func() int {
			all, err := c.Namespaces.List(bg)
			must(t, err)
			return all[0].Schedules
		}
		must(t, c.Schedules.ForgetSchedule(bg, "default", "nightly", first.Version))
		if home, err := c.Schedules.ScheduleHome(bg, "default", "nightly"); err != nil || home != second || count() != 1 {
			t.Errorf("after forgetting an older version the home is %+v, %v, with %d schedules counted", home, err, count())
		}
		for range 2 {
			must(t, c.Schedules.ForgetSchedule(bg, "default", "nightly", second.Version))
			if _, err := c.Schedules.ScheduleHome(bg, "default", "nightly"); err == nil || count() != 0 {
				t.Errorf("after forgetting the current version: %v, with %d schedules counted", err, count())
			}
		}
	})
	inBubble(t, func(t *testing.T, w *world) {
		_, err := w.openAt(system.PolicyLevel-1, 1).Schedules.NameSchedule(bg, "default", "nightly", 1)
		is(t, err, task.ErrWrongState, "feature level 3")
	})
}
