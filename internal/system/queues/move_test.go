package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// One call to a shard fails, whichever it is, while a queue moves. The shard that it leaves is asked about its keys and
// messages as long as one is known there, and keeps its part as long as it has tasks. In the end the queue has left it.
func TestOneCallFails(t *testing.T) {
	const messages = task.MovedMessageWindow
	const keys, tasks, end = messages + 30*time.Minute, messages + 40*time.Minute, messages + 50*time.Minute
	for _, kind := range []string{"idempotency key", "unique key", "once key"} {
		calls := 1 // counted by the first move, in which none fails
		for fails := 0; fails <= calls; fails++ {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.open(2)
				q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
				must(t, err)
				from, to := q.Shard, 3-q.Shard
				began := time.Now()
				hold := func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					age := time.Since(began)
					w.full["a"] = age < tasks
					switch kind {
					case "idempotency key":
						w.keys[from] = store.TimeOf(began.Add(keys))
					case "unique key":
						w.unique = map[uint32]task.SlotSet{}
						if age < keys {
							w.unique[from] = 1
						}
					default: // its end is not known before, since its holder keeps extending it
						w.onces[onceSlots{from, task.AllSlots}] = store.TimeOf(began.Add(min(age+2*time.Minute, keys)))
					}
				}
				hold()
				n, which := 0, kind
				w.onCall = func(call string, shard uint32) error {
					if n++; n == fails {
						which = fmt.Sprintf("%s, call %d: %s of shard %d", kind, n, call, shard)
						return task.Unavailable(time.Second, "no answer")
					}
					return nil
				}
				_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{to}})
				if err != nil && !errors.Is(err, task.ErrUnavailable) {
					t.Errorf("%s: Spread = %v", which, err)
				}
				for age := time.Duration(0); age < end; age = time.Since(began) {
					if quiet := messages - age - time.Hour; age > 2*task.MovedRequestWindow && quiet > 0 {
						c.Dropped(true) // the system shard has no leader: a day of minutes would take too long
						pass(quiet)
						c = w.open(2)
					} else {
						pass(time.Minute)
					}
					hold()
					age = time.Since(began)
					q, err := c.Queues.Queue(bg, "default", "a")
					must(t, err)
					if asks := slices.Contains(q.Route(0, true), from); !asks && age < keys {
						t.Fatalf("%s: after %v, shard %d is no longer asked about keys: %+v", which, age, from, q.Parts)
					}
					if asks := slices.Contains(q.Route(0, false), from); !asks && age < task.MovedRequestWindow {
						t.Fatalf("%s: after %v, shard %d is no longer asked about requests: %+v", which, age, from, q.Parts)
					}
					if !q.In(from) && age < tasks {
						t.Fatalf("%s: after %v, the queue has left shard %d, which has tasks of it", which, age, from)
					}
				}
				if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || !slices.Equal(q.Shards(), []uint32{to}) || q.unfinished() ||
					w.copyOf(to, "a").Closed != 0 || w.copyOf(from, "a").Version != 0 {
					t.Errorf("%s: in the end the queue is %+v, %v", which, q, err)
				}
				calls = max(calls, n)
			})
		}
	}
}

// While a shard does not close the slots that leave it, the row does not open them elsewhere.
func TestSlotsOpenOnceTheyAreClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		w.onCall = func(call string, shard uint32) error {
			if call == "copy" && shard == q.Shard {
				return task.Unavailable(time.Second, "no answer")
			}
			return nil
		}
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{3 - q.Shard}})
		is(t, err, task.ErrUnavailable)
		if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || !q.moving() {
			t.Errorf("before its shard has closed the slots, the queue is %+v, %v", q.Parts, err)
		}
	})
}

