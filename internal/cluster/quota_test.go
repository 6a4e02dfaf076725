package cluster

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
)

// A created namespace may have a tenth of the cluster's queues and schedules by default, so that there is room for
// others. The default namespace may have all of them.
func TestNamespaceMayHaveATenthOfQueues(t *testing.T) {
	if q := task.DefaultQuotas(); q.Queues != queues.MaxQueues/10 || q.Schedules != schedules.MaxSchedules/10 {
		t.Errorf("the default quotas are %d queues and %d schedules, want a tenth of %d and %d", q.Queues, q.Schedules, queues.MaxQueues,
			schedules.MaxSchedules)
	}
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for _, name := range []string{"greedy", "modest"} {
			_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: name})
			must(t, err)
		}
		fill := func(ns string, from, to int) {
			for n := from; n < to; n++ {
				_, err := c.Queues.Place(bg, ns, fmt.Sprint("q", n))
				must(t, err)
			}
		}
		fill("greedy", 0, 1000)
		_, err := c.Queues.Place(bg, "greedy", "more")
		is(t, err, task.ErrInvalidArgument, `"more" would exceed the 1000 that namespace "greedy" may have (max_queues)`,
			"pawl ns set greedy --max-queues N")
		if e, _ := task.AsError(err); e == nil || e.Reason != "max_queues" || e.Field != "queue" {
			t.Errorf("the refusal is %+v, want reason max_queues and field queue", e)
		}
		fill("modest", 0, 1)
		fill("default", 0, 1001)
		_, err = c.Namespaces.SetQuotas(bg, boss, "greedy", task.QuotaChange{task.QuotaQueues: 1001})
		must(t, err)
		fill("greedy", 1000, 1001)

		must(t, w.leader.Update(bg, func(tx *store.Tx) error {
			tx.Set(system.SchedulesOfKey("greedy"), system.EncodeNumber(100_000))
			return nil
		}))
		_, err = c.Schedules.NameSchedule(bg, "greedy", "more", 1)
		is(t, err, task.ErrInvalidArgument, "would exceed the 100000", "--max-schedules N")
		_, err = c.Schedules.NameSchedule(bg, "modest", "nightly", 1)
		must(t, err)
	})
}
