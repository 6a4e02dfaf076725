package queues

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// The slots of a queue are always divided completely and evenly, no more of them move than necessary, and a shard that
// had a slot is asked about it until it has the slot again.
func TestShareOut(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		q := Queue{Shard: 1 + rnd.Uint32N(9)}
		for range 12 {
			shards := system.DataShards(9)
			rnd.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
			shards = shards[:1+rnd.IntN(9)]
			before := q
			moves := q.spreadOver(shards, store.Time(rnd.Int64N(1e6)))
			checkShares(t, before, q, shards)
			if moves != q.moving() {
				t.Fatalf("seed %d: spreadOver reports %v, but moving is %v", seed, moves, q.moving())
			}
			for i := range q.Parts {
				q.Parts[i].Slots = q.Parts[i].Next
			}
			if q.moving() || q.spreadOver(shards, 0) {
				t.Fatalf("seed %d: spreading over the same shards again moved slots", seed)
			}
		}
	}
}

func checkShares(t *testing.T, before, q Queue, shards []uint32) {
	t.Helper()
	var all task.SlotSet
	for _, p := range q.Parts {
		if all&p.Next != 0 || p.Slots&^p.Next != 0 || p.Left&p.Next != 0 {
			t.Fatalf("part %+v has wrong slots, in %+v", p, q.Parts)
		}
		all |= p.Next
		if n := p.Next.Len(); slices.Contains(shards, p.Shard) && (n < task.SlotCount/len(shards) || n > task.SlotCount/len(shards)+1) ||
			!slices.Contains(shards, p.Shard) && n > 0 {
			t.Fatalf("got %d slots in shard %d of shards %v, want an even share", n, p.Shard, shards)
		}
		had := task.SlotSet(0)
		if old := before.part(p.Shard); old != nil {
			had = old.Slots
		} else if before.In(p.Shard) {
			had = task.AllSlots
		}
		if p.Slots != had&p.Next || p.Left&(had&^p.Next) != had&^p.Next {
			t.Fatalf("shard %d had slots %064b and will have %064b, but its part is %+v", p.Shard, had, p.Next, p)
		}
		if had != 0 && before.Spread() && p.Next.Len() < had.Len() && (had&^p.Next).Len() != had.Len()-p.Next.Len() {
			t.Fatalf("shard %d loses %d slots to end up with %d fewer", p.Shard, (had &^ p.Next).Len(), had.Len()-p.Next.Len())
		}
	}
	if all != task.AllSlots {
		t.Fatalf("slots %064b belong to no shard", ^all)
	}
	for slot := range task.SlotCount {
		route := q.Route(slot, true)
		if owner := q.part(route[len(route)-1]); !owner.Next.Has(slot) {
			t.Fatalf("slot %d is routed to shards %v, which do not end with its owner", slot, route)
		}
		for _, p := range q.Parts {
			if p.Left.Has(slot) && !slices.Contains(route, p.Shard) {
				t.Fatalf("slot %d was in shard %d, which is missing from its route %v", slot, p.Shard, route)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(4)
		_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		is(t, err, task.ErrNotFound, `queue "a"`)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(100))
		must(t, err)
		home := q.Shard
		for _, bad := range [][]uint32{{0}, {5}, {1, 1}, make([]uint32, 65)} {
			_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: bad})
			is(t, err, task.ErrInvalidArgument, "shards")
		}
		for _, bad := range []int{-1, 0, 5} {
			_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: bad})
			is(t, err, task.ErrInvalidArgument, "parts", "between 1 and 4")
		}

		w.keys[home] = store.TimeOf(time.Now().Add(task.MovedMessageWindow + time.Hour))
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 3})
		must(t, err)
		if q.moving() || len(q.Parts) != 3 || q.part(home).Slots.Len() != 22 {
			t.Fatalf("after spreading over three shards the parts are %+v", q.Parts)
		}
		for _, p := range q.Parts {
			if copied := w.copyOf(p.Shard, "a"); copied.Closed != ^p.Slots || copied.Moved != 2 || copied.Settings.MaxLength != 100 ||
				!copied.Divided {
				t.Errorf("shard %d with slots %064b has the copy %+v", p.Shard, p.Slots, copied)
			}
		}
		slot := 63 // the last slots move first
		if route := q.Route(slot, false); len(route) != 2 || route[0] != home {
			t.Errorf("a new request is routed to %v, but shard %d had the slot", route, home)
		}

		pass(task.MovedRequestWindow / 2)
		if q, err = c.Queues.Queue(bg, "default", "a"); err != nil || len(q.Route(slot, false)) != 2 {
			t.Errorf("while requests can be repeated, they are routed to %v, %v", q.Route(slot, false), err)
		}
		pass(task.MovedRequestWindow + RetireEvery + movePause)
		q, err = c.Queues.Queue(bg, "default", "a")
		must(t, err)
		if plain, keyed := q.Route(slot, false), q.Route(slot, true); len(plain) != 1 || len(keyed) != 2 || keyed[0] != home {
			t.Errorf("when no request can be repeated, tasks are routed to %v and those with keys to %v", plain, keyed)
		}
		pass(task.MovedMessageWindow)
		if q, err = c.Queues.Queue(bg, "default", "a"); err != nil || len(q.Route(slot, true)) != 2 {
			t.Errorf("while a key lives, tasks with keys are routed to %v, %v", q.Route(slot, true), err)
		}
		pass(time.Hour)
		q, err = c.Queues.Queue(bg, "default", "a")
		must(t, err)
		if route := q.Route(slot, true); len(route) != 1 {
			t.Errorf("when all keys have ended, tasks with keys are routed to %v", route)
		}
		if len(c.Queues.unfinishedQueues(true)) > 0 {
			t.Errorf("queues %v are still unfinished", c.Queues.unfinishedQueues(true))
		}
	})
}

