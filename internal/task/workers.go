package task

import (
	"slices"
	"time"
)

// QueueWorkers is what the nodes of a cluster know about the workers that take tasks of a queue.
type QueueWorkers struct {
	Groups []WorkerGroup
	// Workers counts the workers that take new tasks, each once.
	Workers int
	// Held counts the tasks of the queue held by workers that take no new ones.
	Held int64
	// Silent names running nodes that did not answer: workers may be connected to them.
	Silent []string
	// Away names nodes that have not been heard from for a while.
	Away []string
	// Known is how far back the nodes remember which workers claimed by single calls through them.
	Known time.Duration
}

// WorkerGroup counts workers that take the same types.
type WorkerGroup struct {
	Types  []string // sorted; none: all
	Untold bool     // it is unknown which types they take: there are too many different sets

	Connected   int // by a stream, and taking new tasks
	Slots, Busy int // of the connected workers
	Callers     int // workers that claim by single calls, and may claim again

	Quiet    int    // quieted by an operator
	QuietID  string // id of one of them
	Named    string // the name of that worker
	Draining int    // by their own report
}

// Active reports whether any worker of the group takes new tasks.
func (g *WorkerGroup) Active() bool { return g.Connected+g.Callers > 0 }

// Takes reports whether the group takes a type, as far as known.
func (g *WorkerGroup) Takes(typ string) bool { return !g.Untold && TakesType(g.Types, typ) }

// Add adds the workers of another group to this one.
func (g *WorkerGroup) Add(o *WorkerGroup) {
	g.Connected, g.Slots, g.Busy, g.Callers = g.Connected+o.Connected, g.Slots+o.Slots, g.Busy+o.Busy, g.Callers+o.Callers
	g.Quiet, g.Draining = g.Quiet+o.Quiet, g.Draining+o.Draining
	if o.QuietID != "" && (g.QuietID == "" || o.QuietID < g.QuietID) {
		g.QuietID, g.Named = o.QuietID, o.Named
	}
}

// TakesType reports whether a worker that takes some types takes this one. The types are sorted; none means all.
func TakesType(types []string, typ string) bool {
	if len(types) == 0 {
		return true
	}
	_, found := slices.BinarySearch(types, typ)
	return found
}