// A part is tended by itself: what is known of one changes nothing in another.
func TestPartsAreForgottenOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(5)
		pass(3 * task.MovedMessageWindow)
		now := store.TimeOf(time.Now())
		old := now.Add(-2 * task.MovedMessageWindow)
		w.onces[onceSlots{3, 4}] = now.Add(time.Hour)
		was := Queue{Namespace: "default", Name: "a", Shard: 5, Config: task.QueueConfig{Version: 1, Settings: task.DefaultSettings()},
			Parts: []Part{
				{Shard: 1, Left: 1, LeftAt: old, Recent: true, LeftUntil: old},                    // to be forgotten
				{Shard: 2, Left: 2, LeftAt: now, Recent: true, LeftUntil: now.Add(2 * time.Hour)}, // too early
				{Shard: 3, Left: 4, LeftAt: old, Recent: true, LeftUntil: old},                    // has a once key
				{Shard: 4, Left: 8, LeftAt: old, Recent: true, LeftUntil: now.Add(time.Hour)},     // has an idempotency key
				{Shard: 5, Slots: task.AllSlots, Next: task.AllSlots},
				{Shard: 6, Left: 16, LeftAt: now.Add(-task.MovedRequestWindow), Recent: true}, // has messages
				{Shard: 7, Left: 32, Recent: true},                                            // is from a backup
			}}
		w.Put(queueKey("default", "a"), encodeQueue(was, false))
		got, _, err := c.Queues.forgetMoves(bg, was)
		must(t, err)
		want := append([]Part{{Shard: 1}}, was.Parts[1:]...)
		want[2].Recent, want[2].LeftUntil = false, now.Add(time.Hour)
		want[3].Recent = false
		want[5].Recent = false
		want[6].LeftAt = max(got.Parts[6].LeftAt, now)
		if fmt.Sprint(got.Parts) != fmt.Sprint(want) || got.Config.Version != 2 {
			t.Errorf("the parts are\n%+v, want\n%+v", got.Parts, want)
		}
		// A part that has tasks does not keep another from retiring.
		got.Parts = got.Parts[:5]
		got.Parts[1], got.Parts[2], got.Parts[3] = Part{Shard: 2, Retiring: now}, Part{Shard: 3, Retiring: now},
			Part{Shard: 4, Retiring: now}
		got.Config.Version++
		w.Put(queueKey("default", "a"), encodeQueue(got, false))
		w.full[copyKey(2, "a")] = true
		w.fails[4] = task.ErrUnavailable
		must(t, c.repair())
		early, err := c.Queues.retireParts(bg, got, now.Add(RetireEvery/2)) // by another leader than the one that marked the parts
		if must(t, err); fmt.Sprint(early.Shards()) != "[1 2 3 4 5]" {
			t.Errorf("half a minute after its parts were marked, the queue is in shards %v", early.Shards())
		}
		got, err = c.Queues.retireParts(bg, early, now.Add(RetireEvery))
		is(t, err, task.ErrUnavailable, "shard 4")
		if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || fmt.Sprint(q.Shards()) != "[1 2 4 5]" || q.part(1).Retiring == 0 {
			t.Errorf("the queue is in shards %v (%v), want all but 3, of which 1 begins to retire", q.Shards(), err)
		}
	})
}