// A shard that gave up slots is asked about unique keys until all that are held there are released.
func TestSpreadAsksForUniqueKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		home, to := q.Shard, 3-q.Shard
		hold := func(slots task.SlotSet) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.unique = map[uint32]task.SlotSet{home: slots}
		}
		hold(1 << 7)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{to}})
		must(t, err)
		pass(task.MovedMessageWindow + time.Hour)
		q, err = c.Queues.Queue(bg, "default", "a")
		must(t, err)
		if plain, unique := q.Route(7, false), q.Route(7, true); len(plain) != 1 || !slices.Equal(unique, []uint32{home, to}) {
			t.Errorf("while a unique key is held, plain tasks are routed to %v and unique ones to %v", plain, unique)
		}
		version := q.Config.Version
		pass(time.Hour)
		if q, _ = c.Queues.Queue(bg, "default", "a"); q.Config.Version != version {
			t.Errorf("waiting for a unique key changed the queue %d times", q.Config.Version-version)
		}
		hold(0)
		pass(4 * RetireEvery)
		if q, _ = c.Queues.Queue(bg, "default", "a"); !slices.Equal(q.Route(7, true), []uint32{to}) || q.unfinished() {
			t.Errorf("when no unique key is held, the queue has the parts %+v", q.Parts)
		}
	})
}

// A shard is asked about a slot that it gave up until the slot's once keys have ended. Keys may be extended in the meantime.
func TestOnceKeysKeepAShardOnTheRoute(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(100))
		must(t, err)
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 2})
		must(t, err)
		left := onceSlots{q.Shard, q.part(q.Shard).Left}
		route := func() int {
			q, err := c.Queues.Queue(bg, "default", "a")
			must(t, err)
			return len(q.Route(63, true))
		}
		w.mu.Lock()
		w.onces[left] = store.TimeOf(time.Now().Add(task.MovedMessageWindow))
		w.mu.Unlock()
		pass(task.MovedMessageWindow - 30*time.Minute)
		w.mu.Lock()
		w.onces[left] = store.TimeOf(time.Now().Add(2 * time.Hour))
		w.mu.Unlock()
		if route() != 2 {
			t.Error("the old shard is not asked while it has once keys")
		}
		pass(2 * time.Hour)
		if route() != 2 {
			t.Error("the old shard is not asked at the end of its last once key")
		}
		pass(task.ClockSlack + RetireEvery + movePause)
		if route() != 1 {
			t.Error("the old shard is still asked after all once keys have ended")
		}
	})
}

