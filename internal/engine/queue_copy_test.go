package engine

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A copy of a queue is replaced by a newer one only.
func TestPutQueueOfVersion(t *testing.T) {
	w := NewWorld(t)
	for _, c := range []struct {
		version uint64
		length  int64
		want    int64
	}{{2, 20, 20}, {1, 10, 20}, {2, 22, 20}, {3, 30, 30}} {
		s := task.DefaultSettings()
		s.MaxLength = c.length
		w.Round(func(r *Round) { PutQueue(r, "default", "a", task.QueueConfig{Version: c.version, Settings: s}) })
		w.BecomeLeader()
		w.Round(func(r *Round) {
			if got := r.Queue("default", "a").config.Settings.MaxLength; got != c.want {
				t.Errorf("after version %d the maximum length is %d, want %d", c.version, got, c.want)
			}
		})
	}
}

// A copy that can't be decoded is reported, even if others can.
func TestCopiedQueuesReportDamage(t *testing.T) {
	w := NewWorld(t)
	for _, name := range []string{"a", "b"} {
		w.PutQueue(name, task.DefaultSettings(), false)
	}
	if queues, err := CopiedQueues(w.Store); err != nil || len(queues) != 2 || queues[1].Name != "b" {
		t.Errorf("CopiedQueues = %v (%v), want a and b", queues, err)
	}
	for _, key := range [][]byte{schema.QueueKey("default", schema.TableQueue, "a"), {schema.TableQueue, 'a'}} {
		w := NewWorld(t)
		w.PutQueue("b", task.DefaultSettings(), false)
		w.Round(func(r *Round) { r.tx.Set(key, []byte{0xff}) })
		if queues, err := CopiedQueues(w.Store); err == nil {
			t.Errorf("CopiedQueues with the damaged row %q = %v, want an error", key, queues)
		}
	}
}

// A queue that is dropped in the round in which its last task ends leaves no counters behind.
func TestQueueDroppedWithItsLastTask(t *testing.T) {
	w := NewWorld(t)
	w.enqueueOne()
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
	w.Round(func(r *Round) {
		if _, err := Ack(r, Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}, schema.Result{}); err != nil {
			t.Fatal(err)
		}
		if err := DropQueue(r, "default", "default"); err != nil {
			t.Fatal(err)
		}
	})
	if row, ok := w.Store.Get(schema.QueueKey("default", schema.TableCounts, "default")); ok {
		t.Errorf("the counters %x are left of a queue that was dropped", row)
	}
}
