package cache

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Ahead is rows of tasks that claims will want later. They are read on another goroutine, from the state as it was when ReadAhead was
// called. Rounds go on meanwhile; what they touch is not taken.
type Ahead struct {
	// Of the goroutine that reads, until Take.
	tasks map[task.ID]entry
	bytes int

	// Of the rounds.
	touched map[task.ID]struct{}
	useless bool
}

const (
	// maxAhead is about how many bytes of rows are read ahead, unless firstAhead tasks take more.
	maxAhead = 4 << 20
	// firstAhead is how many tasks are read before it is known how large they are.
	firstAhead = 64
	// maxTouched bounds what is remembered during a read that takes long.
	maxTouched = 1 << 16
)

// ReadAhead begins to read ahead; nil if there is no room, or if the last read is not over. The state must be that which the rounds have
// left.
func (h *Tasks) ReadAhead() *Ahead {
	if h.ahead != nil || h.bytes > maxBytes-maxAhead {
		return nil
	}
	h.ahead = &Ahead{tasks: map[task.ID]entry{}, touched: map[task.ID]struct{}{}}
	return h.ahead
}

// Read reads tasks of a namespace, and says how many of them: fewer if they are large.
func (a *Ahead) Read(from store.Reader, ns string, tasks []schema.ReadyTask) (n int) {
	for n < len(tasks) && a.bytes < maxAhead {
		some := firstAhead
		if len(a.tasks) > 0 {
			some = (maxAhead - a.bytes) / (a.bytes / len(a.tasks))
		}
		ids := make([]task.ID, min(max(some, 1), len(tasks)-n))
		for i := range ids {
			ids[i] = tasks[n+i].ID
		}
		n += len(ids)
		readTasks(from, ns, ids, a.keep)
	}
	return n
}

func (a *Ahead) keep(id task.ID, t entry) {
	a.tasks[id] = t
	a.bytes += t.size()
}

// Take adds what was read, except for what rounds have touched since. It is false if all of it is useless.
func (h *Tasks) Take(a *Ahead) bool {
	if h.ahead != a { // of another leader
		return false
	}
	h.ahead = nil
	if a.useless {
		return false
	}
	for id, t := range a.tasks {
		if _, touched := a.touched[id]; !touched && h.bytes+t.size() <= maxBytes {
			h.put(id, t)
		}
	}
	return true
}

// touch notes a task whose rows a round writes, or has.
func (a *Ahead) touch(id task.ID) {
	if a == nil || a.useless {
		return
	}
	if a.touched[id] = struct{}{}; len(a.touched) > maxTouched {
		a.void()
	}
}

// void makes what is being read useless.
func (a *Ahead) void() {
	if a != nil {
		a.useless, a.touched = true, nil
	}
}
