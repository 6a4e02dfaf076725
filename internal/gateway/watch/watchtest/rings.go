// Package watchtest has a source of events for tests. It knows the rings of package events, and that a shard may not answer.
package watchtest

import (
	"context"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/task"
)

// Rings has a ring of events for each shard.
type Rings struct {
	mu    sync.Mutex
	rings map[uint32]*events.Ring
	index uint64
	dark  map[uint32]bool // shards that don't answer
}

// NewRings returns rings without events.
func NewRings() *Rings {
	return &Rings{rings: map[uint32]*events.Ring{}, dark: map[uint32]bool{}}
}

// Ring returns the ring of a shard.
func (f *Rings) Ring(shard uint32) *events.Ring {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rings[shard] == nil {
		f.rings[shard] = &events.Ring{}
		f.rings[shard].Open()
	}
	return f.rings[shard]
}

// ChangeLeader closes a shard's ring and opens another, as a new leader does.
func (f *Rings) ChangeLeader(shard uint32) {
	f.Ring(shard).Close()
	f.Ring(shard).Open()
}

// SetDark makes a shard answer no more, or again.
func (f *Rings) SetDark(shard uint32, dark bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dark[shard] = dark
}

// Events implements watch.Source.
func (f *Rings) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	r := f.Ring(shard)
	f.mu.Lock()
	dark := f.dark[shard]
	f.mu.Unlock()
	if dark {
		return events.Page{}, task.Unavailable(0, "dark")
	}
	return r.Read(ctx, q)
}

// Happen adds to a shard an event of a dead task for each of the queues.
func (f *Rings) Happen(shard uint32, queues ...string) {
	r := f.Ring(shard)
	f.index++
	interest := r.Committed(f.index)
	if interest == events.None {
		return
	}
	var all []events.Event
	for _, q := range queues {
		all = append(all, events.Event{Kind: events.TaskDead, At: time.Now(), Namespace: "default", Queue: q, Type: "a\nb",
			Task: task.NewID(shard, 1, f.index), State: task.Dead, Attempt: 2, Worker: "w1", Reason: "not_retryable"})
	}
	r.Add(f.index, interest, all)
}
