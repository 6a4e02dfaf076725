package queues

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// changesOfQueues are changes of a queue's settings, of each kind that has an event of its own.
var changesOfQueues = []struct {
	name   string
	change func(*task.QueueConfig) error
}{
	{"pause", func(c *task.QueueConfig) error { c.Paused = true; return nil }},
	{"pause of a type", func(c *task.QueueConfig) error { c.Holds = []task.Hold{{Type: "t"}}; return nil }},
	{"length", setLength(64)},
	{"resume of a type", func(c *task.QueueConfig) error { c.Holds = nil; return nil }},
	{"resume", func(c *task.QueueConfig) error { c.Paused = false; return nil }},
}

// spreadOver3 creates queue "a" in three shards, with nothing unfinished, and returns it.
func (w *world) spreadOver3(t *testing.T) (*control, Queue) {
	t.Helper()
	return w.spreadOver(t, 3)
}

// spreadOver creates queue "a" in several shards, with nothing unfinished, and returns it.
func (w *world) spreadOver(t *testing.T, shards int) (*control, Queue) {
	t.Helper()
	c := w.open(shards)
	_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
	must(t, err)
	q, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: shards})
	must(t, err)
	pass(3 * time.Hour)
	return c, q
}

// mustHave checks that shards have the current version of queue "a".
func (w *world) mustHave(t *testing.T, c *control, when string, shards ...uint32) {
	t.Helper()
	q, err := c.Queues.Queue(bg, "default", "a")
	must(t, err)
	for _, shard := range shards {
		if got := w.copyOf(shard, "a"); !got.Equal(q.copyFor(shard)) || got.Version != q.Config.Version {
			t.Errorf("%s: shard %d has %+v, want %+v", when, shard, got, q.copyFor(shard))
		}
	}
}

// A change of a queue reaches every shard that answers at once, whichever of the others don't, and the error names
// these. They get it when they are back, although nobody repeats the call, and also if another node leads the system
// shard by then.
func TestChangesReachAllShards(t *testing.T) {
	for away := range uint32(3) {
		for _, elections := range []bool{false, true} {
			inBubble(t, func(t *testing.T, w *world) {
				c, q := w.spreadOver3(t)
				shards := q.Shards()
				lost := shards[away]
				for _, one := range changesOfQueues {
					when := fmt.Sprintf("%s, without shard %d", one.name, lost)
					w.cut(lost, task.ErrUnavailable)
					_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", one.change)
					is(t, err, task.ErrUnavailable, fmt.Sprintf(`queue "a": the change is made, but shard %d of the 3 that hold the `+
						`queue has not confirmed it yet`, lost))
					for _, shard := range shards {
						if shard != lost {
							w.mustHave(t, c, when, shard)
						}
					}
					pass(time.Hour)
					if elections {
						c = w.open(3)
						pass(maxRepairPause)
					}
					w.cut(lost, nil)
					pass(2 * maxRepairPause)
					w.mustHave(t, c, when+", which is back", shards...)
				}
				w.mu.Lock()
				before := w.calls
				w.mu.Unlock()
				pass(time.Hour)
				w.mu.Lock()
				if w.calls != before {
					t.Errorf("all shards have their copies, and %d more were sent in an hour", w.calls-before)
				}
				w.mu.Unlock()
			})
		}
	}
}

// Two shards that are away are both named. A caller that leaves gets its own error.
func TestUnconfirmedShardsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		shards := q.Shards()
		w.cut(shards[0], task.ErrUnavailable)
		w.cut(shards[2], task.Unavailable(time.Second, "no leader is known"))
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(64))
		is(t, err, task.ErrUnavailable, fmt.Sprintf("shards %d, %d of the 3 that hold the queue have not confirmed it yet, and "+
			"will get it: ",
			shards[0], shards[2]))
		w.mustHave(t, c, "two shards are away", shards[1])
		w.cut(shards[0], task.Invalid("queue", "no"))
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(65))
		is(t, err, task.ErrInvalidArgument)
		w.heal()
		w.mu.Lock()
		w.slow = map[uint32]time.Duration{shards[1]: time.Minute}
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began := time.Now()
		if _, err = c.Queues.PutQueue(ctx, auditlog.Action{}, "default", "a", setLength(66)); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("a caller that waits for a second got %v after %v", err, time.Since(began))
		}
		w.mustHave(t, c, "a shard hangs", shards[0], shards[2])
		w.mu.Lock()
		w.slow = nil
		w.mu.Unlock()
		pass(2 * time.Minute)
		w.mustHave(t, c, "no shard hangs any more", shards...)
	})
}

