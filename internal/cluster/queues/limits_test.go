package queues

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/task"
)

func limited(c *task.QueueConfig) error {
	c.Settings.Rules = task.Rules{MaxRunning: 64, Rate: task.Rate{Limit: 10, Period: time.Second, Burst: 128}}
	c.Settings.PerKey.MaxRunning = 3
	return nil
}

// Each shard of a spread queue enforces its share of the queue's limits, and the limits of keys in full.
func TestLimitsAreShared(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(4)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", limited)
		must(t, err)
		q, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 4})
		must(t, err)
		for _, p := range q.Parts {
			s := w.copyOf(p.Shard, "a").Settings
			want := task.Rules{MaxRunning: 16, Rate: task.Rate{Limit: 10, Period: 4 * time.Second, Burst: 32}}
			if s.Rules != want || s.PerKey.MaxRunning != 3 {
				t.Errorf("shard %d enforces %+v, and %+v per key", p.Shard, s.Rules, s.PerKey)
			}
			if whole := s.Rules.Whole(p.Slots.Len()); whole != q.Config.Settings.Rules {
				t.Errorf("the share of shard %d adds up to %+v, want the queue's rules", p.Shard, whole)
			}
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
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error { c.Settings.KeyOrder = task.KeyOrderNone; return nil })
		must(t, err)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", strictly)
		must(t, err)
		moving := Queue{Name: "a", Config: task.QueueConfig{Settings: task.Settings{KeyOrder: task.KeyOrderStrict}}, Parts: []Part{{Shard: 1, Slots: task.AllSlots}}}
		is(t, mayOrder(moving, task.QueueConfig{}), task.ErrUnavailable, "slots are moving")
		must(t, mayOrder(moving, moving.Config))
		must(t, mayOrder(Queue{Name: "a", Parts: moving.Parts}, task.QueueConfig{})) // other settings may change
	})
}

// While slots move, the shares of the shards never allow more than the whole queue, apart from rounding: a shard's share shrinks before another's grows.
func TestSharesWhileSlotsMove(t *testing.T) {
	const whole = 64 * 100
	for seed := range seeds(10) {
		inBubble(t, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			c := w.open(5)
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
				c.Settings.MaxLength, c.Settings.Rules.MaxRunning = whole, whole
				return nil
			})
			must(t, err)
			w.onCall = func(string, uint32) error {
				length, running := int64(0), 0
				for _, copied := range w.copies {
					if copied.Closed != task.AllSlots {
						length, running = length+copied.Settings.MaxLength, running+copied.Settings.Rules.MaxRunning
					}
				}
				if length > whole+5 || running > whole+5 {
					t.Errorf("seed %d: the shards' shares sum up to a length of %d with %d running, want at most %d", seed, length, running, whole)
				}
				return nil
			}
			for range 20 {
				shards := system.DataShards(5)
				rnd.Shuffle(5, func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
				_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: shards[:1+rnd.IntN(5)]})
				must(t, err)
			}
		})
	}
}
