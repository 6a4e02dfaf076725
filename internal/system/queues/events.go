package queues

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// Events reads the events of queues after a place, waiting for the first.
func (s *Queues) Events(ctx context.Context, q events.Query) (events.Page, error) {
	page, err := s.events.Read(ctx, q)
	if !errors.Is(err, events.ErrClosed) {
		return page, err
	}
	// If another node leads, a view returns an error that says so.
	if _, err := system.View(ctx, s.shard, func(store.Reader) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return page, err
	}
	return page, system.LeaderChanged()
}

// addEvent records an event of a queue in the round in flight, for those who read events.
func (s *Queues) addEvent(tx *store.Tx, q Queue, e events.Event) {
	e.Namespace, e.Queue, e.At = q.Namespace, q.Name, wallOf(tx)
	s.pending.In(s.shard, func(pending *[]events.Event) { *pending = append(*pending, e) })
}

// Elected has events kept for those who read them, and Dropped wakes them when a term is over.
func (s *Queues) Elected() { s.events.Open() }

// Dropped is described at Elected.
func (s *Queues) Dropped() { s.events.Close() }

// Committed is called when the round at this index of the system shard's log has been applied.
func (s *Queues) Committed(at uint64) {
	var happened []events.Event
	if !s.pending.In(s.shard, func(pending *[]events.Event) { happened, *pending = *pending, nil }) {
		return
	}
	if interest := s.events.Committed(at); interest != events.None {
		s.events.Add(at, interest, happened)
	}
}

func wallOf(tx *store.Tx) time.Time { return tx.Now().Time() }

// addQueueEvent records what changed in a queue's configuration.
func (s *Queues) addQueueEvent(tx *store.Tx, q Queue, exists bool, was task.QueueConfig) {
	now := &q.Config
	var e events.Event
	switch {
	case !exists:
		e.Kind = events.QueueCreated
	case len(now.Holds) > len(was.Holds):
		h := now.Holds[len(now.Holds)-1] // the newest
		e = events.Event{Kind: events.QueuePaused, Type: h.Type, Key: h.Key, Reason: h.Reason}
	case now.Paused && !was.Paused:
		e = events.Event{Kind: events.QueuePaused, Reason: now.PausedReason}
	case len(now.Holds) < len(was.Holds):
		h := resumed(was.Holds, now.Holds)
		e = events.Event{Kind: events.QueueResumed, Type: h.Type, Key: h.Key}
	case !now.Paused && was.Paused:
		e.Kind = events.QueueResumed
	default:
		e.Kind = events.QueueChanged
	}
	s.addEvent(tx, q, e)
}

// resumed returns the pause of a type or key that has ended.
func resumed(was, now []task.Hold) (ended task.Hold) {
	for _, h := range was {
		if !slices.ContainsFunc(now, func(n task.Hold) bool { return n.Type == h.Type && n.Key == h.Key }) {
			return h
		}
	}
	return ended
}
