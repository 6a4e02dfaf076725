package queues

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// A target names existing shards, each once, up to the number of slots. The refusal names the field.
func TestTargetIsChecked(t *testing.T) {
	many := func(n int) []uint32 { return system.DataShards(n) }
	for _, c := range []struct {
		target SpreadTarget
		shards int
		field  string // "": it is allowed
	}{
		{SpreadTarget{Shards: []uint32{1, 4}}, 4, ""}, {SpreadTarget{Shards: []uint32{5}}, 4, "shards"},
		{SpreadTarget{Shards: []uint32{0}}, 4, "shards"}, {SpreadTarget{Shards: []uint32{2, 1, 2}}, 4, "shards"},
		{SpreadTarget{Shards: many(64)},
			70, ""}, {SpreadTarget{Shards: many(65)}, 70, "shards"},
		{SpreadTarget{Parts: 1}, 4, ""}, {SpreadTarget{Parts: 4}, 4, ""}, {SpreadTarget{Parts: 5}, 4, "parts"},
		{SpreadTarget{}, 4, "parts"}, {SpreadTarget{Parts: 64}, 70, ""}, {SpreadTarget{Parts: 65}, 70, "parts"},
		{SpreadTarget{Shards: []uint32{1}, Parts: 9}, 4, ""},
	} {
		err := c.target.check(c.shards)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || e != nil && (e.Field != c.field ||
			e.Code != task.CodeInvalidArgument) {
			t.Errorf("%+v of %d shards: %v, want a refusal of %q", c.target, c.shards, err, c.field)
		}
	}
}

// A queue goes first to the shards that will have it anyway, then to those with the fewest slots of others.
func TestFewestSlots(t *testing.T) {
	beside := otherQueues{slots: map[uint32]int{1: 64, 2: 10, 3: 9, 4: 30}, others: map[uint32]system.Name{3: {Name: "x"}},
		owners: owners{}}
	q := Queue{Name: "a", Shard: 1}
	for _, c := range []struct {
		target SpreadTarget
		want   string
	}{
		{SpreadTarget{Parts: 1}, "[1]"}, {SpreadTarget{Parts: 2}, "[1 3]"}, {SpreadTarget{Parts: 3}, "[1 3 2]"},
		{SpreadTarget{Parts: 3, Own: true}, "[1 2 4]"},
	} {
		if got, err := beside.fewest(q, 4, c.target); fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("%+v: %v, %v, want %s", c.target, got, err, c.want)
		}
	}
	must(t, beside.allow(q, SpreadTarget{Shards: []uint32{3}}))
	must(t, beside.allow(q, SpreadTarget{Shards: []uint32{1, 2}, Own: true}))
	is(t, beside.allow(q, SpreadTarget{Shards: []uint32{1, 3}, Own: true}), task.ErrWrongState, `queue "a": shard 3 can't be its own`,
		`"x"`)
	owned := owners{}
	owned.add(Queue{Name: "b", Own: true, Parts: []Part{{Shard: 1}, {Shard: 2, Next: 1}}})
	owned.add(Queue{Name: "c", Parts: []Part{{Shard: 3, Next: 1}}})
	if len(owned) != 1 || owned[2].Name != "b" {
		t.Errorf("own shards are %v, want the one that takes tasks", owned)
	}
}

// While slots move, a queue is not spread again. Only the reservation of its shards may be changed without a move.
func TestSpreadWhileSlotsMove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		home, away := q.Shard, q.Shard%3+1
		w.cut(home, task.ErrUnavailable)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{away}})
		is(t, err, task.ErrUnavailable)
		was := w.Get(queueKey("default", "a"))
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{home}})
		is(t, err, task.ErrUnavailable, `queue "a"`, "its slots are moving already")
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", strictly)
		is(t, err, task.ErrUnavailable, "its slots are moving")
		if string(w.Get(queueKey("default", "a"))) != string(was) {
			t.Error("a refused call changed the queue")
		}
		pass(2 * movePause)
		if said := w.log.Take(); !strings.Contains(said, "a queue's slots wait") || !strings.Contains(said, "queue=a") {
			t.Errorf("while a shard can't be reached, the log says %q", said)
		}
		pass(5 * movePause)
		w.cut(home, nil)
		w.log.Take()
		pass(2 * movePause) // the leader takes the next step by itself
		q, err = c.Queues.Queue(bg, "default", "a")
		if must(t, err); q.moving() || w.copyOf(away, "a").Closed != 0 || w.copyOf(home, "a").Closed != task.AllSlots {
			t.Errorf("when the shard can be reached again, the parts are %+v", q.Parts)
		}
		version, moved := q.Config.Version, q.Moved
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{away}, Own: true})
		if must(t, err); !q.Own || q.Config.Version != version+1 || q.Moved != moved {
			t.Errorf("reserving its shard has made the queue %+v", q)
		}
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{away}, Own: true})
		if must(t, err); q.Config.Version != version+1 {
			t.Errorf("reserving its shard again has made version %d", q.Config.Version)
		}
		if said := w.log.Take(); said != "" {
			t.Errorf("the log says %q", said)
		}
	})
}

