package queues

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// The copy of a queue whose slots have moved says that its limits are divided, and has them whole; its rate is that of the shard's slots.
func TestCopyOfPart(t *testing.T) {
	settings := task.Settings{MaxLength: 100, Rules: task.Rules{MaxRunning: 9, Rate: task.Rate{Limit: 5, Period: time.Second, Burst: 64}}}
	for _, slots := range []task.SlotSet{0, 1, 3, task.AllSlots} {
		for moved, limits := range map[uint64]task.Quotas{0: {}, 7: {Backlog: 100, Running: 9}} {
			q := Queue{Moved: moved, Parts: []Part{{Shard: 1, Slots: slots}, {Shard: 2, Next: 1}},
				Config: task.QueueConfig{Settings: settings}}
			want := settings
			want.Rate = settings.Rate.BySlots(slots.Len())
			if got := q.copyFor(1); got.Settings.Rules != want.Rules || got.Settings.MaxLength != 100 || got.Closed != ^slots ||
				got.Moved != moved || got.Divided != (moved != 0) {
				t.Errorf("the copy of a shard with %d slots of a queue moved in version %d is %+v", slots.Len(), moved, got)
			}
			if q.Limits() != limits || q.Drains(1) != (slots == 0) || q.Drains(2) || q.Drains(3) ||
				q.Config.Settings.Rate != settings.Rate {
				t.Errorf("a queue moved in version %d divides %+v, and drains in shards 1 to 3: %t, %t, %t", moved, q.Limits(), q.Drains(1),
					q.Drains(2), q.Drains(3))
			}
		}
	}
}

// Slots are counted where they are and where they are going.
func TestSlotsIn(t *testing.T) {
	whole := Queue{Shard: 2}
	parts := Queue{Shard: 2, Parts: []Part{{Shard: 1, Slots: 1, Next: 7}, {Shard: 3, Slots: 3}}}
	for _, c := range []struct {
		q         Queue
		shard     uint32
		now, next int
		in        bool
	}{
		{whole, 2, 64, 64, true}, {whole, 1, 0, 0, false}, {parts, 1, 1, 3, true}, {parts, 3, 2, 0, true}, {parts, 2, 0, 0, false},
	} {
		if now, next := c.q.SlotsIn(c.shard); now != c.now || next != c.next || c.q.In(c.shard) != c.in {
			t.Errorf("shard %d has %d slots, and will have %d; in: %t", c.shard, now, next, c.q.In(c.shard))
		}
	}
	if got := fmt.Sprint(whole.targets(), parts.targets()); got != "[2] [1]" {
		t.Errorf("new tasks go to shards %s", got)
	}
	if !parts.NewerThan(Queue{Config: task.QueueConfig{}}) == false || parts.NewerThan(parts) {
		t.Error("a queue is newer than itself, or than one of the same version")
	}
	newer := Queue{Config: task.QueueConfig{Version: 1}}
	if !newer.NewerThan(parts) || parts.NewerThan(newer) {
		t.Error("the order of versions is wrong")
	}
}

// A task goes to the shard that will take its slot, one without a slot to any that takes some.
func TestHome(t *testing.T) {
	keyed := &task.Spec{Key: "k"}
	slot, _ := keyed.Slot()
	mine := task.SlotSet(1) << slot
	if got := (Queue{Shard: 5}).Home(keyed); got != 5 {
		t.Errorf("a task of a queue that was never spread goes to shard %d", got)
	}
	for range 100 {
		q := Queue{Shard: 5, Parts: []Part{{Shard: 1, Slots: mine, Next: ^mine}, {Shard: 2, Slots: ^mine, Next: mine}}}
		if got := q.Home(keyed); got != 2 {
			t.Fatalf("a task goes to shard %d, which will not take its slot", got)
		}
	}
	seen := map[uint32]bool{}
	for range 500 {
		seen[Queue{Shard: 5, Parts: []Part{{Shard: 1, Next: 1<<32 - 1}, {Shard: 2, Next: ^task.SlotSet(1<<32 - 1)},
			{Shard: 3}}}.Home(&task.Spec{})] = true
	}
	if len(seen) != 2 || !seen[1] || !seen[2] {
		t.Errorf("tasks without slots go to shards %v, want 1 and 2", seen)
	}
}

