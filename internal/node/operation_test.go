package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// Whichever leaders die, of the operations' home or of a shard that they work in, and while slots of a queue move and a shard is
// added, each task is processed once and the counts match.
func TestOperationsSurviveElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		w.addShard()
		if _, err := admin.New(w.anyone()).Queues().Put(t.Context(), "a", admin.QueueSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.New(w.anyone()).Queues().Spread(t.Context(), "a", admin.SpreadOptions{Shards: []int{1, 2}}); err != nil {
			t.Fatal(err)
		}
		const many = 120
		var ids []string
		for i := range many {
			ref, err := w.anyone().Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("a"), pawl.Key(fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, ref.ID)
		}
		o, err := admin.New(w.anyone()).Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionMove,
			Filter: &admin.Filter{Queue: "a"}, ToQueue: "b", Rate: 1})
		if err != nil {
			t.Fatal(err)
		}
		for round := range uint32(6) {
			pass(7 * time.Second)
			switch round {
			case 1:
				w.until("slots move", func() error {
					_, err := admin.New(w.anyone()).Queues().Spread(t.Context(), "a", admin.SpreadOptions{Shards: []int{2}})
					return err
				})
			case 2:
				w.until("there is a third shard", func() error { return admin.New(w.anyone()).Cluster().AddShards(t.Context(), 3) })
			case 0:
				w.until("it is paused", func() error {
					_, err := admin.New(w.anyone()).Operations().Pause(t.Context(),
						o.ID)
					return err
				})
			}
			name := w.leaderOf(1 + round%2)
			w.crash(name)
			pass(9 * time.Second)
			w.start(name, dirs[name])
			w.until("three voters each", w.replicated(3))
			if round == 0 {
				w.until("it goes on", func() error {
					_, err := admin.New(w.anyone()).Operations().Resume(t.Context(),
						o.ID)
					return err
				})
			}
		}
		w.until("it is done", func() error {
			if o, err = admin.New(w.anyone()).Operations().Get(t.Context(), o.ID); err == nil && o.State != admin.OperationDone {
				err = fmt.Errorf("it is %s: %+v, waits for %s", o.State, o.Counts, o.WaitsFor)
			}
			return err
		})
		if c := o.Counts; c.Matched != many || c.Done != many || c.Failed > 0 || len(c.Skipped) > 0 {
			t.Errorf("the counts are %+v, want %d", c, many)
		}
		w.until("each task lives on once", func() error { return movedOnce(t, w.anyone(), ids) })
	})
}

// movedOnce returns an error unless every task of queue a lives on as exactly one task of queue b, and there are no others.
func movedOnce(t *testing.T, c *pawl.Client, ids []string) error {
	shards, there := map[uint32]bool{}, map[string]bool{}
	for _, id := range ids {
		old, err := c.Task(t.Context(), id)
		if err != nil {
			return err
		}
		if old.State != pawltype.StateDiscarded || old.Reason != "moved" || there[old.MovedTo] {
			t.Errorf("task %s is %s (%s) and lives on as %s", id, old.State, old.Reason, old.MovedTo)
		}
		there[old.MovedTo] = true
		now, err := c.Task(t.Context(), old.MovedTo)
		if err != nil {
			return err
		}
		if now.MovedFrom != id || now.Queue != "b" || now.Key != old.Key || now.State != pawltype.StateReady {
			t.Errorf("task %s lives on as %+v", id, now)
		}
		at, err := task.ParseID(id)
		if err != nil {
			return err
		}
		shards[at.Shard()] = true
	}
	n := 0
	for _, err := range admin.New(c).Tasks().List(t.Context(), admin.Filter{Queue: "b"}) {
		if err != nil {
			return err
		}
		n++
	}
	if n != len(ids) || len(shards) != 2 {
		return fmt.Errorf("%d tasks came to the other queue, from shards %v", n, shards)
	}
	return nil
}