// A queue leaves a shard once nothing of it is left there, unless it is used there in between.
func TestSpreadRetires(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		from, to := q.Shard, 3-q.Shard
		w.setFull("a", true)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{to}})
		must(t, err)
		pass(task.MovedMessageWindow + time.Hour)
		if q, _ := c.Queues.Queue(bg, "default", "a"); !slices.Equal(q.Shards(), []uint32{from, to}) ||
			w.copyOf(from, "a").Closed != task.AllSlots {
			t.Fatalf("with tasks in the shard that it leaves, the queue has the parts %+v", q.Parts)
		}
		w.mu.Lock()
		w.onDrop = func() { ensure(t, c, from, "a") }
		w.mu.Unlock()
		w.setFull("a", false)
		pass(RetireEvery)
		if q, _ := c.Queues.Queue(bg, "default", "a"); !q.In(from) || w.copyOf(from, "a").Version == 0 {
			t.Fatalf("after use during its departure the queue has the parts %+v, and the shard has %+v, want both to remain", q.Parts,
				w.copyOf(from, "a"))
		}
		pass(3 * RetireEvery)
		if q, _ := c.Queues.Queue(bg, "default", "a"); q.In(from) || w.copyOf(from, "a").Version != 0 {
			t.Errorf("nothing is left in the shard, but the queue has the parts %+v, and the shard has %+v", q.Parts, w.copyOf(from, "a"))
		}
		q, err = c.Queues.EnsureQueue(bg, from, "default", "a")
		if must(t, err); q.In(from) || w.copyOf(from, "a").Version != 0 {
			t.Errorf("a shard that the queue has left got it again: %+v", q.Parts)
		}
	})
}

// A queue that drains in a shard is changed while the shard is silent. The shard gets the change as soon as it can be reached, however long
// that takes.
func TestChangesReachAShardThatDrains(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		from := q.Shard
		w.setFull(copyKey(from, "a"), true)
		_, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{3 - from}})
		must(t, err)
		pass(task.MovedMessageWindow + 5*RetireEvery)
		w.cut(from, task.ErrUnavailable)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(7))
		is(t, err, task.ErrUnavailable)
		pass(5 * RetireEvery)
		w.cut(from, nil)
		if pass(2 * maxRepairPause); w.copyOf(from, "a").Settings.MaxLength != 7 {
			t.Errorf("the copy in a shard that can be reached again is %+v, want the maximum length 7", w.copyOf(from, "a"))
		}
		w.setFull(copyKey(from, "a"), false)
		pass(4 * RetireEvery)
		if q, err = c.Queues.Queue(bg, "default", "a"); err != nil || q.In(from) || w.copyOf(from, "a").Version != 0 {
			t.Errorf("without tasks in shard %d, the queue is %+v (%v)", from, q.Parts, err)
		}
	})
}

// Leaders change, shards do not answer, other callers change the queue. No two shards ever take tasks of one slot (the
// world checks each copy), and in the end each slot is taken by one shard.
func TestSpreadSaga(t *testing.T) {
	for seed := range seeds(15) {
		inBubble(t, func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			c := w.open(5)
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
			must(t, err)
			for range 60 {
				switch rnd.IntN(6) {
				case 0:
					s := w.newReplica()
					s.lead()
					c = s.control
				case 1:
					w.cut(1+rnd.Uint32N(5), task.Unavailable(time.Second, "no answer"))
				case 2:
					w.heal()
				case 3:
					_, _ = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(rnd.Int64N(1000)))
				case 4:
					pass(time.Duration(rnd.IntN(400)) * time.Second)
				default:
					shards := system.DataShards(5)
					rnd.Shuffle(5, func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
					_, _ = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: shards[:1+rnd.IntN(5)]})
				}
			}
			w.heal()
			pass(task.MovedMessageWindow + time.Hour)
			checkSpread(t, w, c, seed)
		})
	}
}

func checkSpread(t *testing.T, w *world, c *control, seed uint64) {
	t.Helper()
	q, err := c.Queues.Queue(bg, "default", "a")
	must(t, err)
	if q.moving() || q.unfinished() {
		t.Errorf("seed %d: a day later the slots are still moving: %+v", seed, q.Parts)
	}
	var taken task.SlotSet
	for _, shard := range q.Shards() {
		copied := w.copyOf(shard, "a")
		if copied.Version == 0 || taken&^copied.Closed != 0 {
			t.Errorf("seed %d: shard %d has the copy %+v, which is missing or takes another shard's slots", seed, shard, copied)
		}
		taken |= ^copied.Closed
	}
	if taken != task.AllSlots {
		t.Errorf("seed %d: no shard takes slots %064b: %+v", seed, ^taken, q.Parts)
	}
}

func (w *world) setFull(name string, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full[name] = full
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.fails)
}