// What is due once a minute is called each minute, whether slots move or not.
func TestMinutely(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		pass(2*movePause + time.Millisecond)
		began := w.minutes()
		pass(10 * (RetireEvery + movePause))
		if got := w.minutes() - began; began != 1 || got < 9 || got > 10 {
			t.Errorf("in ten minutes without moves, it was called %d times, after %d", got, began)
		}
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		w.cut(q.Shard, task.ErrUnavailable)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		is(t, err, task.ErrUnavailable)
		began = w.minutes()
		pass(10 * (RetireEvery + movePause))
		if got := w.minutes() - began; got < 9 || got > 11 {
			t.Errorf("in ten minutes in which slots wait, it was called %d times", got)
		}
	})
}

// Keys that left a shard are known there until the clocks of all shards have passed their end, and messages from before
// until they can't be repeated.
func TestForgettableKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		const keys = 30 * time.Hour
		at := store.TimeOf(time.Now())
		q := Queue{Namespace: "default", Name: "a", Parts: []Part{{Shard: 1, Left: 1, LeftAt: at, LeftUntil: at.Add(keys)},
			{Shard: 2, Left: 2, LeftAt: at}, {Shard: 3}, {Shard: 4, Left: 8}}}
		for _, o := range []struct {
			after time.Duration
			want  string
		}{
			{0, "[]"}, {task.MovedMessageWindow - 1000, "[]"}, {task.MovedMessageWindow, "[2]"}, {keys + task.ClockSlack - 1000, "[2]"},
			{keys + task.ClockSlack, "[1 2]"},
		} {
			got, later, err := c.Queues.forgettable(bg, q, at.Add(o.after))
			if fmt.Sprint(got) != o.want || len(later) > 0 || err != nil {
				t.Errorf("after %v: %v, later %v, %v, want %s", o.after, got, later, err, o.want)
			}
		}
		now := at.Add(2 * keys)
		for _, o := range []struct {
			once store.Time
			want string
		}{
			{now.Add(-task.ClockSlack), "[1 2] map[]"}, {now.Add(-task.ClockSlack) + 1, fmt.Sprintf("[1] map[2:%d]",
				now.Add(-task.ClockSlack)+1)},
		} {
			w.onces[onceSlots{2, 2}] = o.once
			got, later, err := c.Queues.forgettable(bg, q, now)
			if said := fmt.Sprint(got, " ", later); said != o.want || err != nil {
				t.Errorf("with a once key: %s, %v, want %s", said, err, o.want)
			}
		}
		w.cut(2, task.ErrUnavailable)
		_, _, err := c.Queues.forgettable(bg, q, now)
		is(t, err, task.ErrUnavailable)
	})
}

// A step is taken only with the row that it was planned for. A queue that is being deleted, or is gone, is left alone.
func TestStepsNeedTheirRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		change := func(q *Queue) { q.Own = true }
		got, err := c.Queues.revise(bg, q, change)
		if must(t, err); !got.Own || got.Config.Version != 2 {
			t.Errorf("a step has made the queue %+v", got)
		}
		name := q.FullName()
		for what, row := range map[string][]byte{"newer": nil, "being deleted": encodeQueue(q, true)} {
			if row != nil {
				w.Put(queueKey("default", "a"), row)
				if _, err := c.Queues.reread(bg, q); err == nil {
					t.Errorf("%s: the row was read again", what)
				}
				must(t, c.Queues.advanceQueue(bg, name, true))
			}
			if _, err := c.Queues.revise(bg, q, change); !errors.Is(err, errRevised) {
				t.Errorf("%s: a step returns %v", what, err)
			}
		}
		w.Round(func(tx *store.Tx) { tx.Delete(queueKey("default", "a")) })
		_, err = c.Queues.reread(bg, q)
		is(t, err, task.ErrNotFound, `"a"`)
		q.Config.Version = 0
		if _, err := c.Queues.revise(bg, q, change); !errors.Is(err, errRevised) || w.Get(queueKey("default", "a")) != nil {
			t.Errorf("gone: a step returns %v", err)
		}
		must(t, c.Queues.advanceQueue(bg, name, true))
		w.Damage(queueKey("default", "a"))
		for _, err := range []error{c.Queues.advanceQueue(bg, name, true), func() error { _, err := c.Queues.reread(bg, q); return err }(),
			func() error { _, err := c.Queues.revise(bg, q, change); return err }()} {
			if err == nil || !strings.Contains(err.Error(), "unknown form") {
				t.Errorf("the row is damaged: %v", err)
			}
		}
		if !slices.Equal(q.Shards(), []uint32{q.Shard}) {
			t.Errorf("the queue is in shards %v", q.Shards())
		}
	})
}

// Nodes learn of a deletion when it begins and when it is over. The next leader repeats it until the shard can be reached.
func TestDeletionIsNoted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		q, err := c.Queues.Place(bg, "default", "a")
		must(t, err)
		noted := func(after uint64) bool {
			must(t, c.shard.Learn(bg))
			return c.shard.Changes(after).Queues[q.FullName()]
		}
		w.cut(1, task.ErrUnavailable)
		at := w.State.Applied().Index
		is(t, c.Queues.DropQueue(bg, nobody, "default", "a"), task.ErrUnavailable)
		if !noted(at) {
			t.Error("nobody learns that a queue is being deleted")
		}
		c = w.open(1)
		pass(2 * repairPause)
		if w.Get(queueKey("default", "a")) == nil {
			t.Error("a queue was deleted while its shard could not be reached")
		}
		w.cut(1, nil)
		at = w.State.Applied().Index
		pass(maxRepairPause)
		if w.Get(queueKey("default", "a")) != nil || !noted(at) {
			t.Error("the next leader did not end a deletion, or nobody learns that it is over")
		}
	})
}