// The shard that has the most slots keeps one more if they don't divide evenly.
func TestRemainderGoesToTheLargest(t *testing.T) {
	q := Queue{Shard: 1, Parts: []Part{{Shard: 1, Slots: 1<<20 - 1, Next: 1<<20 - 1}, {Shard: 2, Slots: ^task.SlotSet(1<<20 - 1),
		Next: ^task.SlotSet(1<<20 - 1)}}}
	q.spreadOver([]uint32{3, 1, 2}, 9)
	for shard, want := range map[uint32]int{1: 21, 2: 22, 3: 21} {
		if _, next := q.SlotsIn(shard); next != want {
			t.Errorf("shard %d will have %d slots, want %d", shard, next, want)
		}
	}
	if p := q.part(1); p.Left != 0 || p.LeftAt != 0 || p.Recent {
		t.Errorf("a shard that lost no slot is %+v", p)
	}
	if p := q.part(2); p.Left.Len() != 22 || p.LeftAt != 9 || !p.Recent {
		t.Errorf("a shard that lost 22 slots is %+v", p)
	}
}

// A shard gets no queue before it knows its share of the namespace. The call may be repeated.
func TestShareBeforeCopy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		w.denyShare(1, task.ErrUnavailable)
		is(t, placeErr(c, "a"), task.ErrUnavailable)
		_, err := c.Queues.EnsureQueue(bg, 1, "default", "a")
		is(t, err, task.ErrUnavailable)
		next := w.newReplica()
		next.lead()
		pass(maxRepairPause)
		w.mu.Lock()
		if len(w.copies) > 0 || len(w.shared) < 3 {
			t.Errorf("before it knew its share, the shard got %+v, and was to know it %d times", w.copies, len(w.shared))
		}
		w.mu.Unlock()
		w.denyShare(1, nil)
		pass(maxRepairPause)
		if w.copyOf(1, "a").Version != 1 {
			t.Error("the shard knows its share, and has no copy")
		}
	})
}

// A copy that is on its way while its queue is deleted leaves nothing in the shard, whether it arrives after the shard
// has dropped its copy or after the row is gone. If the queue is kept or created again, its shards have its copies in
// the end.
func TestLateCopyOfADeletedQueue(t *testing.T) {
	for _, c := range []struct {
		what   string
		drops  time.Duration // how long the first shard's answer to the deletion takes
		undone time.Duration // how long the removal of the late copy takes
		full   bool          // another shard has tasks of the queue: it is kept
		again  uint32        // the shard in which it is created again at once; 0: it isn't
		hangs  time.Duration // how long the other shard takes for the deletion; the copies come after Repair has taken part in it
	}{
		{"the row is gone", 0, 0, false, 0, 0},
		{"the deletion goes on", 5 * time.Second, 0, false, 0, 0},
		{"the deletion goes on in the other shard", 0, 0, false, 0, 10 * time.Second},
		{"the queue is kept", 5 * time.Second, 0, true, 0, 0},
		{"the queue is kept before the late copy is removed", 5 * time.Second, 20 * time.Second, true, 0, 0},
		{"the queue is new", 0, 0, false, 1, 0},
		{"the queue is new, in another shard", 0, 0, false, 2, 0},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			name := "a"
			for home("default", name, []uint32{1, 2}) != max(c.again, 1) {
				name += "a"
			}
			control := w.open(2)
			_, err := control.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
			_, err = control.Queues.Spread(bg, nobody, "default", name, SpreadTarget{Shards: []uint32{1, 2}})
			must(t, err)
			w.mu.Lock()
			w.slow = map[uint32]time.Duration{1: 1500 * time.Millisecond} // less than lateTime: so the copy arrives
			if c.hangs > 0 {
				w.slow = map[uint32]time.Duration{1: 3 * time.Second, 2: 2500 * time.Millisecond}
			}
			w.full[copyKey(2, name)] = c.full
			w.onDrop = func() { pass(c.drops) }
			w.overlaps = c.again == 2 // until the late copy is removed
			drops := 0
			w.onCall = func(call string, shard uint32) error {
				if call == "drop" && shard == 2 && c.hangs > 0 {
					w.mu.Unlock()
					pass(c.hangs)
					w.mu.Lock()
				}
				if call == "drop" && shard == 1 {
					if drops++; drops == 2 {
						w.mu.Unlock()
						pass(c.undone)
						w.mu.Lock()
					}
				}
				return nil
			}
			w.mu.Unlock()
			var changing sync.WaitGroup
			changing.Go(func() { _, _ = control.Queues.PutQueue(bg, auditlog.Action{}, "default", name, setLength(64)) })
			pass(time.Second)
			if err := control.Queues.DropQueue(bg, nobody, "default", name); (err != nil) != c.full {
				t.Errorf("%s: DropQueue = %v", c.what, err)
			}
			if c.again != 0 {
				_, err := control.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
				must(t, err)
			}
			changing.Wait()
			pass(25 * time.Second) // the removal of the late copy takes 20 of them
			q, err := control.Queues.Queue(bg, "default", name)
			if exists := err == nil; exists != (c.full || c.again != 0) {
				t.Fatalf("%s: Queue = %+v, %v", c.what, q, err)
			}
			for _, shard := range []uint32{1, 2} {
				want := uint64(0)
				if err == nil && q.In(shard) {
					want = q.Config.Version
				}
				if got := w.copyOf(shard, name).Version; got != want {
					t.Errorf("%s: shard %d has version %d of the queue, want %d", c.what, shard, got, want)
				}
			}
		})
	}
}

