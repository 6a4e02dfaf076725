package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/workers"
)

// Copy is a node's copy of the system shard's tables. It may be behind. Its methods may be called from any goroutine.
type Copy struct {
	current atomic.Pointer[Map]

	mu     sync.RWMutex
	queues map[system.Name]queues.Queue
	// gone holds queues that were deleted through this node, with the version that they had, until a Delta reports it: one in flight may
	// still include them.
	gone    map[system.Name]uint64
	version uint64 // of the latest delta; 0: none yet
	access  func(auth.Access)
	changed chan struct{} // closed when the map changes
	onQuiet func(version uint64, all bool, quiet []workers.Quiet, resumed []workers.Name)
}

// NewCopy returns a copy without queues. known is the map from before a restart; nil: none.
func NewCopy(known *Map) *Copy {
	if known == nil {
		known = &Map{}
	}
	c := &Copy{queues: map[system.Name]queues.Queue{}, gone: map[system.Name]uint64{}, changed: make(chan struct{}),
		onQuiet: func(uint64, bool, []workers.Quiet, []workers.Name) {}}
	c.current.Store(known)
	return c
}

// OnAccess has fn called with the tokens and namespaces whenever they have changed. It must be called before the first Apply.
func (c *Copy) OnAccess(fn func(auth.Access)) { c.access = fn }

// Map returns the cluster as this node knows it.
func (c *Copy) Map() *Map { return c.current.Load() }

// Version returns up to which change the copy is complete; 0: it has had no answer yet.
func (c *Copy) Version() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Changed returns a channel that is closed when the map is replaced. Get it before reading the map.
func (c *Copy) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Node returns a node of the map.
func (c *Copy) Node(number uint32) (Node, bool) { return c.Map().Node(number) }

// Shard returns a shard of the map.
func (c *Copy) Shard(id uint32) (Shard, bool) { return c.Map().Shard(id) }

// Shards returns the data shards.
func (c *Copy) Shards() []uint32 { return system.DataShards(c.Map().Settings.DataShards) }

// AuditKeep returns how long audit entries are kept according to this copy. While the copy is empty, none expire.
func (c *Copy) AuditKeep() time.Duration {
	m := c.Map()
	if m.Version == 0 {
		return audit.MaxKeep
	}
	return m.Settings.AuditKeep()
}

// Apply applies an answer of Copies.Changes. An answer that is older than the copy is ignored, unless it holds everything.
func (c *Copy) Apply(d Delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Version < c.version && !d.All {
		return
	}
	if d.All {
		clear(c.queues)
		clear(c.gone)
	}
	for _, q := range d.Queues {
		if !d.All && c.isGone(q) {
			continue
		}
		c.queues[q.FullName()] = q
	}
	for _, name := range d.Dropped {
		delete(c.queues, name)
		delete(c.gone, name)
	}
	if d.Access != nil && c.access != nil {
		c.access(*d.Access) // before the version, by which the node confirms that it has applied it
	}
	c.version = d.Version
	c.onQuiet(d.Version, d.All, d.Quiet, d.Resumed)
	if d.Map != nil {
		c.replace(d.Map)
	}
}

// Learn replaces the map by a newer one that another node has, and reports whether it was newer. As with a map from before a restart, the
// copy is not complete until the leader has answered.
func (c *Copy) Learn(m *Map) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Version <= c.current.Load().Version {
		return false
	}
	c.version = 0
	c.replace(m)
	return true
}

// replace replaces the map. The caller holds the lock.
func (c *Copy) replace(m *Map) {
	c.current.Store(m)
	close(c.changed)
	c.changed = make(chan struct{})
}

// OnQuiet has fn called whenever the copy has had an answer of the leader, with the workers that are quiet and those no longer so: all that
// are quiet, or the changes since the previous call. version is the copy's. fn is called with a lock held, and must not block. OnQuiet must
// be called before the first Apply.
func (c *Copy) OnQuiet(fn func(version uint64, all bool, quiet []workers.Quiet, resumed []workers.Name)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onQuiet = fn
}

// Learned adds a queue that the system shard's leader has just returned.
func (c *Copy) Learned(q queues.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.queues[q.FullName()]; !c.isGone(q) && (!ok || q.NewerThan(old)) {
		c.queues[q.FullName()] = q
	}
}

// Dropped removes a queue that was just deleted.
func (c *Copy) Dropped(ns, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q, ok := c.queues[system.Name{Namespace: ns, Name: name}]; ok {
		c.gone[q.FullName()] = q.Config.Version
		delete(c.queues, q.FullName())
	}
}

// isGone reports whether a queue was deleted after the state in which an answer in flight describes it. The caller holds the lock.
func (c *Copy) isGone(q queues.Queue) bool {
	version, ok := c.gone[q.FullName()]
	return ok && q.Config.Version <= version
}

// Queue returns a queue, if it exists as far as this node knows.
func (c *Copy) Queue(ns, name string) (queues.Queue, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.queues[system.Name{Namespace: ns, Name: name}]
	return q, ok
}

// Namespaces returns the namespaces with queues.
func (c *Copy) Namespaces() (names []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for q := range c.queues {
		if !slices.Contains(names, q.Namespace) {
			names = append(names, q.Namespace)
		}
	}
	slices.Sort(names)
	return names
}
