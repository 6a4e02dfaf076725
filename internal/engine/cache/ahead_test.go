package cache

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// stored returns a state with n ready tasks with payloads of a size.
func stored(t *testing.T, n, size int) (*store.Store, []schema.ReadyTask) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	tasks := make([]schema.ReadyTask, n)
	tx := s.Begin(1, 1)
	defer tx.Close()
	for i := range tasks {
		id := task.NewID(1, 1, uint64(n-i)) // not in the order of their keys
		tasks[i] = schema.ReadyTask{Seq: uint64(i + 1), ID: id}
		tx.Set(schema.IDKey("ns", schema.TableExec, id), (&schema.Exec{State: task.Ready, Queue: "q"}).Encode())
		tx.Set(schema.IDKey("ns", schema.TableEnvelope, id), (&schema.Envelope{ID: id, Queue: "q", Type: "t",
			Payload: make([]byte, size)}).Encode())
	}
	if err := s.Apply(store.Position{Index: 1, Term: 1, Time: 1}, tx.Seal(nil)); err != nil {
		t.Fatal(err)
	}
	return s, tasks
}

// Tasks that rounds touch while they are being read are not taken, nor is anything if a namespace was dropped.
func TestReadAhead(t *testing.T) {
	s, tasks := stored(t, 100, 10)
	h := NewTasks()
	a := h.ReadAhead()
	if h.ReadAhead() != nil {
		t.Fatal("a second read-ahead began while the first was running")
	}
	if n := a.Read(s, "ns", tasks); n != len(tasks) {
		t.Fatalf("%d of %d tasks were read", n, len(tasks))
	}
	h.Keep("ns", tasks[0].ID, &schema.Exec{State: task.Claimed}, 1)
	h.Keep("ns", tasks[1].ID, &schema.Exec{State: task.Succeeded}, 1)
	h.Drop(tasks[2].ID)
	if !h.Take(a) {
		t.Fatal("Take discarded the tasks")
	}
	if n, _ := h.Size(); n != len(tasks)-2 || h.Exec("ns", tasks[0].ID).State != task.Claimed || h.Knows(tasks[1].ID) ||
		h.Knows(tasks[2].ID) || !h.Knows(tasks[3].ID) {
		t.Errorf("the cache has %d tasks", n)
	}
	if h.Take(a) {
		t.Error("Take accepted the same read twice")
	}

	again := NewTasks()
	if again.Take(a) {
		t.Error("Take accepted a read of another leader")
	}
	a = again.ReadAhead()
	a.Read(s, "ns", tasks)
	again.DropNamespace("ns")
	if again.Take(a) {
		t.Error("Take accepted tasks of a dropped namespace")
	}
	if again.ReadAhead() == nil {
		t.Error("no read-ahead can begin after a discarded one")
	}
}

// However large tasks are, read-ahead is bounded, and evicts no cached tasks.
func TestReadAheadIsBounded(t *testing.T) {
	s, tasks := stored(t, 500, 20<<10)
	if n := NewTasks().ReadAhead().Read(s, "ns", tasks); n > maxAhead/(20<<10)+1 {
		t.Errorf("%d tasks of 20 KiB were read, but the limit is %d KiB", n, maxAhead>>10)
	}
	const size = 100 << 10
	s, tasks = stored(t, 500, size)
	h := NewTasks()
	a := h.ReadAhead()
	if n := a.Read(s, "ns", tasks); n != firstAhead || len(a.tasks) != n {
		t.Errorf("%d tasks of 100 KiB were read, want %d", n, firstAhead)
	}
	kept := 0
	for ; h.bytes < maxBytes-3*(size+rowBytes); kept++ {
		id := task.NewID(2, 1, uint64(kept))
		h.Keep("ns", id, &schema.Exec{State: task.Claimed}, 1)
		h.KeepEnvelope(id, &schema.Envelope{ID: id, Payload: make([]byte, size)})
	}
	h.Take(a)
	if n, bytes := h.Size(); n < kept+2 || n > kept+3 || bytes > maxBytes {
		t.Errorf("%d tasks were cached before the read, and %d tasks of %d bytes after it", kept, n, bytes)
	}
	for i := range kept {
		if !h.Knows(task.NewID(2, 1, uint64(i))) {
			t.Fatalf("task %d was evicted by read-ahead", i)
		}
	}
	if h.ReadAhead() != nil {
		t.Error("a read-ahead began although the cache is full")
	}
}

// A read during which too many tasks were touched is discarded.
func TestSlowReadAhead(t *testing.T) {
	s, tasks := stored(t, 1, 10)
	for _, touched := range []uint64{maxTouched, maxTouched + 1} {
		h := NewTasks()
		a := h.ReadAhead()
		a.Read(s, "ns", tasks)
		for i := range touched {
			h.Drop(task.NewID(2, 1, i))
		}
		if took := h.Take(a); took != (touched <= maxTouched) {
			t.Errorf("with %d touched tasks, Take = %t", touched, took)
		}
	}
}
