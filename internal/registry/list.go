package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Query selects workers of a namespace.
type Query struct {
	Namespace string
	Began     time.Time  // when the namespace was added: workers that were last seen before were of an earlier one of its name
	ID        string     // only this one, with everything that it runs
	Queue     string     // only those that take tasks of it
	Type      string     // only those that take tasks of it
	Scope     task.Scope // only those that take tasks of a queue in it, and only that part of each
	After     Place      // only those after it
	Lost      bool       // lost workers too; nodes of older releases don't ask, and would take them for present ones
	OnlyLost  bool       // with Lost: no others
	Limit     int
}

// Place is a worker's place in a list: by name, then by id.
type Place struct{ Name, ID string }

// Compare orders places.
func (p Place) Compare(q Place) int {
	return cmp.Or(strings.Compare(p.Name, q.Name), strings.Compare(p.ID, q.ID))
}

// Place is the worker's place in a list.
func (i *Info) Place() Place { return Place{i.Name, i.ID} }

// Page is part of a list.
type Page struct {
	Workers []Info
	More    bool // there are more
}

const (
	// listRuns bounds the tasks listed per worker, oneRuns those of a worker that is asked for by id.
	listRuns = 10
	oneRuns  = 1000
	// maxPageBytes is about the largest size of a page in a message.
	maxPageBytes = 3 << 20
)

// List returns a page of the workers, in the order of their places.
func (r *Registry) List(q Query) (page Page) {
	now := time.Now()
	found := r.find(q, now)
	slices.SortFunc(found, func(a, b *Worker) int { return a.place().Compare(b.place()) })
	size, most := 0, listRuns
	if q.ID != "" {
		most = oneRuns
	}
	for i, w := range found {
		if i == q.Limit || size >= maxPageBytes {
			page.More = true
			return page
		}
		info := w.info(most, now, q.Scope)
		size += info.size()
		page.Workers = append(page.Workers, info)
	}
	return page
}

// find returns the workers that match a query.
func (r *Registry) find(q Query, now time.Time) (found []*Worker) {
	add := func(w *Worker) {
		if w.key.namespace == q.Namespace && (q.ID == "" || q.ID == w.key.id) && w.place().Compare(q.After) > 0 && w.takes(q) {
			found = append(found, w)
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !q.OnlyLost {
		r.eachPresent(q, now, add)
	}
	if q.Lost {
		r.eachLost(q.Namespace, add)
	}
	return found
}

// eachPresent calls fn for every present worker that may match. It is called with mu held.
func (r *Registry) eachPresent(q Query, now time.Time, fn func(*Worker)) {
	if q.ID != "" {
		if w := r.streams[key{q.Namespace, q.ID}]; w != nil {
			fn(w)
		}
	} else {
		for _, w := range r.streams {
			fn(w)
		}
	}
	for _, w := range r.claimers.of[q.Namespace] {
		if w.present(now) {
			fn(w)
		}
	}
}

// present reports whether a claimer is still listed.
func (w *Worker) present(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls > 0 || now.Sub(w.seen) <= KeptFor
}

// place does not change during a worker's life.
func (w *Worker) place() Place { return Place{w.hello.Name, w.key.id} }

// size returns about how many bytes a worker takes in a message.
func (i *Info) size() int {
	n := 300 + len(i.Name) + len(i.Host) + len(i.Version)
	for _, q := range i.Queues {
		n += len(q.Queue) + 8
	}
	for _, t := range i.Types {
		n += len(t) + 2
	}
	return n + 200*len(i.Running)
}

// Merge merges what several nodes report of the same workers, in the order of places. A worker that several nodes know is listed once, as
// reported by the node that saw it last, with what it runs through all of them. One that a node lost is present if another has seen it
// since.
func Merge(all []Info) (workers []Info) {
	slices.SortStableFunc(all, func(a, b Info) int {
		return cmp.Or(a.Place().Compare(b.Place()), compareLost(a.Lost, b.Lost), b.SeenAt.Compare(a.SeenAt))
	})
	for _, i := range all {
		n := len(workers) - 1
		if n < 0 || workers[n].Place() != i.Place() {
			workers = append(workers, i)
			continue
		}
		w := &workers[n]
		if i.Lost != nil && w.Lost == nil {
			if !w.Stream && !w.SeenAt.After(i.Lost.At) {
				*w = i
			}
			continue
		}
		w.Running = firstRuns(slices.Concat(w.Running, i.Running), oneRuns)
		w.RunningNow += i.RunningNow
		w.Hidden = w.Hidden || i.Hidden
		if w.Capacity > 0 { // a worker that moves between nodes
			w.RunningNow = min(w.RunningNow, w.Slots)
		} else {
			w.Slots += i.RunningNow
		}
		if i.ConnectedAt.Before(w.ConnectedAt) && !w.Stream {
			w.ConnectedAt = i.ConnectedAt
		}
		if w.Quiet == nil {
			w.Quiet = i.Quiet
		}
	}
	return workers
}

// compareLost sorts present workers before lost ones, and the latest lost first.
func compareLost(a, b *Lost) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return b.At.Compare(a.At)
}
