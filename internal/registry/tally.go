package registry

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// QueueName names a queue.
type QueueName struct{ Namespace, Name string }

// Tally counts the workers of one node for some queues, in the order of the queues.
type Tally struct {
	Queues [][]Group
	Types  [][]string    // the sets of types that the groups take
	Age    time.Duration // how far back the node remembers workers that claimed through it by single calls
}

// Group counts the workers of a queue that take the same types.
type Group struct {
	Types     int // index in Tally.Types, counted from 1; 0: there are too many sets to list
	Connected int // workers that take new tasks over a stream, which leads to one node only
	Slots     int // their slots
	Busy      int
	// Callers claim by single calls. They may call several nodes, so they are identified by hashes of their ids, up to maxTallied.
	Callers     []uint64
	MoreCallers int

	Quiet          int // quiet workers with a stream, and quiet callers beyond the bound
	QuietCallers   []uint64
	QuietID, Named string // id and name of one of them
	Draining       int
	Held           int64 // tasks of the queue held by quiet and draining workers
}

// Bounds of a tally: workers may name any queues and types.
const (
	maxTallied     = 20_000 // callers listed one by one
	maxTypeSets    = 1_000
	maxTypesOfSets = 20_000 // types in all sets
	maxGroups      = 20_000
)

// tallier counts workers.
type tallier struct {
	queues map[QueueName]int
	sets   map[string]int // indexes in Tally.Types (from 1) by types
	groups map[[2]int]*Group
	types  int // in all sets
	listed int // callers listed
	now    time.Time
	Tally
}

// Tally counts the workers that take tasks of some queues.
func (r *Registry) Tally(queues []QueueName) Tally {
	t := &tallier{queues: make(map[QueueName]int, len(queues)), sets: map[string]int{}, groups: map[[2]int]*Group{}, now: time.Now()}
	spaces := map[string]bool{}
	for i, q := range queues {
		t.queues[q] = i
		spaces[q.Namespace] = true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	t.Age = t.now.Sub(r.remembers)
	for _, w := range r.streams {
		if spaces[w.key.namespace] {
			t.count(w)
		}
	}
	for ns := range spaces {
		for _, w := range r.claimers.of[ns] {
			if w.present(t.now) {
				t.count(w)
			}
		}
	}
	t.Queues = make([][]Group, len(queues))
	for at, g := range t.groups {
		t.Queues[at[0]] = append(t.Queues[at[0]], *g)
	}
	return t.Tally
}

// count adds a worker to the groups of the queues that it takes tasks from.
func (t *tallier) count(w *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := -1 // not looked up
	for _, s := range w.hello.Queues {
		i, asked := t.queues[QueueName{w.key.namespace, s.Queue}]
		if !asked {
			continue
		}
		if set < 0 {
			set = t.set(w.hello.Types)
		}
		t.add(t.group(i, set), w)
	}
	if set < 0 || !w.takesNone() {
		return
	}
	w.overdue(t.now)
	for _, run := range w.running {
		if i, asked := t.queues[QueueName{w.key.namespace, run.Queue}]; asked {
			t.group(i, set).Held++
		}
	}
}

// set returns the index of a set of types, which is added if there is room.
func (t *tallier) set(types []string) int {
	types = slices.Sorted(slices.Values(types))
	key := strings.Join(types, "\x00")
	if at, known := t.sets[key]; known {
		return at
	}
	if len(t.Types) >= maxTypeSets || t.types+len(types) > maxTypesOfSets {
		return 0
	}
	t.types += len(types)
	t.Types = append(t.Types, types)
	t.sets[key] = len(t.Types)
	return len(t.Types)
}

func (t *tallier) group(queue, set int) *Group {
	at := [2]int{queue, set}
	if t.groups[at] == nil && len(t.groups) >= maxGroups {
		at[1], set = 0, 0
	}
	if t.groups[at] == nil {
		t.groups[at] = &Group{Types: set}
	}
	return t.groups[at]
}

// add counts a worker as one of a group. It is called with the worker's mu held.
func (t *tallier) add(g *Group, w *Worker) {
	switch {
	case w.quiet != nil:
		if w.stream || t.listed >= maxTallied {
			g.Quiet++
		} else {
			t.listed++
			g.QuietCallers = append(g.QuietCallers, w.key.short())
		}
		if g.QuietID == "" || w.key.id < g.QuietID {
			g.QuietID, g.Named = w.key.id, w.hello.Name
		}
	case w.drains:
		g.Draining++
	case w.stream:
		busy, slots := w.load()
		g.Connected, g.Busy, g.Slots = g.Connected+1, g.Busy+busy, g.Slots+slots
	case t.listed < maxTallied:
		t.listed++
		g.Callers = append(g.Callers, w.key.short())
	default:
		g.MoreCallers++
	}
}

// takesNone reports whether the worker takes no new tasks. It is called with mu held.
func (w *Worker) takesNone() bool { return w.quiet != nil || w.drains }

// short returns the first 8 bytes of a claimer's id, which is a hash.
func (k key) short() uint64 {
	var b [8]byte
	_, _ = hex.Decode(b[:], []byte(k.id[:16]))
	return binary.BigEndian.Uint64(b[:])
}

// Sum adds up the tallies that several nodes made for the same queues.
func Sum(tallies []Tally, queues int) []task.QueueWorkers {
	out := make([]task.QueueWorkers, queues)
	for i := range out {
		out[i] = sumOf(tallies, i)
	}
	return out
}

// sumOf adds up the tallies for one queue.
func sumOf(tallies []Tally, queue int) (sum task.QueueWorkers) {
	type summed struct {
		task.WorkerGroup
		callers, quiet map[uint64]bool
	}
	groups, everyone := map[string]*summed{}, map[uint64]bool{}
	for n := range tallies {
		t := &tallies[n]
		if sum.Known = min(sum.Known, t.Age); n == 0 {
			sum.Known = t.Age
		}
		if queue >= len(t.Queues) {
			continue
		}
		for j := range t.Queues[queue] {
			g := &t.Queues[queue][j]
			types, known := t.typesOf(g)
			key := "-" + strings.Join(types, "\x00")
			if !known {
				key = ""
			}
			s := groups[key]
			if s == nil {
				s = &summed{task.WorkerGroup{Types: types, Untold: !known}, map[uint64]bool{}, map[uint64]bool{}}
				groups[key] = s
			}
			s.Connected, s.Slots, s.Busy = s.Connected+g.Connected, s.Slots+g.Slots, s.Busy+g.Busy
			s.Callers, s.Quiet, s.Draining = s.Callers+g.MoreCallers, s.Quiet+g.Quiet, s.Draining+g.Draining
			if g.QuietID != "" && (s.QuietID == "" || g.QuietID < s.QuietID) {
				s.QuietID, s.Named = g.QuietID, g.Named
			}
			for _, id := range g.Callers {
				s.callers[id], everyone[id] = true, true
			}
			for _, id := range g.QuietCallers {
				s.quiet[id] = true
			}
			sum.Workers += g.Connected + g.MoreCallers
			sum.Held += g.Held
		}
	}
	sum.Workers += len(everyone)
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		s := groups[key]
		s.Callers += len(s.callers)
		s.Quiet += len(s.quiet)
		sum.Groups = append(sum.Groups, s.WorkerGroup)
	}
	return sum
}

// typesOf returns the types that a group takes. known is false if they are unknown.
func (t *Tally) typesOf(g *Group) (types []string, known bool) {
	if g.Types < 1 || g.Types > len(t.Types) { // a later release may send more
		return nil, false
	}
	return t.Types[g.Types-1], true
}
