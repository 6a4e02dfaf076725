package engine

import (
	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// ReadAhead holds tasks of long queues that will be claimed soon. Their rows are read on another goroutine, so that no
// round has to wait for the disk.
type ReadAhead struct {
	rows   *cache.Ahead
	ranges []lanes.Range
	tasks  [][]schema.ReadyTask // read, for each range
}

// maxRanges bounds the lanes of which tasks are read ahead at once.
const maxRanges = 16

// ReadAhead starts a read-ahead, or returns nil if there is nothing to read. It is called when a round has been
// applied. Read then reads the state at that moment, and Take adds what was read to the cache before a later round.
func (l *Leader) ReadAhead() *ReadAhead {
	behind := l.behind
	l.behind = nil
	if len(behind) == 0 {
		return nil
	}
	rows := l.hot.ReadAhead()
	if rows == nil {
		return nil
	}
	return &ReadAhead{rows: rows, ranges: behind[:min(len(behind), maxRanges)]}
}

// Read reads the tasks. It leaves out a range with a row that can't be understood: the claim that needs the row will say so.
func (a *ReadAhead) Read(from store.Reader) {
	a.tasks = make([][]schema.ReadyTask, len(a.ranges))
	for i := range a.ranges {
		_ = schema.Catch(func() {
			tasks := a.ranges[i].Tasks(from)
			n := a.rows.Read(from, a.ranges[i].Namespace, tasks)
			a.tasks[i] = tasks[:n]
		})
	}
}

// Take adds what was read to the cache. It must be called between rounds.
func (l *Leader) Take(a *ReadAhead) {
	if l.hot.Take(a.rows) {
		for i := range a.ranges {
			a.ranges[i].Done(a.tasks[i])
		}
	}
}
