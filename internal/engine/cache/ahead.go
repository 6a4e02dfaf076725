package cache

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Ahead holds rows of tasks that will be claimed later. They are read on another goroutine, from the state as it was
// when ReadAhead was called. Rounds go on meanwhile; tasks that they touch are not taken.
type Ahead struct {
	// Owned by the reading goroutine until Take.
	tasks map[task.ID]entry
	bytes int

	// Owned by the shard's loop.
	touched map[task.ID]struct{}
	useless bool
}

const (
	// maxAhead bounds roughly how many bytes of rows are read ahead, unless firstAhead tasks take more.
	maxAhead = 4 << 20
	// firstAhead is how many tasks are read before their average size is known.
	firstAhead = 64
	// maxTouched bounds the touched tasks that are remembered during a long read.
	maxTouched = 1 << 16
)

// ReadAhead starts a read-ahead. It returns nil if there is no room, or if the last one is not over. Read must be given
// the state as the rounds so far have left it.
func (h *Tasks) ReadAhead() *Ahead {
	if h.ahead != nil || h.bytes > maxBytes-maxAhead {
		return nil
	}
	h.ahead = &Ahead{tasks: map[task.ID]entry{}, touched: map[task.ID]struct{}{}}
	return h.ahead
}

// Read reads tasks of a namespace and returns how many: fewer than given if they are large.
func (a *Ahead) Read(from store.Reader, ns string, tasks []schema.ReadyTask) (n int) {
	for n < len(tasks) && a.bytes < maxAhead {
		count := firstAhead
		if len(a.tasks) > 0 {
			count = (maxAhead - a.bytes) / (a.bytes / len(a.tasks))
		}
		ids := make([]task.ID, min(max(count, 1), len(tasks)-n))
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

// Take adds the tasks that were read to the cache, except those that rounds have touched since. It returns false if none can be used.
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

// touch records a task whose rows a round has written or cached.
func (a *Ahead) touch(id task.ID) {
	if a == nil || a.useless {
		return
	}
	if a.touched[id] = struct{}{}; len(a.touched) > maxTouched {
		a.void()
	}
}

// void discards what is being read.
func (a *Ahead) void() {
	if a != nil {
		a.useless, a.touched = true, nil
	}
}
