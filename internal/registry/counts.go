package registry

import "time"

// Counts counts the workers of a namespace on this node.
type Counts struct {
	Namespace  string
	Workers    map[string]int // by queue that they take tasks from; quiet and draining workers take none
	Busy, Free int            // slots; a worker that claims by single calls has as many as it runs
	Quiet      int            // quiet or draining workers
}

// Other stands for the queues beyond those that Counts lists.
const Other = "_other"

// maxCountedQueues bounds the queues that Counts lists in a namespace: workers may name any number.
const maxCountedQueues = 1000

// Counts counts the workers of each namespace.
func (r *Registry) Counts() map[string]*Counts {
	now := time.Now()
	all := map[string]*Counts{}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, w := range r.streams {
		w.count(all)
	}
	for _, w := range r.claimers.all() {
		if w.present(now) {
			w.count(all)
		}
	}
	return all
}

func (w *Worker) count(all map[string]*Counts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := all[w.key.namespace]
	if c == nil {
		c = &Counts{Namespace: w.key.namespace, Workers: map[string]int{}}
		all[w.key.namespace] = c
	}
	busy, slots := w.load()
	c.Busy += busy
	if w.takesNone() {
		c.Quiet++
		return
	}
	c.Free += slots - busy
	for _, q := range w.hello.Queues {
		name := q.Queue
		if _, known := c.Workers[name]; !known && len(c.Workers) >= maxCountedQueues {
			name = Other
		}
		c.Workers[name]++
	}
}
