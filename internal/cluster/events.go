package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Events reads the events of queues after a place, waiting for the first.
func (c *Control) Events(ctx context.Context, q events.Query) (events.Page, error) {
	page, err := c.events.Read(ctx, q)
	if !errors.Is(err, events.ErrClosed) {
		return page, err
	}
	// If another node leads, a view returns an error that says so.
	if _, err := view(ctx, c, func(store.Reader) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return page, err
	}
	return page, task.Unavailable(followPause, "system shard: its leader has just changed")
}

// addEvent records an event of a queue in the round in flight, for those who read events.
func (c *Control) addEvent(tx *store.Tx, kind events.Kind, q Queue, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == nil {
		return
	}
	c.leading.events = append(c.leading.events, events.Event{Kind: kind, Namespace: q.Namespace, Queue: q.Name, Reason: reason, At: wallOf(tx)})
}

func wallOf(tx *store.Tx) time.Time { return tx.Now().Time() }

// addQueueEvent records what changed in a queue's configuration.
func (c *Control) addQueueEvent(tx *store.Tx, q Queue, exists bool, was task.QueueConfig) {
	now := &q.Config
	switch {
	case !exists:
		c.addEvent(tx, events.QueueCreated, q, "")
	case now.Paused && !was.Paused || len(now.Holds) > len(was.Holds):
		c.addEvent(tx, events.QueuePaused, q, now.PausedReason)
	case !now.Paused && was.Paused || len(now.Holds) < len(was.Holds):
		c.addEvent(tx, events.QueueResumed, q, "")
	default:
		c.addEvent(tx, events.QueueChanged, q, "")
	}
}
