package broker

import (
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// results wakes callers that wait for the end of a task, or until an operation stops running.
type results struct {
	mu      sync.Mutex
	waiting map[task.ID][]chan struct{}
}

// wait returns a channel that is closed when the task has ended or this replica can no longer report it, and a function
// that must always be called afterwards.
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
		h.wake(t.ID)
	}
}

// operationsChanged wakes callers that wait for operations.
func (h *results) operationsChanged(operations []task.ID) {
	if len(operations) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range operations {
		h.wake(id)
	}
}

func (h *results) wake(id task.ID) {
	for _, c := range h.waiting[id] {
		close(c)
	}
	delete(h.waiting, id)
}

// wakeAll wakes all callers: this replica no longer learns when tasks end.
func (h *results) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, waiting := range h.waiting {
		for _, c := range waiting {
			close(c)
		}
	}
	h.waiting = nil
}