// A copy that was sent while its queue was being deleted is removed. If the queue is kept before that, and gets its copies again, so does
// the shard from which one was removed then.
func TestKeptWhileALateCopyIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c, q := w.spreadOver3(t)
		must(t, w.leader.Update(bg, func(tx *store.Tx) error { tx.Set(queueKey("default", "a"), encodeDropping(q, nobody)); return nil }))
		drops := 0
		w.mu.Lock()
		w.onCall = func(call string, _ uint32) error {
			if call == "drop" {
				w.mu.Unlock()
				must(t, c.Queues.keep(bg, q))
				pass(2 * maxRepairPause)
				w.mustHave(t, c, "the queue is kept", q.Shards()...)
				w.mu.Lock()
				drops++
			}
			return nil
		}
		w.mu.Unlock()
		must(t, c.Queues.copies.sendTo(bg, q, q.Shards()[0]))
		pass(2 * maxRepairPause)
		if drops != 1 {
			t.Errorf("the late copy was removed %d times", drops)
		}
		w.mustHave(t, c, "the late copy was removed", q.Shards()...)
	})
}

// A queue that another shard has to use is created if need be. A shard without a part of it gets no copy.
func TestEnsureQueueForAnotherShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.EnsureQueue(bg, 1, "default", "a")
		must(t, err)
		other := 3 - q.Shard
		q, err = c.Queues.EnsureQueue(bg, other, "default", "a")
		must(t, err)
		if w.copyOf(other, "a").Version != 0 || q.Config.Version != 1 {
			t.Errorf("a shard without a part got %+v of %+v", w.copyOf(other, "a"), q)
		}
		_, err = c.Queues.EnsureQueue(bg, 1, "nobody", "a")
		is(t, err, task.ErrNotFound)
	})
}

// A part that gets slots again does not retire. Neither does another, which would not get the copy from which on the shares of all count.
func TestPartsThatAreUsedAgain(t *testing.T) {
	q := Queue{Name: "a", Shard: 1, Moved: 4, Config: task.QueueConfig{Version: 6},
		Parts: []Part{{Shard: 1, Slots: task.AllSlots, Next: task.AllSlots}, {Shard: 2, Retiring: 5}, {Shard: 3, Retiring: 5}}}
	if !q.spreadOver([]uint32{1, 2}, 9) || q.part(2).Retiring != 0 || q.part(2).Next == 0 || q.part(3).Retiring != 0 || q.Moved != 6 {
		t.Errorf("spread over shards 1 and 2, the queue has the parts %+v", q.Parts)
	}
}

// A part that retires gets no copy in a repair. Using it there makes it stay, in a version of its own. So does a change
// of the queue, which reaches it: the shard may have tasks.
func TestRetiringPartGetsNoCopy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		q, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
		must(t, err)
		from := q.Shard
		q, err = c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Shards: []uint32{3 - from}})
		must(t, err)
		p := q.part(from)
		p.Left, p.Retiring = 0, 5
		w.Put(queueKey("default", "a"), encodeQueue(q, false))
		before := w.copyOf(from, "a").Version
		must(t, c.repair())
		if got := w.copyOf(from, "a").Version; got != before {
			t.Errorf("a part that retires got version %d", got)
		}
		q, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(9))
		must(t, err)
		w.mustHave(t, c, "a change while a part retires", from)
		was := q.Config.Version
		q.part(from).Retiring = 5
		w.Put(queueKey("default", "a"), encodeQueue(q, false))
		q, err = c.Queues.EnsureQueue(bg, from, "default", "a")
		must(t, err)
		if q.part(from).Retiring != 0 || q.Config.Version != was+1 || w.copyOf(from, "a").Version != was+1 {
			t.Errorf("after its use the part is %+v in version %d, want %d, and the copy has %d", q.part(from), q.Config.Version, was+1,
				w.copyOf(from, "a").Version)
		}
		pass(2 * repairPause)
		w.mustHave(t, c, "use of a part that retires", q.Shards()...)
		if again, err := c.Queues.EnsureQueue(bg, from, "default", "a"); err != nil || again.Config.Version != was+1 {
			t.Errorf("using it again: version %d, %v", again.Config.Version, err)
		}
	})
}

