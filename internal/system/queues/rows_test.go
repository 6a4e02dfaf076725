package queues

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// A row that can't be read is reported as such, and nothing replaces it.
func TestDamagedRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		for _, name := range []string{"a", "b"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
		}
		key := queueKey("default", "a")
		w.Damage(key)
		damaged := w.Get(key)
		for what, call := range map[string]func() error{
			"Queue": func() error { _, err := c.Queues.Queue(bg, "default", "a"); return err },
			"Place": func() error { _, err := c.Queues.Place(bg, "default", "a"); return err },
			"PutQueue": func() error {
				_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", unchanged)
				return err
			},
			"EnsureQueue": func() error { _, err := c.Queues.EnsureQueue(bg, 1, "default", "a"); return err },
			"Spread": func() error {
				_, err := c.Queues.Spread(bg, nobody, "default", "a", SpreadTarget{Parts: 1})
				return err
			},
			"Spread of b": func() error {
				_, err := c.Queues.Spread(bg, nobody, "default", "b", SpreadTarget{Parts: 2})
				return err
			},
			"DropQueue": func() error { return c.Queues.DropQueue(bg, nobody, "default", "a") },
			"finishDrop": func() error {
				return c.Queues.finishDrop(bg, Queue{Namespace: "default", Name: "a", Shard: 1}, lateTime)
			},
			"Queues": func() error { _, err := c.Queues.Queues(bg, "default", Query{Limit: 9}); return err },
			"Queues by name": func() error {
				_, err := c.Queues.Queues(bg, "default", Query{Limit: 9, Names: []string{"a"}})
				return err
			},
			"Scan": func() error {
				return Scan(w.State, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q Queue, _ bool) bool {
					t.Errorf("Scan went on to %+v", q)
					return true
				})
			},
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "unknown form") {
				t.Errorf("%s: %v, want an error that says that the row can't be read", what, err)
			}
		}
		if string(w.Get(key)) != string(damaged) {
			t.Error("a damaged row was replaced")
		}
		if q, dropping, ok, err := Get(w.State, "default", "none"); q.Name != "" || dropping || ok || err != nil {
			t.Errorf("a row that is not there is %+v, %t, %t, %v", q, dropping, ok, err)
		}
		w.Damage(system.SettingsKey)
		if _, err := c.Queues.Spread(bg, nobody, "default", "b", SpreadTarget{Parts: 1}); err == nil ||
			errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("Spread with damaged settings: %v", err)
		}
	})
}

// A node that no longer leads may still run a round, which won't commit.
func TestRoundOfAFormerLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.Place(bg, "default", "a")
		must(t, err)
		at := w.State.Applied()
		c.Dropped(true)
		tx := w.State.Begin(at.Time+1, at.Index+1)
		defer tx.Close()
		if q, err := c.Queues.changed(tx, auditlog.Action{}, "default", "b", unchanged); err != nil || q.Name != "b" {
			t.Errorf("the round of a former leader: %+v, %v", q, err)
		}
	})
}

// Only a shard's refusal undoes a deletion. After any other error the deletion may have happened, and is repeated.
func TestDeletionAfterAnUnknownError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.Place(bg, "default", "a")
		must(t, err)
		broken := errors.New("connection reset by peer")
		w.cut(1, broken)
		if err := c.Queues.DropQueue(bg, nobody, "default", "a"); !errors.Is(err, broken) {
			t.Errorf("DropQueue = %v, want the shard's error", err)
		}
		if _, dropping, _, err := Get(w.State, "default", "a"); !dropping || err != nil {
			t.Errorf("the deletion was undone (%v)", err)
		}
	})
}