// A queue with tasks that would be refused in several shards is not spread over several, unless it is forced to. A dry run changes nothing.
func TestSpreadChecksKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		before, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		spread := func(target SpreadTarget) (Queue, error) { return c.Queues.Spread(bg, nobody, "default", "a", target) }
		dry, err := spread(SpreadTarget{Parts: 2, DryRun: true})
		must(t, err)
		if now, next := dry.SlotsIn(before.Shard); now != 32 || next != 32 || len(dry.Parts) != 2 {
			t.Errorf("a dry run returns the parts %+v", dry.Parts)
		}
		if q, err := c.Queues.Queue(bg, "default", "a"); err != nil || q.Spread() || q.Config.Version != before.Config.Version {
			t.Errorf("a dry run has changed the queue: %+v, %v", q, err)
		}
		w.split = true
		for _, target := range []SpreadTarget{{Parts: 2}, {Parts: 2, DryRun: true}} {
			if _, err = spread(target); !errors.Is(err, task.ErrWrongState) {
				t.Errorf("a queue whose tasks have keys in different slots, %+v: %v", target, err)
			}
		}
		if _, err := spread(SpreadTarget{Shards: []uint32{before.Shard%3 + 1}}); err != nil {
			t.Errorf("a move to one shard: %v", err)
		}
		if _, err := spread(SpreadTarget{Parts: 2, Force: true}); err != nil {
			t.Errorf("a forced spread: %v", err)
		}
		if _, err := spread(SpreadTarget{Parts: 3}); err != nil { // what is there was refused or forced before
			t.Errorf("a spread of a queue in two shards: %v", err)
		}
	})
}

// Each shard's copy has the slots that others had, as long as keys may be known there.
func TestCopiesHaveSlotsElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		home, to := q.Shard, 3-q.Shard
		move := func(shards ...uint32) {
			_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: shards})
			must(t, err)
		}
		expect := func(what string, here, there task.SlotSet) {
			t.Helper()
			if a, b := w.copyOf(home, "a").Elsewhere, w.copyOf(to, "a").Elsewhere; a != here || b != there {
				t.Errorf("%s: %b and %b are elsewhere, want %b and %b", what, a, b, here, there)
			}
		}
		move(home, to)
		q, err = c.Queues.Queue(bg, "default", "a")
		must(t, err)
		gone := q.part(to).Slots
		expect("after a move", 0, gone)
		move(home)
		expect("after it came back", gone, 0)
		pass(task.MovedMessageWindow + time.Hour)
		expect("after the moves are forgotten", 0, 0)
	})
}

// The keys of a task must be in one slot, unless the queue is in one shard, and any other that may know them knows all of them.
func TestQueueKeeps(t *testing.T) {
	const a, b, other = task.SlotSet(1 << 1), task.SlotSet(1 << 2), task.SlotSet(1 << 3)
	for name, c := range map[string]struct {
		parts []Part
		want  bool // for slots a and b
	}{
		"never spread":                      {nil, true},
		"in two shards":                     {[]Part{{Shard: 1, Next: a}, {Shard: 2, Next: ^a}}, false},
		"in two shards, both slots in one":  {[]Part{{Shard: 1, Next: a | b}, {Shard: 2, Next: ^(a | b)}}, false},
		"on its way to one":                 {[]Part{{Shard: 1, Slots: a, Next: task.AllSlots}, {Shard: 2, Slots: ^a, Left: ^a}}, false},
		"moved as a whole":                  {[]Part{{Shard: 1, Left: task.AllSlots}, {Shard: 2, Next: task.AllSlots}}, true},
		"with another slot left":            {[]Part{{Shard: 1, Left: other}, {Shard: 2, Next: task.AllSlots}}, true},
		"with both slots left":              {[]Part{{Shard: 1, Left: a | b}, {Shard: 2, Next: task.AllSlots}}, true},
		"with the first left, and not both": {[]Part{{Shard: 1, Left: a}, {Shard: 2, Next: task.AllSlots}}, false},
		"with the last left, and not both":  {[]Part{{Shard: 1, Left: b}, {Shard: 2, Next: task.AllSlots}}, false},
	} {
		q := Queue{Shard: 1, Parts: c.parts}
		if got := q.Keeps(a | b); got != c.want {
			t.Errorf("a queue %s keeps keys of two slots: %t, want %t", name, got, c.want)
		}
		if !q.Keeps(a) || !q.Keeps(0) {
			t.Errorf("a queue %s does not keep keys of one slot", name)
		}
	}
	q := Queue{Parts: []Part{{Shard: 1, Next: a, Left: b}, {Shard: 2, Next: b}, {Shard: 3, Left: a}, {Shard: 4, Next: other}}}
	for set, want := range map[task.SlotSet][]uint32{a: {1, 3}, b: {1, 2}, a | b: {1, 2, 3}, other: {4}} {
		if got := q.Knows(set); !slices.Equal(got, want) {
			t.Errorf("keys of slots %b may be known in %v, want %v", set, got, want)
		}
	}
}
