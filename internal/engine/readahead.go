package engine

import (
	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// ReadAhead is tasks of long queues that claims will want soon. Their rows are read on another goroutine, so that no round has to wait
// for the disk.
type ReadAhead struct {
	rows      *cache.Ahead
	stretches []lanes.Stretch
	tasks     [][]schema.ReadyTask // that were read of each
}

// maxStretches bounds the lanes of which tasks are read ahead at once.
const maxStretches = 16

// ReadAhead begins to read ahead; nil if there is nothing to read. It is called when a round has been applied. Read then reads the state as
// it is at that moment, and Take takes what it has read into a later round.
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
	return &ReadAhead{rows: rows, stretches: behind[:min(len(behind), maxStretches)]}
}

// Read does the reading.
func (a *ReadAhead) Read(from store.Reader) {
	a.tasks = make([][]schema.ReadyTask, len(a.stretches))
	for i := range a.stretches {
		tasks := a.stretches[i].Tasks(from)
		n := a.rows.Read(from, a.stretches[i].Namespace, tasks)
		a.tasks[i] = tasks[:n]
	}
}

// Take takes in what was read, between two rounds.
func (l *Leader) Take(a *ReadAhead) {
	if l.hot.Take(a.rows) {
		for i := range a.stretches {
			a.stretches[i].Done(a.tasks[i])
		}
	}
}
