package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// restore restores the shard of a world, as it is, some time later. Its first leader begins even later.
func (w *World) restore(after, started time.Duration) {
	w.T.Helper()
	w.Index++
	w.Now = w.Now.Add(after)
	at := w.Store.Applied()
	tx := w.Store.Begin(at.Time, w.Index)
	cache.MarkRestored(tx)
	if err := w.Store.Apply(store.Position{Index: w.Index, Term: at.Term, Time: at.Time}, tx.Seal(nil)); err != nil {
		w.T.Fatal(err)
	}
	tx.Close()
	w.Now = w.Now.Add(started)
	w.BecomeLeader()
}

// message is a task from another shard. All with one number are the same message.
func message(n byte) task.Spec {
	return task.Spec{Type: "job", RequestID: task.ID{6: 0x80, 8: 0x80, 15: n}, RequestTTL: task.MessageWindow}
}

// take takes a message and reports whether it was taken before.
func (w *World) take(n byte) bool {
	w.T.Helper()
	a, err := w.Enqueue(message(n))
	if err != nil {
		w.T.Fatal(err)
	}
	return a.Duplicate
}

// What a shard remembered of messages when it was backed up, it remembers for a whole window after its restore, however
// late that is, and through changes of the leader. What it had forgotten stays forgotten.
func TestMessagesAreRememberedAfterRestore(t *testing.T) {
	for _, c := range []struct{ age, after, started time.Duration }{
		{0, 0, 0},
		{23 * time.Hour, 0, 0},
		{task.MessageWindow - time.Second, time.Second, 0},
		{time.Hour, 100 * time.Hour, 0},
		{time.Hour, 0, 100 * time.Hour},
		{23 * time.Hour, 400 * time.Hour, 400 * time.Hour},
	} {
		w := NewWorld(t)
		w.take(1)
		w.Pass(c.age)
		w.take(2)
		w.restore(c.after, c.started)
		for range 2 {
			w.Round(Tick)
			for n := range byte(2) {
				if !w.take(1 + n) {
					t.Errorf("%+v: message %d was taken again", c, 1+n)
				}
			}
			w.Pass(task.MessageWindow/2 - time.Minute)
			if err := w.Check(); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			w.BecomeLeader()
		}
		if !w.take(1) || !w.take(2) {
			t.Errorf("%+v: a message was taken again two minutes before its window ended", c)
		}
		w.Pass(3 * time.Minute)
		if w.take(1) {
			t.Errorf("%+v: a message is remembered after its window", c)
		}
		w.Pass(task.MessageWindow + time.Minute)
		if n := w.rows(schema.TableRestored) + w.rows(schema.TableRequest); n != 0 {
			t.Errorf("%+v: %d rows are left of the restore", c, n)
		}
		if err := w.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	w := NewWorld(t)
	w.take(1)
	w.Now = w.Now.Add(task.MessageWindow + time.Second) // no deadline has run
	w.Round()
	w.restore(0, 0)
	if w.take(1) {
		t.Error("a message whose window was over before the backup is remembered")
	}
	w.Pass(task.MessageWindow - time.Minute)
	if !w.take(1) {
		t.Error("a message that was taken after the restore was forgotten early")
	}
}

// A shard that is restored twice remembers what it remembered at the first backup, if that was still in its window at the second.
func TestRestoredTwice(t *testing.T) {
	for between, remembered := range map[time.Duration]bool{0: true, time.Hour: true, task.MessageWindow - time.Minute: true,
		task.MessageWindow + time.Minute: false} {
		for _, served := range []bool{true, false} {
			w := NewWorld(t)
			w.take(1)
			w.restore(50*time.Hour, 0)
			if served {
				w.Pass(between)
				w.Round(Tick)
			}
			w.restore(50*time.Hour, 0)
			w.Round(Tick)
			if got := w.take(1); got != (remembered || !served) {
				t.Errorf("second backup %v after the first restore (it served: %t): remembered is %t", between, served, got)
			}
			if err := w.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

func (w *World) rows(tab byte) (n int) {
	w.Store.Scan([]byte{tab}, []byte{tab + 1}, func(_, _ []byte) bool { n++; return true })
	return n
}
