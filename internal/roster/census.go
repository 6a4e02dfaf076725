package roster

import "time"

// Census counts the workers of a namespace on this node.
type Census struct {
	Namespace  string
	Workers    map[string]int // by queue that they take tasks of; quiet ones and those that drain take none
	Busy, Free int            // slots; of one who claims by single calls as many as it runs
	Quiet      int            // workers that were made quiet, or drain
}

// Other stands for the queues beyond those that a census names.
const Other = "_other"

// maxCensusQueues bounds the queues of a census of a namespace: workers name what they like.
const maxCensusQueues = 1000

// Census counts the workers of each namespace.
func (r *Roster) Census() map[string]*Census {
	now := time.Now()
	all := map[string]*Census{}
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

func (w *Worker) count(all map[string]*Census) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := all[w.key.namespace]
	if c == nil {
		c = &Census{Namespace: w.key.namespace, Workers: map[string]int{}}
		all[w.key.namespace] = c
	}
	busy, slots := w.load()
	c.Busy += busy
	if w.rests() {
		c.Quiet++
		return
	}
	c.Free += slots - busy
	for _, q := range w.hello.Queues {
		name := q.Queue
		if _, known := c.Workers[name]; !known && len(c.Workers) >= maxCensusQueues {
			name = Other
		}
		c.Workers[name]++
	}
}
