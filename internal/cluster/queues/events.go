package queues

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
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

// addEvent records an event of a queue in the round in flight, for those who read events. A pause of the whole queue has no type and no key.
func (s *Queues) addEvent(tx *store.Tx, kind events.Kind, q Queue, pause task.Hold) {
	s.pending.In(s.shard, func(pending *[]events.Event) {
		*pending = append(*pending, events.Event{Kind: kind, Namespace: q.Namespace, Queue: q.Name, Type: pause.Type, Key: pause.Key, Reason: pause.Reason, At: wallOf(tx)})
	})
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
	switch {
	case !exists:
		s.addEvent(tx, events.QueueCreated, q, task.Hold{})
	case len(now.Holds) > len(was.Holds): // the newest is the last
		s.addEvent(tx, events.QueuePaused, q, now.Holds[len(now.Holds)-1])
	case now.Paused && !was.Paused:
		s.addEvent(tx, events.QueuePaused, q, task.Hold{Reason: now.PausedReason})
	case len(now.Holds) < len(was.Holds):
		s.addEvent(tx, events.QueueResumed, q, resumed(was.Holds, now.Holds))
	case !now.Paused && was.Paused:
		s.addEvent(tx, events.QueueResumed, q, task.Hold{})
	default:
		s.addEvent(tx, events.QueueChanged, q, task.Hold{})
	}
}

// resumed returns the type or key whose pause has ended.
func resumed(was, now []task.Hold) task.Hold {
	for _, h := range was {
		if !slices.ContainsFunc(now, func(n task.Hold) bool { return n.Type == h.Type && n.Key == h.Key }) {
			return task.Hold{Type: h.Type, Key: h.Key}
		}
	}
	return task.Hold{}
}