// Rows are read back as they were written, and others are errors.
func TestQueueRow(t *testing.T) {
	q := Queue{Namespace: "ns", Name: "a", Shard: 3, Parts: []Part{{Shard: 3, Slots: 5, Next: 4, Left: 2, LeftAt: 9, Recent: true,
		LeftUntil: 11, Retiring: 12}}, Moved: 2, Own: true,
		Config: task.QueueConfig{Version: 4, Settings: task.DefaultSettings()}}
	for _, dropping := range []bool{false, true} {
		got, mark, err := decodeQueue(queueKey("ns", "a"), encodeQueue(q, dropping))
		if fmt.Sprint(got.Parts) != fmt.Sprint(q.Parts) || !got.Config.Equal(q.Config) || got.Moved != 2 || !got.Own || got.Shard != 3 ||
			got.FullName() != q.FullName() || mark != dropping || err != nil {
			t.Errorf("%+v was read back as %+v, %t, %v", q, got, mark, err)
		}
	}
	value := encodeQueue(q, true)
	for _, bad := range [][2][]byte{{nil, value}, {[]byte("q"), value}, {[]byte("qns"), value}, {queueKey("ns", "a"), nil},
		{queueKey("ns", "a"), value[:9]}} {
		if got, mark, err := decodeQueue(bad[0], bad[1]); err == nil || mark || got.Name != "" {
			t.Errorf("row %q, %q was read as %+v, %t", bad[0], bad[1], got, mark)
		}
	}
}

// A recovery reconciles each row with the copies of its queue alone. A queue that is being deleted is left to the next
// leader, unless nothing but copies is there, a copy says that the queue was used after it was marked, or it is in a
// shard that the deletion would not ask.
func TestReconcileRows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(3)
		config := func(version uint64) task.QueueConfig {
			return task.QueueConfig{Version: version, Settings: task.DefaultSettings()}
		}
		row := func(name string, version uint64, dropping bool) []byte {
			value := encodeQueue(Queue{Shard: 1, Config: config(version)}, dropping)
			w.Put(queueKey("default", name), value)
			return value
		}
		same, gone := row("same", 3, false), row("gone", 3, true)
		row("older", 3, false)
		row("used", 3, true)
		parts := encodeQueue(Queue{Shard: 1, Parts: []Part{{Shard: 1, Slots: task.AllSlots, Next: task.AllSlots}}, Config: config(3)}, true)
		w.Put(queueKey("default", "parts"), parts)
		row("left", 3, true)
		held := func(name string, shard uint32, version uint64) Queue {
			return Queue{Namespace: "default", Name: name, Shard: shard, Config: config(version)}
		}
		w.Round(func(tx *store.Tx) {
			must(t, Reconcile(tx, []Queue{held("same", 1, 3), held("gone", 1, 3), held("parts", 1, 3), held("used", 1, 8),
				held("left", 2, 2), held("older", 1, 8), held("lost", 3, 5), held("lost", 2, 4)}))
		})
		if string(w.Get(queueKey("default", "same"))) != string(same) || string(w.Get(queueKey("default", "gone"))) != string(gone) ||
			string(w.Get(queueKey("default", "parts"))) != string(parts) {
			t.Error("a row that fits its copies, or is being deleted, was changed")
		}
		for _, name := range []string{"older", "used"} {
			if q, dropping, _, err := Get(w.State, "default", name); err != nil || dropping || q.Config.Version != 9 ||
				q.Shard != 1 || q.Spread() {
				t.Errorf("a row that is older than its copy becomes %+v, %t, %v", q, dropping, err)
			}
		}
		if q, dropping, _, err := Get(w.State, "default", "left"); err != nil || dropping || !q.In(1) || !q.In(2) {
			t.Errorf("a queue that is being deleted, and of which a shard that it had left has a copy, becomes %+v, %t, %v", q, dropping,
				err)
		}
		q, dropping, ok, err := Get(w.State, "default", "lost")
		if err != nil || !ok || dropping || q.Shard != 2 || fmt.Sprint(q.Shards()) != "[3 2]" && fmt.Sprint(q.Shards()) != "[2 3]" ||
			q.Config.Version != 6 || q.part(2).Next != task.AllSlots {
			t.Errorf("a queue of which only copies are there becomes %+v, %t, %v", q, dropping, err)
		}
		key := queueKey("default", "same")
		w.Damage(key)
		w.Round(func(tx *store.Tx) {
			if err := Reconcile(tx, []Queue{held("other", 1, 3)}); err == nil {
				t.Errorf("row %q is damaged, and rows are reconciled", key)
			}
		})
	})
}
