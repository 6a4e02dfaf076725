package cache

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Tasks caches rows that a leader wrote lately and will need soon: live claims, and tasks of short queues. It saves the
// reads of a typical task's life; what it does not hold is read from the store.
type Tasks struct {
	tasks map[task.ID]entry
	bytes int
	ahead *Ahead // nil: nothing is being read ahead
}

type entry struct {
	ns   string
	exec *schema.Exec
	env  *schema.Envelope // of a ready task that has not been claimed yet; else nil
}

const (
	maxBytes = 24 << 20 // of rows, roughly
	maxQueue = 4096     // tasks of a longer queue are not kept: they would be evicted before they are claimed
	rowBytes = 400      // bytes of an entry without its payload, roughly
)

func (t entry) size() int {
	if t.env == nil {
		return rowBytes
	}
	n := rowBytes + len(t.env.Payload)
	if t.env.Parent != nil {
		n += len(t.env.Parent.Result)
	}
	return n
}

// NewTasks returns an empty cache.
func NewTasks() *Tasks { return &Tasks{tasks: map[task.ID]entry{}} }

// Exec returns the state of a task, or nil if it is not cached. It must not be changed.
func (h *Tasks) Exec(ns string, id task.ID) *schema.Exec {
	if t, ok := h.tasks[id]; ok && t.ns == ns {
		return t.exec
	}
	return nil
}

// Envelope returns the envelope of a task, or nil if it is not cached. It must not be changed.
func (h *Tasks) Envelope(ns string, id task.ID) *schema.Envelope {
	if t, ok := h.tasks[id]; ok && t.ns == ns {
		return t.env
	}
	return nil
}

func (h *Tasks) put(id task.ID, t entry) {
	h.Drop(id)
	h.bytes += t.size()
	h.tasks[id] = t
	for old := range h.tasks { // evict in any order
		if h.bytes <= maxBytes {
			return
		}
		if old != id {
			h.Drop(old)
		}
	}
}

// Drop forgets a task.
func (h *Tasks) Drop(id task.ID) {
	h.ahead.touch(id)
	if t, ok := h.tasks[id]; ok {
		h.bytes -= t.size()
		delete(h.tasks, id)
	}
}

// Knows reports whether both rows of a ready task are cached.
func (h *Tasks) Knows(id task.ID) bool {
	t, ok := h.tasks[id]
	return ok && t.env != nil
}

// Keep caches a task after a move if it will be needed soon. Ready is how many tasks are ready at its priority.
func (h *Tasks) Keep(ns string, id task.ID, x *schema.Exec, ready int64) {
	switch {
	case x.State == task.Claimed:
		h.put(id, entry{ns: ns, exec: x})
	case x.State == task.Ready && ready < maxQueue:
		h.put(id, entry{ns: ns, exec: x})
	default:
		h.Drop(id)
	}
}

// KeepEnvelope adds the envelope of a new task, which its claim will need.
func (h *Tasks) KeepEnvelope(id task.ID, e *schema.Envelope) {
	if t, ok := h.tasks[id]; ok {
		t.env = e
		h.put(id, t)
	}
}

// Warm reads the rows of tasks that will be claimed next in one batch: one by one, each would cost the read of a block.
func (h *Tasks) Warm(from *store.Tx, ns string, tasks []schema.ReadyTask) {
	ids := make([]task.ID, 0, len(tasks))
	for _, t := range tasks {
		if !h.Knows(t.ID) {
			ids = append(ids, t.ID)
		}
	}
	readTasks(from, ns, ids, h.put)
}

// readTasks reads states and envelopes of tasks in one batch, in the order of their keys. It sorts ids. It leaves out
// tasks with a row that can't be understood: only a call that needs one of them fails.
func readTasks(from store.Reader, ns string, ids []task.ID, keep func(task.ID, entry)) {
	slices.SortFunc(ids, task.ID.Compare)
	execs := make([]*schema.Exec, len(ids))
	from.GetEach(schema.IDKeys(ns, schema.TableExec, ids), func(i int, row []byte) {
		if x, err := schema.DecodeExec(row); err == nil {
			execs[i] = x
		}
	})
	from.GetEach(schema.IDKeys(ns, schema.TableEnvelope, ids), func(i int, row []byte) {
		if e, err := schema.DecodeEnvelope(ns, ids[i], bytes.Clone(row)); err == nil && execs[i] != nil {
			keep(ids[i], entry{ns: ns, exec: execs[i], env: e})
		}
	})
}

// WarmExecs reads the states of those tasks that are not cached, without their envelopes.
func (h *Tasks) WarmExecs(from *store.Tx, ns string, ids []task.ID) {
	ids = slices.DeleteFunc(ids, func(id task.ID) bool { _, known := h.tasks[id]; return known })
	slices.SortFunc(ids, task.ID.Compare)
	from.GetEach(schema.IDKeys(ns, schema.TableExec, ids), func(i int, row []byte) {
		if x, err := schema.DecodeExec(row); err == nil {
			h.put(ids[i], entry{ns: ns, exec: x})
		}
	})
}

// Claimed returns the claimed tasks of a queue among up to most cached tasks.
func (h *Tasks) Claimed(ns, queue string, most int) (ids []task.ID) {
	looked := 0
	for id, t := range h.tasks {
		if t.ns == ns && t.exec.Queue == queue && t.exec.State == task.Claimed {
			ids = append(ids, id)
		}
		if looked++; looked == most {
			break
		}
	}
	return ids
}

// DropNamespace forgets all tasks of a namespace.
func (h *Tasks) DropNamespace(ns string) {
	h.ahead.void()
	for id, t := range h.tasks {
		if t.ns == ns {
			h.Drop(id)
		}
	}
}
