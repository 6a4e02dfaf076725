package engine

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// hot is what a leader keeps of the rows that it wrote lately and will want soon: live claims, and tasks of short queues.
// It saves the reads that a task's life would cost; what is not in it is read.
type hot struct {
	tasks map[task.ID]hotTask
	bytes int
}

type hotTask struct {
	ns   string
	exec *schema.Exec
	env  *schema.Envelope // of a ready task that was not claimed yet; else nil
}

const (
	hotBytes = 24 << 20 // of rows, about
	hotQueue = 4096     // tasks of a longer queue are not kept: they would have left before they are claimed
	hotRow   = 400      // bytes of an entry without its payload, about
)

func (t hotTask) size() int {
	if t.env == nil {
		return hotRow
	}
	n := hotRow + len(t.env.Payload)
	if t.env.Parent != nil {
		n += len(t.env.Parent.Result)
	}
	return n
}

func (h *hot) put(id task.ID, t hotTask) {
	h.drop(id)
	h.bytes += t.size()
	h.tasks[id] = t
	for old := range h.tasks { // any will do
		if h.bytes <= hotBytes {
			return
		}
		if old != id {
			h.drop(old)
		}
	}
}

func (h *hot) drop(id task.ID) {
	if t, ok := h.tasks[id]; ok {
		h.bytes -= t.size()
		delete(h.tasks, id)
	}
}

// knows says whether all of a ready task is here.
func (h *hot) knows(id task.ID) bool {
	t, ok := h.tasks[id]
	return ok && t.env != nil
}

// keep remembers a task after a move if it will be wanted soon.
func (h *hot) keep(ns string, id task.ID, q *Queue, x *schema.Exec) {
	switch {
	case x.State == task.Claimed:
		h.put(id, hotTask{ns: ns, exec: x})
	case x.State == task.Ready && q.counts.Ready[x.Priority-task.High] < hotQueue:
		h.put(id, hotTask{ns: ns, exec: x})
	default:
		h.drop(id)
	}
}

// keepEnvelope adds what a new task's claim will want.
func (h *hot) keepEnvelope(id task.ID, e *schema.Envelope) {
	if t, ok := h.tasks[id]; ok {
		t.env = e
		h.put(id, t)
	}
}

// warm reads the rows of tasks that will be claimed next, all at once and in the order of their keys: one by one, each
// would cost the read of a block.
func (r *Round) warm(ns string, tasks []schema.ReadyTask) {
	ids := make([]task.ID, 0, len(tasks))
	for _, t := range tasks {
		if !r.l.hot.knows(t.ID) {
			ids = append(ids, t.ID)
		}
	}
	slices.SortFunc(ids, func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) })
	execs := make([]*schema.Exec, len(ids))
	r.tx.GetEach(schema.IDKeys(ns, schema.TableExec, ids), func(i int, row []byte) {
		x, err := schema.DecodeExec(row)
		schema.Must(err)
		execs[i] = x
	})
	r.tx.GetEach(schema.IDKeys(ns, schema.TableEnvelope, ids), func(i int, row []byte) {
		e, err := schema.DecodeEnvelope(ns, ids[i], bytes.Clone(row))
		schema.Must(err)
		if execs[i] != nil {
			r.l.hot.put(ids[i], hotTask{ns: ns, exec: execs[i], env: e})
		}
	})
}

// newIDs tells, without a read, that an id derived from a request can't have been used: such ids begin with the
// producer's time, so most are greater than all before.
type newIDs struct {
	from int64 // every id of this or a later millisecond that was stored is in seen
	last int64 // the latest millisecond of a stored id
	seen map[task.ID]struct{}
}

// seenIDs bounds the memory: 100,000 ids are a second or more of a busy shard.
const seenIDs = 100_000

// load finds where the ids end of tasks that are stored, or forgotten while their requests may be repeated.
func (n *newIDs) load(from store.Reader, ns string) {
	forgotten := schema.IDKey(ns, schema.TableRequest, task.ID{})
	for _, prefix := range [][]byte{schema.Table(ns, schema.TableExec), forgotten} {
		from.ScanBack(prefix, schema.After(prefix), func(k, _ []byte) bool {
			n.last = max(n.last, schema.IDAt(k).UnixMilli())
			return false
		})
	}
	n.from = n.last + 1
	n.seen = map[task.ID]struct{}{}
}

func (n *newIDs) isNew(id task.ID) bool {
	if id.UnixMilli() < n.from {
		return false
	}
	_, seen := n.seen[id]
	return !seen
}

func (n *newIDs) add(id task.ID) {
	ms := id.UnixMilli()
	n.last = max(n.last, ms)
	if ms < n.from {
		return
	}
	if len(n.seen) >= seenIDs {
		n.from = n.last + 1
		clear(n.seen)
		return
	}
	n.seen[id] = struct{}{}
}
