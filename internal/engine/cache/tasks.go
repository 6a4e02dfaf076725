package cache

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Tasks is what a leader keeps of the rows that it wrote lately and will want soon: live claims, and tasks of short queues.
// It saves the reads that a task's life would cost; what is not in it is read.
type Tasks struct {
	tasks map[task.ID]entry
	bytes int
	ahead *Ahead // nil: nothing is being read ahead
}

type entry struct {
	ns   string
	exec *schema.Exec
	env  *schema.Envelope // of a ready task that was not claimed yet; else nil
}

const (
	maxBytes = 24 << 20 // of rows, about
	maxQueue = 4096     // tasks of a longer queue are not kept: they would have left before they are claimed
	rowBytes = 400      // bytes of an entry without its payload, about
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

// NewTasks is empty.
func NewTasks() *Tasks { return &Tasks{tasks: map[task.ID]entry{}} }

// Exec is nil if the task is not here. It must not be changed.
func (h *Tasks) Exec(ns string, id task.ID) *schema.Exec {
	if t, ok := h.tasks[id]; ok && t.ns == ns {
		return t.exec
	}
	return nil
}

// Envelope is nil if the task or its envelope is not here. It must not be changed.
func (h *Tasks) Envelope(ns string, id task.ID) *schema.Envelope {
	if t, ok := h.tasks[id]; ok && t.ns == ns {
		return t.env
	}
	return nil
}

// Size is how many tasks are here, and about how many bytes they take.
func (h *Tasks) Size() (tasks, bytes int) { return len(h.tasks), h.bytes }

func (h *Tasks) put(id task.ID, t entry) {
	h.Drop(id)
	h.bytes += t.size()
	h.tasks[id] = t
	for old := range h.tasks { // any will do
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

// Knows says whether all of a ready task is here.
func (h *Tasks) Knows(id task.ID) bool {
	t, ok := h.tasks[id]
	return ok && t.env != nil
}

// Keep remembers a task after a move if it will be wanted soon. Ready is how many tasks are ready at its priority.
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

// KeepEnvelope adds what a new task's claim will want.
func (h *Tasks) KeepEnvelope(id task.ID, e *schema.Envelope) {
	if t, ok := h.tasks[id]; ok {
		t.env = e
		h.put(id, t)
	}
}

// Warm reads the rows of tasks that will be claimed next, all at once: one by one, each would cost the read of a block.
func (h *Tasks) Warm(from *store.Tx, ns string, tasks []schema.ReadyTask) {
	ids := make([]task.ID, 0, len(tasks))
	for _, t := range tasks {
		if !h.Knows(t.ID) {
			ids = append(ids, t.ID)
		}
	}
	readTasks(from, ns, ids, h.put)
}

// readTasks reads states and envelopes of tasks, all at once and in the order of their keys. It sorts ids.
func readTasks(from store.Reader, ns string, ids []task.ID, keep func(task.ID, entry)) {
	slices.SortFunc(ids, task.ID.Compare)
	execs := make([]*schema.Exec, len(ids))
	from.GetEach(schema.IDKeys(ns, schema.TableExec, ids), func(i int, row []byte) {
		x, err := schema.DecodeExec(row)
		schema.Must(err)
		execs[i] = x
	})
	from.GetEach(schema.IDKeys(ns, schema.TableEnvelope, ids), func(i int, row []byte) {
		e, err := schema.DecodeEnvelope(ns, ids[i], bytes.Clone(row))
		schema.Must(err)
		if execs[i] != nil {
			keep(ids[i], entry{ns: ns, exec: execs[i], env: e})
		}
	})
}

// WarmExecs reads the states of those tasks that are not here, without their envelopes.
func (h *Tasks) WarmExecs(from *store.Tx, ns string, ids []task.ID) {
	ids = slices.DeleteFunc(ids, func(id task.ID) bool { _, known := h.tasks[id]; return known })
	slices.SortFunc(ids, task.ID.Compare)
	from.GetEach(schema.IDKeys(ns, schema.TableExec, ids), func(i int, row []byte) {
		x, err := schema.DecodeExec(row)
		schema.Must(err)
		h.put(ids[i], entry{ns: ns, exec: x})
	})
}

// Claimed are claimed tasks of a queue, found among up to most tasks.
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