// Several queues move at once, also while the leader has been idle, and another leader completes what a restored cluster has not begun.
func TestAllUnfinishedQueuesAreTended(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
		}
		pass(3*RetireEvery + 10*time.Second) // the leader waits for the next minute
		w.cut(1, task.ErrUnavailable)
		w.cut(2, task.ErrUnavailable)
		for _, name := range []string{"a", "b"} {
			q, err := c.Queues.Queue(bg, "default", name)
			must(t, err)
			_, err = c.Queues.Spread(bg, nobody, "default", name, SpreadTarget{Shards: []uint32{3 - q.Shard}})
			is(t, err, task.ErrUnavailable)
		}
		w.heal()
		pass(3 * movePause)
		for _, name := range []string{"a", "b"} {
			if q, err := c.Queues.Queue(bg, "default", name); err != nil || q.moving() {
				t.Errorf("seconds after its shards can be reached, queue %s is %+v, %v", name, q.Parts, err)
			}
		}
		q, err := c.Queues.Queue(bg, "default", "c")
		must(t, err)
		q.Parts = []Part{{Shard: q.Shard, Next: task.AllSlots}} // as Reconcile leaves it
		q.Config.Version++
		w.Put(queueKey("default", "c"), encodeQueue(q, false))
		c = w.open(2)
		pass(3 * movePause)
		if q, err := c.Queues.Queue(bg, "default", "c"); err != nil || q.moving() || w.copyOf(q.Shard, "c").Closed != 0 {
			t.Errorf("a queue that was reconciled is %+v, %v", q.Parts, err)
		}
		pass(task.MovedMessageWindow + time.Hour)
		for _, name := range []string{"a", "b", "c"} {
			if q, err := c.Queues.Queue(bg, "default", name); err != nil || q.unfinished() {
				t.Errorf("a day later, queue %s is %+v, %v", name, q.Parts, err)
			}
		}
	})
}

// A queue that is being deleted takes no step of a move.
func TestDroppingQueueDoesNotMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		row := encodeQueue(Queue{Namespace: "default", Name: "a", Config: task.QueueConfig{Version: 3}, Parts: []Part{{Shard: 1, Left: 1},
			{Shard: 2, Next: task.AllSlots}}}, true)
		w.Put(queueKey("default", "a"), row)
		must(t, c.Queues.advanceQueue(bg, system.Name{Namespace: "default", Name: "a"}, true))
		if w.calls != 0 || string(w.Get(queueKey("default", "a"))) != string(row) {
			t.Errorf("a queue that is being deleted was copied %d times, or changed", w.calls)
		}
	})
}

// While a queue's slots move, others may change the queue: the move goes on with what they made of it.
func TestChangeDuringMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		changed := false
		w.onCall = func(call string, _ uint32) error {
			if call != "keys" || changed {
				return nil
			}
			changed = true
			w.mu.Unlock()
			defer w.mu.Lock()
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(7))
			must(t, err)
			return nil
		}
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{3 - q.Shard}})
		if must(t, err); q.moving() || q.Config.Settings.MaxLength != 7 || !changed {
			t.Errorf("after a change in between, the queue is %+v", q)
		}
	})
}

// A queue with a strict order of keys may reserve the shard that it is in. No queue is created there from then on.
func TestOrderedQueueReservesItsShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", strictly)
		must(t, err)
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{q.Shard}, Own: true})
		if must(t, err); !q.Own || q.moving() {
			t.Errorf("reserving the shard of a queue with a strict order made it %+v", q)
		}
		w.most, c.Queues.most = 300, 300
		for i := range 100 { // the same leader knows at once
			other, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", fmt.Sprint("b", i), unchanged)
			if must(t, err); other.Shard == q.Shard {
				t.Fatalf("queue %s is in shard %d, which is dedicated to another queue", other.Name, other.Shard)
			}
		}
	})
}

// A queue goes to the shards with the fewest slots of all other queues.
func TestAllOtherQueuesCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 9
		c := w.open(4)
		for name, shards := range map[string][]uint32{"a": {1}, "b": {2}, "c": {3}, "d": {4}} {
			if name == "d" {
				shards = []uint32{1, 2, 3} // all but 4
			}
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
			_, err = c.Queues.Spread(bg, nobody, "default", name, SpreadTarget{Shards: shards})
			must(t, err)
		}
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "e", unchanged)
		must(t, err)
		q, err := c.Queues.Spread(bg, nobody, "default", "e", SpreadTarget{Parts: 2})
		if must(t, err); q.Shard != 4 && !slices.Contains(q.targets(), 4) {
			t.Errorf("the queue, which was in shard %d, was spread over shards %v, want the free shard 4 among them", q.Shard, q.targets())
		}
	})
}

