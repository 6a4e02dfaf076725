package waiting

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Holds are the backups that hold a shard. Every hold ends by itself.
type Holds struct {
	mu    sync.Mutex
	until map[task.ID]store.Time // by the ids of their cuts
	freed chan struct{}          // closed when holds are released
}

// MaxHolds bounds the backups that may hold a shard at a time.
const MaxHolds = 16

// Add lets a backup hold the shard for task.CutWindow from now on.
func (h *Holds) Add(id task.ID, now store.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropEnded(now)
	if _, again := h.until[id]; !again && len(h.until) >= MaxHolds {
		return task.Unavailable(task.CutWindow, "%d backups are beginning at this moment", len(h.until))
	}
	if h.until == nil {
		h.until = map[task.ID]store.Time{}
	}
	h.until[id] = now.Add(task.CutWindow)
	return nil
}

func (h *Holds) dropEnded(now store.Time) {
	maps.DeleteFunc(h.until, func(_ task.ID, until store.Time) bool { return until <= now })
}

// Has reports whether a backup holds the shard.
func (h *Holds) Has(id task.ID, now store.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until[id] > now
}

// Release ends the hold of a backup.
func (h *Holds) Release(id task.ID) {
	h.end(func(held task.ID, _ store.Time) bool { return held == id })
}

// ReleaseAll ends all holds, because this replica no longer leads the shard.
func (h *Holds) ReleaseAll() { h.end(func(task.ID, store.Time) bool { return true }) }

func (h *Holds) end(over func(task.ID, store.Time) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.until, over)
	if h.freed != nil {
		close(h.freed)
		h.freed = nil
	}
}

// Held reports whether any backup holds the shard.
func (h *Holds) Held(now store.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropEnded(now)
	return len(h.until) > 0
}

// Wait waits until a hold is released, or the next ends by itself.
func (h *Holds) Wait(ctx context.Context, now store.Time) error {
	h.mu.Lock()
	h.dropEnded(now)
	if len(h.until) == 0 {
		h.mu.Unlock()
		return nil
	}
	if h.freed == nil {
		h.freed = make(chan struct{})
	}
	freed, soon := h.freed, task.CutWindow
	for _, until := range h.until {
		soon = min(soon, until.Sub(now))
	}
	h.mu.Unlock()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-freed:
	case <-timer.C:
	}
	return nil
}
