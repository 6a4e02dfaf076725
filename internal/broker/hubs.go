package broker

import (
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// results wakes those who wait for the end of a task.
type results struct {
	mu      sync.Mutex
	waiting map[task.ID][]chan struct{}
}

// wait returns a channel that is closed when the task has ended, and a function to be called in any case afterwards.
func (h *results) wait(id task.ID) (ended <-chan struct{}, forget func()) {
	c := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[task.ID][]chan struct{}{}
	}
	h.waiting[id] = append(h.waiting[id], c)
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		rest := slices.DeleteFunc(h.waiting[id], func(have chan struct{}) bool { return have == c })
		if len(rest) == 0 {
			delete(h.waiting, id)
		} else {
			h.waiting[id] = rest
		}
	}
}

func (h *results) ended(tasks []engine.Ended) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return
	}
	for _, t := range tasks {
		for _, c := range h.waiting[t.ID] {
			close(c)
		}
		delete(h.waiting, t.ID)
	}
}

// ClaimWatch tells the holder of claims when one of them ends without its doing.
type ClaimWatch struct {
	b    *Broker
	lost chan Lost

	mu   sync.Mutex
	held map[task.ID]task.Token
}

// watches knows which watch looks after which claim.
type watches struct {
	mu     sync.Mutex
	byTask map[task.ID]*ClaimWatch
}

// WatchClaims starts a watch without claims. At most buffer notices wait to be read; more are dropped, and the holder
// learns of them when it settles or extends.
func (b *Broker) WatchClaims(buffer int) *ClaimWatch {
	return &ClaimWatch{b: b, lost: make(chan Lost, buffer), held: map[task.ID]task.Token{}}
}

// Lost gives a notice for each watched claim that ended without its holder's doing.
func (w *ClaimWatch) Lost() <-chan Lost { return w.lost }

// Add watches a claim.
func (w *ClaimWatch) Add(id task.ID, t task.Token) {
	r, err := w.b.replicaOf(id)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.held[id] = t
	w.mu.Unlock()
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	if r.watches.byTask == nil {
		r.watches.byTask = map[task.ID]*ClaimWatch{}
	}
	r.watches.byTask[id] = w
}

// Remove ends the watch of a claim.
func (w *ClaimWatch) Remove(id task.ID, t task.Token) {
	w.mu.Lock()
	held := w.held[id] == t
	if held {
		delete(w.held, id)
	}
	w.mu.Unlock()
	if r, err := w.b.replicaOf(id); held && err == nil {
		r.watches.forget(id, w)
	}
}

// Close ends the watch of all claims.
func (w *ClaimWatch) Close() {
	w.mu.Lock()
	held := w.held
	w.held = map[task.ID]task.Token{}
	w.mu.Unlock()
	for id := range held {
		if r, err := w.b.replicaOf(id); err == nil {
			r.watches.forget(id, w)
		}
	}
}

func (h *watches) forget(id task.ID, w *ClaimWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byTask[id] == w {
		delete(h.byTask, id)
	}
}

func (h *watches) lost(claims []engine.Lost) {
	if len(claims) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range claims {
		if w := h.byTask[l.ID]; w != nil {
			w.tell(l)
		}
	}
}

// tell passes on a notice about the claim that the watch holds, not about an earlier one.
func (w *ClaimWatch) tell(l Lost) {
	w.mu.Lock()
	held := w.held[l.ID] == l.Token
	w.mu.Unlock()
	if !held {
		return
	}
	select {
	case w.lost <- l:
	default:
	}
}