// A shard that hangs is named two seconds after the others have confirmed a change, and gets it later. A queue of one
// shard has no other to go by.
func TestHangingShardIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		shards := q.Shards()
		w.mu.Lock()
		w.slow = map[uint32]time.Duration{shards[0]: time.Minute, shards[1]: time.Second}
		w.mu.Unlock()
		began := time.Now()
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(64))
		is(t, err, task.ErrUnavailable, fmt.Sprintf("shard %d of the 3 that hold the queue has not confirmed it yet, and will get it",
			shards[0]))
		if took := time.Since(began); took != time.Second+lateTime {
			t.Errorf("the answer took %v, want %v after the shard that needs a second", took, lateTime)
		}
		w.mustHave(t, c, "a shard hangs", shards[1], shards[2])
		pass(5 * time.Minute)
		w.mu.Lock()
		w.slow = nil
		w.mu.Unlock()
		pass(2 * time.Minute)
		w.mustHave(t, c, "no shard hangs any more", shards...)
		one, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "one", unchanged)
		must(t, err)
		w.mu.Lock()
		w.slow = map[uint32]time.Duration{one.Shard: 10 * time.Second}
		w.mu.Unlock()
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "one", setLength(64))
		must(t, err)
	})
}

// The deletion of a spread queue is answered in time though a shard hangs, with the shard's name, and completed when the shard is back.
// That of a queue in one shard waits for it.
func TestDeletionBesideAHangingShard(t *testing.T) {
	for hung := range 3 {
		inBubble(t, func(t *testing.T, w *world) {
			c, q := w.spreadOver3(t)
			one, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "one", unchanged)
			must(t, err)
			w.setHangs(q.Shards()[hung])
			began := time.Now()
			err = c.Queues.DropQueue(bg, nobody, "default", "a")
			is(t, err, task.ErrUnavailable, fmt.Sprintf(`queue "a": it is being deleted, but shard %d of the 3 that hold it has not `+
				`answered in time`, q.Shards()[hung]))
			if took := time.Since(began); took != lateTime {
				t.Errorf("the answer took %v, want %v", took, lateTime)
			}
			pass(5 * time.Minute)
			w.setHangs(0)
			pass(copyTime + maxRepairPause)
			if _, err := c.Queues.Queue(bg, "default", "a"); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("after its shard is back, the deleted queue gives %v", err)
			}
			w.setHangs(one.Shard)
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			began = time.Now()
			if err := c.Queues.DropQueue(ctx, nobody, "default", "one"); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != time.Minute {
				t.Errorf("a queue in one shard that hangs: %v after %v", err, time.Since(began))
			}
		})
	}
}

// All shards get a change at once: those that hang keep none of the others waiting, regardless of their number.
func TestHangingShardsKeepNoneWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver(t, 64)
		hanging, others := q.Shards()[:63], q.Shards()[63:]
		w.mu.Lock()
		w.slow = map[uint32]time.Duration{}
		for _, shard := range hanging {
			w.slow[shard] = time.Hour
		}
		w.mu.Unlock()
		began := time.Now()
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(64))
		is(t, err, task.ErrUnavailable, "of the 64 that hold the queue have not confirmed it yet, and will get it")
		if took := time.Since(began); took != lateTime {
			t.Errorf("the answer took %v, want %v", took, lateTime)
		}
		w.mustHave(t, c, "all other shards hang", others...)
	})
}

// A move that is interrupted because shards are away goes on when they are back, whatever became meanwhile of an
// attempt to delete the queue: it failed, and the queue was used again; or it failed, and a shard refused its repeat;
// or the leader itself finds that out.
func TestMovesSurviveDeletions(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, c *control, shard uint32){
		"the queue is used": func(t *testing.T, c *control, shard uint32) {
			_, err := c.Queues.EnsureQueue(bg, shard, "default", "a")
			must(t, err)
		},
		"the deletion is repeated": func(t *testing.T, c *control, _ uint32) {
			is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState)
		},
		"nothing": func(*testing.T, *control, uint32) {},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(2)
			q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
			must(t, err)
			from, to := q.Shard, 3-q.Shard
			w.setFull("a", true) // it has tasks
			w.cut(to, task.ErrUnavailable)
			w.cut(from, task.ErrUnavailable)
			_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{to}})
			is(t, err, task.ErrUnavailable)
			pass(5 * movePause)
			is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
			pass(5 * movePause)
			w.heal()
			after(t, c, from)
			pass(RetireEvery + 5*movePause)
			q, err = c.Queues.Queue(bg, "default", "a")
			must(t, err)
			if now, next := q.SlotsIn(to); q.moving() || now != task.SlotCount || next != task.SlotCount {
				t.Errorf("%s: a minute after the shards are back, the slots still move: %+v", name, q.Parts)
			}
			w.mustHave(t, c, name, from, to)
		})
	}
}