// A queue has left a shard that hangs, and slots of another are leaving it. Meanwhile a queue that has left another shard is forgotten
// there, the slots of one move on between other shards though their call was interrupted, and what is due about every minute is done.
func TestMovesBesideAHangingShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		c.Queues.most = 10
		spread := func(ctx context.Context, name string, to uint32) error {
			_, err := c.Queues.Spread(ctx, nobody, "default", name, SpreadTarget{Shards: []uint32{to}})
			return err
		}
		read := func(name string) Queue {
			q, err := c.Queues.reread(bg, Queue{Namespace: "default", Name: name})
			must(t, err)
			return q
		}
		for name, shard := range map[string]uint32{"left": 1, "leaving": 1, "gone": 2, "moves": 2} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
			must(t, spread(bg, name, shard))
		}
		pass(2 * task.MovedMessageWindow)
		must(t, spread(bg, "left", 2))
		pass(3 * RetireEvery)
		must(t, spread(bg, "gone", 3))
		w.setHangs(1)
		if pass(task.MovedMessageWindow + 3*RetireEvery); read("gone").unfinished() || !read("left").unfinished() {
			t.Errorf("the parts are %+v and %+v, want one, and two of which one hangs", read("gone").Parts, read("left").Parts)
		}
		brief, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		if err := spread(brief, "leaving", 3); err == nil {
			t.Error("slots left a shard that hangs")
		}
		w.cut(3, task.Unavailable(time.Second, "no leader"))
		if err := spread(bg, "moves", 3); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("spread without a leader = %v", err)
		}
		pass(movePause)
		w.cut(3, nil)
		if pass(movePause + 10*time.Millisecond); read("moves").moving() {
			t.Errorf("slots still move between healthy shards: %+v", read("moves").Parts)
		}
		before := w.minutes()
		if pass(3 * RetireEvery); w.minutes() < before+2 {
			t.Errorf("what is due about every minute was done %d times in three", w.minutes()-before)
		}
	})
}

// While a shard takes its time for a step of a move, or of retiring, no other step is taken for the same queue.
func TestOneStepAtATime(t *testing.T) {
	for call, takes := range map[string]time.Duration{"keys": 10 * movePause, "unique keys": 3 * RetireEvery} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.interrupted(t)
			asked, most := 0, 0
			w.setOnCall(func(did string, _ uint32) error {
				if did == call {
					asked++
					most = max(most, asked)
					w.mu.Unlock()
					pass(takes)
					w.mu.Lock()
					asked--
				}
				return nil
			})
			pass(task.MovedMessageWindow + 10*RetireEvery)
			w.setOnCall(nil)
			if q, err := c.Queues.Queue(bg, "default", "a"); most != 1 || err != nil || q.moving() {
				t.Errorf("%d calls for %s at a time, want 1; then %+v, %v", most, call, q.Parts, err)
			}
		})
	}
}

// A move goes on although the leader no longer remembers it: the rows say that it is unfinished.
func TestForgottenMoveGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.interrupted(t)
		pass(2 * maxRepairPause) // the shards have their copies: only AdvanceMoves has Repair look again
		c.Queues.unfinished.In(c.Queues.shard, func(queues *map[system.Name]bool) { clear(*queues) })
		w.setOnCall(nil)
		pass(RetireEvery + 3*movePause)
		if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || q.moving() {
			t.Errorf("%+v, %v, want no slots that move", q.Parts, err)
		}
	})
}

// interrupted has the slots of the queue "a" begin to move. The move waits until onCall is replaced.
func (w *world) interrupted(t *testing.T) *control {
	c := w.open(2)
	q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
	must(t, err)
	w.setOnCall(func(call string, _ uint32) error {
		if call == "keys" {
			return task.Unavailable(time.Second, "no leader")
		}
		return nil
	})
	_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{3 - q.Shard}})
	is(t, err, task.ErrUnavailable)
	return c
}
