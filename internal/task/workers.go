package task

import (
	"slices"
	"time"
)

// QueueWorkers is what the nodes of a cluster know of the workers that take tasks of a queue.
type QueueWorkers struct {
	Groups []WorkerGroup
	// Workers counts those that take new tasks, each once.
	Workers int
	// Held counts the tasks of the queue that workers hold which take no new ones.
	Held int64
	// Silent names nodes that run and gave no answer: workers may be connected to them.
	Silent []string
	// Away names nodes that have not been heard of for a while.
	Away []string
	// Known is how far back the nodes remember who claimed by single calls through them.
	Known time.Duration
}

// WorkerGroup counts workers that take the same types.
type WorkerGroup struct {
	Types  []string // sorted; none: all
	Untold bool     // which types they take is not told: there are too many sets of them

	Connected   int // by a stream, and take new tasks
	Slots, Busy int // of those
	Callers     int // claim by single calls, and may claim again

	Quiet    int    // by an operator's word
	QuietID  string // of one of them
	Named    string // how that one calls itself
	Draining int    // by their own word
}

// Active says whether any of the group takes new tasks.
func (g *WorkerGroup) Active() bool { return g.Connected+g.Callers > 0 }

// Takes says whether the group takes a type, as far as that is told.
func (g *WorkerGroup) Takes(typ string) bool { return !g.Untold && TakesType(g.Types, typ) }

// Add counts the workers of another group as of this one.
func (g *WorkerGroup) Add(o *WorkerGroup) {
	g.Connected, g.Slots, g.Busy, g.Callers = g.Connected+o.Connected, g.Slots+o.Slots, g.Busy+o.Busy, g.Callers+o.Callers
	g.Quiet, g.Draining = g.Quiet+o.Quiet, g.Draining+o.Draining
	if o.QuietID != "" && (g.QuietID == "" || o.QuietID < g.QuietID) {
		g.QuietID, g.Named = o.QuietID, o.Named
	}
}

// TakesType says whether someone who takes some types takes this one. They are sorted; none stands for all.
func TakesType(types []string, typ string) bool {
	if len(types) == 0 {
		return true
	}
	_, found := slices.BinarySearch(types, typ)
	return found
}
