package queues

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// A queue has dedicated shards: no new queue is created there, none can be moved there, and another leader knows that too.
func TestDedicatedShards(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 300
		c := w.open(4)
		put := func(c *control, name string) Queue {
			t.Helper()
			q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
			return q
		}
		spread := func(c *control, name string, target SpreadTarget) (Queue, error) {
			return c.Queues.Spread(bg, nobody, "default", name, target)
		}
		hot := put(c, "hot")
		other := put(c, "other")
		for i := 0; other.Shard == hot.Shard; i++ {
			other = put(c, fmt.Sprint("other", i))
		}

		_, err := spread(c, "hot", SpreadTarget{Shards: []uint32{other.Shard}, Own: true})
		is(t, err, task.ErrWrongState, fmt.Sprintf("shard %d can't be its own", other.Shard), other.Name)
		_, err = spread(c, "hot", SpreadTarget{Parts: 4, Own: true})
		is(t, err, task.ErrWrongState, "data shards can take it")
		hot, err = spread(c, "hot", SpreadTarget{Parts: 2, Own: true})
		must(t, err)
		if hot.In(other.Shard) || !hot.Own || len(hot.Shards()) != 2 {
			t.Fatalf("after spreading it over dedicated shards, the queue is %+v", hot)
		}

		next := w.newReplica()
		next.lead()
		again := next.control
		for i := range 200 {
			if q := put(again, fmt.Sprint("new", i)); hot.In(q.Shard) {
				t.Fatalf("queue %s is in shard %d, which is dedicated to another queue", q.Name, q.Shard)
			}
		}
		_, err = spread(again, "other", SpreadTarget{Shards: hot.Shards()[:1]})
		is(t, err, task.ErrWrongState, fmt.Sprintf("shard %d is queue %q's own", hot.Shards()[0], "hot"))
		q, err := spread(again, "other", SpreadTarget{Parts: 2})
		must(t, err)
		if slices.ContainsFunc(q.Shards(), hot.In) {
			t.Errorf("the queue was spread over shards %v, some of which are dedicated to another queue", q.Shards())
		}
		_, err = spread(again, "other", SpreadTarget{Parts: 3})
		is(t, err, task.ErrWrongState, "2 of 4 data shards")

		hot, err = spread(again, "hot", SpreadTarget{Parts: 2})
		must(t, err)
		_, err = spread(again, "other", SpreadTarget{Parts: 4})
		must(t, err)
		if hot.Own {
			t.Error("the shards are still dedicated to the queue")
		}
	})
}

// One data shard is always left for new queues.
func TestDedicatedShardsLeaveOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 300
		c := w.open(2)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "hot", unchanged)
		must(t, err)
		_, err = c.Queues.Spread(bg, nobody, "default", "hot", SpreadTarget{Parts: 2, Own: true})
		is(t, err, task.ErrWrongState, "no data shard would be left for other queues")
		_, err = c.Queues.Spread(bg, nobody, "default", "hot", SpreadTarget{Parts: 1, Own: true})
		must(t, err)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)

		must(t, c.Queues.DropQueue(bg, nobody, "default", "hot"))
		home := map[uint32]bool{q.Shard: true}
		for i := range 100 {
			q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", fmt.Sprint("b", i), unchanged)
			must(t, err)
			home[q.Shard] = true
		}
		if len(home) != 2 {
			t.Errorf("after the owner was deleted, new queues are in shards %v, want both", home)
		}
	})
}
