package system

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// ChangeLogSize is how many changes of queues, and how many of quiet workers, a leader remembers. A copy that lacks more gets all of both.
const ChangeLogSize = 1000

// Kind says what has changed.
type Kind uint8

const (
	MapChanged    Kind = iota // nodes, shards or settings
	AccessChanged             // tokens or namespaces
	QueueChanged
	WorkerChanged // a worker's quiet state
)

// Change is a change made in a round. Only one of a queue or a worker has a name.
type Change struct {
	Kind Kind
	Name
}

// Name is the name of a queue, or the id of a worker.
type Name struct{ Namespace, Name string }

// changeLog remembers the latest changes of queues and quiet workers, and when the rest last changed.
type changeLog struct {
	known    bool   // base is known
	base     uint64 // all changes after this are remembered
	newest   uint64
	mapAt    uint64 // when nodes, shards or settings last changed; 0: not since base
	accessAt uint64 // when tokens and namespaces last changed
	queues   []namedChange
	workers  []namedChange
}

type namedChange struct {
	at   uint64
	name Name
}

func (r *changeLog) add(at uint64, ch Change) {
	r.newest = max(r.newest, at)
	switch ch.Kind {
	case QueueChanged:
		r.queues = r.addChange(r.queues, at, ch.Name)
	case WorkerChanged:
		r.workers = r.addChange(r.workers, at, ch.Name)
	case AccessChanged:
		r.accessAt = at
	case MapChanged:
		r.mapAt = at
	}
}

// addChange adds to a list of changes. It halves a full list, so that adding a change need not move all the others.
func (r *changeLog) addChange(list []namedChange, at uint64, name Name) []namedChange {
	list = append(list, namedChange{at, name})
	if len(list) >= 2*ChangeLogSize {
		list = slices.Clone(list[len(list)-ChangeLogSize:])
		r.forget(list[0].at)
	}
	return list
}

// since returns the names in a list that changed after a version.
func since(list []namedChange, after uint64) map[Name]bool {
	names := map[Name]bool{}
	for i := len(list) - 1; i >= 0 && list[i].at > after; i-- {
		names[list[i].name] = true
	}
	return names
}

// forget notes that changes of the round at this index may be gone.
func (r *changeLog) forget(at uint64) { r.base, r.known = max(r.base, at), true }

// learn sets the base of a term that has just begun, given the newest change that a view found after the term began. All changes of the
// term itself are remembered.
func (r *changeLog) learn(newest uint64) {
	if r.known {
		return
	}
	r.known, r.base = true, newest
	if len(r.queues) > 0 {
		r.base = min(r.base, r.queues[0].at-1)
	}
	if len(r.workers) > 0 {
		r.base = min(r.base, r.workers[0].at-1)
	}
	for _, at := range []uint64{r.mapAt, r.accessAt} {
		if at != 0 {
			r.base = min(r.base, at-1)
		}
	}
	r.newest = max(r.newest, newest)
}

// Changes says what has changed after a version.
type Changes struct {
	Version uint64 // of the newest change
	Known   bool   // this node leads, and knows what has changed
	All     bool   // perhaps everything
	Map     bool   // nodes, shards or settings
	Access  bool   // tokens or namespaces
	Queues  map[Name]bool
	Workers map[Name]bool
}

// Learn reads how new the tables were when this term began, unless that is known.
func (s *Shard) Learn(ctx context.Context) error {
	s.mu.Lock()
	term := s.term
	known := term != nil && term.changes.known
	s.mu.Unlock()
	if known {
		return nil
	}
	newest, err := View(ctx, s, func(r store.Reader) (uint64, error) { return Newest(r), nil })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if term != nil && s.term == term {
		term.changes.learn(newest)
	}
	return nil
}

// Await waits until there is something newer than after, or leadership is lost, but no longer than wait.
func (s *Shard) Await(ctx context.Context, after uint64, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		s.mu.Lock()
		changed, idle := s.changed, s.term != nil && s.term.changes.newest == after
		s.mu.Unlock()
		if !idle {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Changes returns what has changed after a version; 0: since ever.
func (s *Shard) Changes(after uint64) Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == nil {
		return Changes{}
	}
	r := &s.term.changes
	n := Changes{Version: r.newest, Known: r.known}
	if after == 0 || after < r.base || after > r.newest {
		n.All, n.Map, n.Access = true, true, true
		return n
	}
	n.Map, n.Access = r.mapAt > after, r.accessAt > after
	n.Queues, n.Workers = since(r.queues, after), since(r.workers, after)
	return n
}
