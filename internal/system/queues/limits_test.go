package queues

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

func limited(c *task.QueueConfig) error {
	c.Settings.Rules = task.Rules{MaxRunning: 64, Rate: task.Rate{Limit: 10, Period: time.Second, Burst: 128}}
	c.Settings.PerKey.MaxRunning = 3
	return nil
}

// Each shard of a spread queue gets its part of the rate, and the other limits whole: it has a share of those, which is
// divided before slots open, and again when a setting changes. The limits of keys are the shard's in full.
func TestLimitsAreDivided(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(4)
		divided := func(when, want string) {
			t.Helper()
			if got := w.takeDivisions(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		was, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", limited)
		must(t, err)
		divided("a queue in one shard", "")
		w.denyDivision(task.ErrUnavailable)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 4})
		is(t, err, task.ErrUnavailable)
		q, err := c.Queues.Queue(bg, "default", "a")
		if must(t, err); !q.moving() {
			t.Error("slots opened before the limits were divided")
		}
		divided("spread", fmt.Sprintf("a of %d, divide a", was.Shard))
		w.denyDivision(nil)
		pass(2 * movePause)
		q, err = c.Queues.Queue(bg, "default", "a")
		must(t, err)
		for _, p := range q.Parts {
			s := w.copyOf(p.Shard, "a").Settings
			want := task.Rules{MaxRunning: 64, Rate: task.Rate{Limit: 10, Period: 4 * time.Second, Burst: 32}}
			if q.moving() || s.Rules != want || s.PerKey.MaxRunning != 3 {
				t.Errorf("shard %d enforces %+v, and %+v per key", p.Shard, s.Rules, s.PerKey)
			}
			if whole := s.Rate.Whole(p.Slots.Len()); whole != q.Config.Settings.Rate {
				t.Errorf("the part of shard %d adds up to the rate %+v, want the queue's", p.Shard, whole)
			}
		}
		divided("moved", "divide a, a of 0")
		_, err = c.Queues.EnsureQueue(bg, q.Parts[1].Shard, "default", "a")
		must(t, err)
		divided("a shard lacked its copy", "divide a")
		w.denyDivision(task.ErrUnavailable)
		_, err = c.Queues.EnsureQueue(bg, q.Parts[1].Shard, "default", "a")
		must(t, err)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(7))
		is(t, err, task.ErrUnavailable)
		w.denyDivision(nil)
		divided("other limits", "divide a, a of 0, renew a, unknown 0 7, divide a")
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
			c.Settings.MaxRunning = 0
			return nil
		})
		must(t, err)
		divided("a limit less", "a of 0, divide a")
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
			c.Settings.MaxLength, c.Settings.MaxRunning = 0, 0
			return nil
		})
		must(t, err)
		divided("no limits", "undivide a")
		must(t, c.Queues.DropQueue(bg, nobody, "default", "a"))
		divided("deleted", "undivide a")
	})
}

// A shard may have dropped its copy of a queue that is used after all: when it was being deleted, when it was refused, or when a part
// retires. A later version, which counts as a move, tells late calls of the deletion and late shares, and an answer counts only from a
// shard that has it.
func TestSharesOfShardsThatMayHaveDroppedTheirCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", limited)
		must(t, err)
		q, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		const renewed, unknown = "a of 0, renew a, unknown 0 0", "a of 0, renew a, unknown 64 0"
		expect := func(when, want string) {
			t.Helper()
			now, err := c.Queues.Queue(bg, "default", "a")
			if got := w.takeDivisions(); err != nil || got != want || now.Config.Version <= q.Config.Version ||
				(now.Moved == now.Config.Version) == (want == "") {
				t.Errorf("%s: %q in version %d (%v), want %q in a later one than %d", when, got, now.Config.Version, err,
					want, q.Config.Version)
			}
			q = now
		}
		w.takeDivisions()
		w.full[copyKey(q.Parts[1].Shard, "a")] = true
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState)
		expect("a shard has tasks", unknown)
		w.fails[1], w.fails[2] = task.ErrUnavailable, task.ErrUnavailable
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
		delete(w.fails, 1)
		delete(w.fails, 2)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		expect("used while it is being deleted", unknown+", divide a")
		retire := func() {
			q.part(2).Retiring = 5
			w.Put(queueKey("default", "a"), encodeQueue(q, false))
		}
		retire()
		_, err = c.Queues.EnsureQueue(bg, 2, "default", "a")
		must(t, err)
		expect("used where it retires", renewed+", divide a")
		retire()
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(7))
		must(t, err)
		expect("changed while it retires", "a of 0, renew a, unknown 0 7, divide a")
	})
}

// A queue that is being deleted gets shards of its own, and no slot moves. A shard that has dropped its copy takes no earlier share.
func TestReservedWhileItIsBeingDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(4)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", limited)
		must(t, err)
		q, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		w.cut(q.Parts[1].Shard, task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
		now, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2, Own: true})
		if must(t, err); !now.Own || now.Config.Version <= q.Config.Version || now.Moved != now.Config.Version {
			t.Errorf("a queue in version %d that was being deleted is now %+v, want a later version that counts as a move",
				q.Config.Version, now)
		}
		q, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "b", limited)
		must(t, err)
		w.cut(q.Shard, task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, nobody, "default", "b"), task.ErrUnavailable)
		now, err = c.Queues.Spread(bg, nobody, "default", "b", SpreadTarget{Shards: []uint32{q.Shard}, Own: true})
		if must(t, err); !now.Own || now.divided() {
			t.Errorf("a queue in one shard that was being deleted is now %+v, want one whose limits are not divided", now)
		}
	})
}

func strictly(c *task.QueueConfig) error {
	c.Settings.KeyOrder = task.KeyOrderStrict
	return nil
}

// The slots of a queue with strict key order do not move, and strict key order is refused while slots move.
func TestSlotsOfOrderedQueuesDoNotMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		was, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", strictly)
		must(t, err)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		is(t, err, task.ErrWrongState, `queue "a"`, "strict order of keys", "set key_order to none")
		q, err := c.Queues.Queue(bg, "default", "a")
		if must(t, err); q.Spread() || q.Config.Version != was.Config.Version {
			t.Errorf("a refused Spread changed the queue: %+v", q)
		}
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
			c.Settings.KeyOrder = task.KeyOrderNone
			return nil
		})
		must(t, err)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", strictly)
		must(t, err)
		moving := Queue{Name: "a", Config: task.QueueConfig{Settings: task.Settings{KeyOrder: task.KeyOrderStrict}},
			Parts: []Part{{Shard: 1, Slots: task.AllSlots}}}
		is(t, mayOrder(moving, task.QueueConfig{}), task.ErrUnavailable, "slots are moving")
		must(t, mayOrder(moving, moving.Config))
		must(t, mayOrder(Queue{Name: "a", Parts: moving.Parts}, task.QueueConfig{})) // other settings may change
	})
}