// A deletion that could not reach a shard is completed by the leader when the shard is back.
func TestDeletionsAreCompleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		last := q.Shards()[2]
		w.cut(last, task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
		tries := 0
		w.setOnCall(func(call string, shard uint32) error {
			if call == "drop" && shard == last {
				tries++
			}
			return nil
		})
		pass(time.Hour)
		w.setOnCall(nil)
		if most := int(time.Hour/maxRepairPause) + 10; tries < 10 || tries > most {
			t.Errorf("the leader tried to complete a deletion %d times in an hour, want 10 to %d", tries, most)
		}
		w.cut(last, nil)
		pass(2 * maxRepairPause)
		_, err := c.Queues.Queue(bg, "default", "a")
		is(t, err, task.ErrNotFound)
		if len(w.copies) != 0 {
			t.Errorf("the queue is deleted, and shards have %+v", w.copies)
		}
	})
}

// If one shard refuses a deletion, those that had dropped their copies get them again.
func TestRefusedDeletionsRestoreCopies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		shards := q.Shards()
		w.setFull(copyKey(shards[2], "a"), true)
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState)
		if got := w.copyOf(shards[0], "a"); got.Version != 0 {
			t.Errorf("the first shard was asked to drop its copy, and has %+v", got)
		}
		pass(time.Second)
		w.mustHave(t, c, "a shard refused", shards...)
	})
}

// A queue is used in a shard that has dropped it, and stays. The other shards, which drop it afterwards, get their copies again within
// seconds, though nobody uses it there: until then nobody knows what they may use of its limits.
func TestShardsThatDroppedAQueueThatStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		w.mu.Lock()
		w.onDrop = func() { ensure(t, c, q.Shards()[0], "a") }
		w.mu.Unlock()
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrWrongState, "used meanwhile")
		pass(2 * repairPause)
		w.mustHave(t, c, "the queue was used in the first shard", q.Shards()...)
	})
}

// However many copies and deletions wait for a shard that hangs, Repair completes those of another shard, again and again. When the shard
// is back, it gets what it lacks.
func TestRepairBesideAHangingShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		c.Queues.most = 100
		in := map[uint32][]string{}
		for i := 0; len(in[1]) < 10 || len(in[2]) < 4; i++ {
			q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", fmt.Sprint("q", i), unchanged)
			must(t, err)
			in[q.Shard] = append(in[q.Shard], q.Name)
		}
		w.setHangs(1)
		brief, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		kept := in[1][0]
		if _, err := c.Queues.PutQueue(brief, auditlog.Action{}, "default", kept, setLength(64)); err == nil {
			t.Error("a shard that hangs has confirmed a copy")
		}
		for _, name := range in[1][1:] {
			hung, cancel := context.WithTimeout(bg, time.Millisecond)
			if err := c.Queues.DropQueue(hung, nobody, "default", name); err == nil {
				t.Error("a shard that hangs has dropped a copy")
			}
			cancel()
		}
		pass(time.Second)
		for i, name := range in[2][1:4] {
			w.cut(2, task.ErrUnavailable)
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", in[2][0], setLength(int64(64+i)))
			is(t, err, task.ErrUnavailable)
			is(t, c.Queues.DropQueue(bg, nobody, "default", name), task.ErrUnavailable)
			pass(time.Second)
			w.cut(2, nil)
			pass(2 * time.Second) // longer than the pause after a second of failures
			if got := w.copyOf(2, in[2][0]).Settings.MaxLength; got != int64(64+i) {
				t.Errorf("round %d: a healthy shard has a copy with length %d, want %d", i, got, 64+i)
			}
			_, err = c.Queues.Queue(bg, "default", name)
			is(t, err, task.ErrNotFound)
		}
		w.setHangs(0)
		pass(copyTime + maxRepairPause)
		if got := w.copyOf(1, kept).Settings.MaxLength; got != 64 {
			t.Errorf("a shard that is back has a copy with length %d, want 64", got)
		}
		for _, name := range in[1][1:] {
			_, err := c.Queues.Queue(bg, "default", name)
			is(t, err, task.ErrNotFound)
		}
	})
}