// A deletion removes a queue's row only if the row still has the mark that the deletion set, whatever happens while the
// shard drops its copy.
func TestDeletionNeedsItsMark(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		key := queueKey("default", "a")
		for what, x := range map[string]struct {
			happens func(q Queue)
			check   func(err error, row []byte)
		}{
			"another call has finished": {func(Queue) { must(t, c.Queues.DropQueue(bg, nobody, "default", "a")) },
				func(err error, row []byte) {
					if err != nil || row != nil {
						t.Errorf("DropQueue = %v, row %q, want the queue gone", err, row)
					}
				}},
			"the mark was cleared": {func(q Queue) { w.Put(key, encodeQueue(q, false)) }, func(err error, row []byte) {
				if is(t, err, task.ErrWrongState, "used meanwhile"); row == nil {
					t.Error("a queue without a mark was deleted")
				}
			}},
			"the row was damaged": {func(Queue) { w.Damage(key) }, func(err error, row []byte) {
				if err == nil || !strings.Contains(err.Error(), "unknown form") || row == nil {
					t.Errorf("DropQueue = %v, row %q", err, row)
				}
			}},
		} {
			w.Round(func(tx *store.Tx) { tx.Delete(key) })
			q, err := c.Queues.Place(bg, "default", "a")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			w.onDrop = func() { x.happens(q) }
			err = c.Queues.DropQueue(bg, nobody, "default", "a")
			x.check(err, w.Get(key))
		}
	})
}

// A refused deletion clears its own mark, and no other.
func TestKeepClearsItsOwnMark(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		q, err := c.Queues.Place(bg, "default", "a")
		must(t, err)
		key := queueKey("default", "a")
		newer := q
		newer.Config.Version++
		for what, row := range map[string][]byte{"there is no mark": encodeQueue(q, false), "the mark is another's": encodeQueue(newer,
			true),
			"the queue is gone": nil} {
			w.Round(func(tx *store.Tx) {
				if tx.Delete(key); row != nil {
					tx.Set(key, row)
				}
			})
			at := w.State.Applied().Index
			must(t, c.Queues.keep(bg, q))
			if got := w.State.Applied().Index; got != at {
				t.Errorf("%s: the row was written: %q", what, w.Get(key))
			}
		}
		w.Put(key, encodeQueue(q, true))
		must(t, c.Queues.keep(bg, q))
		if _, dropping, ok, err := Get(w.State, "default", "a"); dropping || !ok || err != nil {
			t.Errorf("its own mark is still set: %t, %t, %v", dropping, ok, err)
		}
	})
}

// A new leader copies every queue, once: also one whose deletion a shard refuses, as others may have dropped their copies.
func TestRepairEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.Place(bg, "default", name)
			must(t, err)
		}
		w.cut(1, task.ErrUnavailable)
		w.cut(2, task.ErrUnavailable)
		is(t, c.Queues.DropQueue(bg, nobody, "default", "b"), task.ErrUnavailable)
		w.setFull("b", true)
		w.mu.Lock()
		clear(w.copies)
		w.mu.Unlock()
		counts := func() (copies, calls int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.copies), w.calls
		}
		c = w.open(2)
		pass(10 * time.Second)
		if said := w.log.Take(); !strings.Contains(said, "copies of queues are not complete yet") {
			t.Errorf("while no shard can be reached, the log says %q", said)
		}
		w.heal()
		pass(maxRepairPause)
		copies, calls := counts()
		if said := w.log.Take(); copies != 3 || said != "" {
			t.Errorf("the shards have %d copies, want those of a, b and c; the log says %q", copies, said)
		}
		pass(10 * time.Minute)
		if _, now := counts(); now != calls {
			t.Errorf("after the repair, %d more copies were sent", now-calls)
		}
		_, err := c.Queues.Queue(bg, "default", "b")
		must(t, err)
	})
}

// A server without a check of its disk creates queues by use. One whose limit was lowered creates none, and keeps those that it has.
func TestLimitsOfTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		c.Queues.cfg.Room = nil
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.Place(bg, "default", name)
			must(t, err)
		}
		w.most = 1
		c = w.open(1)
		is(t, placeErr(c, "d"), task.ErrInvalidArgument, "limit of 1 queues")
		must(t, placeErr(c, "c"))
	})
}
