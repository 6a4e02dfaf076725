package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pawlq/pawl/internal/auth"
)

// Map is the cluster as it was at one moment: nodes and shards in the order of their numbers. It is never changed.
type Map struct {
	Version  uint64 // index of the newest change to the system shard's tables that it holds
	Settings Settings
	Nodes    []Node
	Shards   []Shard
}

// Node is the node with a number.
func (m *Map) Node(number uint32) (Node, bool) {
	i, ok := slices.BinarySearchFunc(m.Nodes, number, func(n Node, want uint32) int { return cmp.Compare(n.Number, want) })
	if !ok {
		return Node{}, false
	}
	return m.Nodes[i], true
}

// Members are the nodes that are not removed.
func (m *Map) Members() []Node {
	return slices.DeleteFunc(slices.Clone(m.Nodes), func(n Node) bool { return n.State == Removed })
}

// Named is the node of a name that is not removed.
func (m *Map) Named(name string) (Node, bool) {
	for _, n := range m.Nodes {
		if n.Name == name && n.State != Removed {
			return n, true
		}
	}
	return Node{}, false
}

// Shard is the placement of a shard.
func (m *Map) Shard(id uint32) (Shard, bool) {
	i, ok := slices.BinarySearchFunc(m.Shards, id, func(s Shard, want uint32) int { return cmp.Compare(s.ID, want) })
	if !ok {
		return Shard{}, false
	}
	return m.Shards[i], true
}

// mapFormat is the version of a map's form in a file.
const mapFormat = 1

type mapFile struct {
	Format int
	*Map
}

// Encode is the map for a file, by which a node finds the others after a restart.
func (m *Map) Encode() []byte {
	b, err := json.MarshalIndent(mapFile{mapFormat, m}, "", " ")
	if err != nil {
		panic(err) // numbers, strings and bytes always have a form
	}
	return append(b, '\n')
}

// DecodeMap is the inverse of Encode.
func DecodeMap(b []byte) (*Map, error) {
	f := mapFile{Map: &Map{}}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("map of the cluster: %w", err)
	}
	if f.Format != mapFormat {
		return nil, fmt.Errorf("map of the cluster: it has format %d, this version knows %d", f.Format, mapFormat)
	}
	slices.SortFunc(f.Nodes, func(a, b Node) int { return cmp.Compare(a.Number, b.Number) })
	slices.SortFunc(f.Shards, func(a, b Shard) int { return cmp.Compare(a.ID, b.ID) })
	return f.Map, nil
}

// Copy is a node's copy of the system shard's tables. It may be behind. Its methods may be called from any goroutine.
type Copy struct {
	current atomic.Pointer[Map]

	mu     sync.RWMutex
	queues map[QueueName]Queue
	// gone are queues that were deleted through this node, with the version that they had, until a Delta tells so: one on its way may
	// still have them.
	gone    map[QueueName]uint64
	version uint64 // of the newest delta; 0: none yet
	access  func(auth.Access)
	changed chan struct{} // closed when the map changes
	onQuiet func(version uint64, all bool, quiet []QuietWorker, resumed []WorkerName)
}

// NewCopy makes a copy without queues. Known is the map as it was before a restart; nil: none.
func NewCopy(known *Map) *Copy {
	if known == nil {
		known = &Map{}
	}
	c := &Copy{queues: map[QueueName]Queue{}, gone: map[QueueName]uint64{}, changed: make(chan struct{}),
		onQuiet: func(uint64, bool, []QuietWorker, []WorkerName) {}}
	c.current.Store(known)
	return c
}

// OnAccess has tokens and namespaces given to fn whenever they have changed. It is to be said before the first delta.
func (c *Copy) OnAccess(fn func(auth.Access)) { c.access = fn }

// Map is the cluster as this node knows it.
func (c *Copy) Map() *Map { return c.current.Load() }

// Version says up to which change the copy is complete; 0: it has heard of nobody yet.
func (c *Copy) Version() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Changed returns a channel that is closed when the map is replaced by another one. Take it before reading the map.
func (c *Copy) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Node is a node of the map.
func (c *Copy) Node(number uint32) (Node, bool) { return c.Map().Node(number) }

// Shard is a shard of the map.
func (c *Copy) Shard(id uint32) (Shard, bool) { return c.Map().Shard(id) }

// Shards lists the data shards.
func (c *Copy) Shards() []uint32 { return dataShards(c.Map().Settings.DataShards) }

func dataShards(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i) + 1
	}
	return ids
}

// Apply takes over what Control.Changes told. An answer that is older than the copy changes nothing, unless it holds
// everything.
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
		c.queues[q.name()] = q
	}
	for _, name := range d.Dropped {
		delete(c.queues, name)
		delete(c.gone, name)
	}
	if d.Access != nil && c.access != nil {
		c.access(*d.Access) // before the version, by which the node says that it has heard of it
	}
	c.version = d.Version
	c.onQuiet(d.Version, d.All, d.Quiet, d.Resumed)
	if d.Map != nil {
		c.current.Store(d.Map)
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// OnQuiet has fn told which workers are to be quiet, and which no longer, whenever the copy has heard of the leader: all that are
// quiet, or what changed since the call before. Version is the copy's. It is called with a lock held, and must not block. Set it
// before the first Apply.
func (c *Copy) OnQuiet(fn func(version uint64, all bool, quiet []QuietWorker, resumed []WorkerName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onQuiet = fn
}

// Learned takes over a queue as the system shard's leader has just answered it.
func (c *Copy) Learned(q Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.queues[q.name()]; !c.isGone(q) && (!ok || q.newerThan(old)) {
		c.queues[q.name()] = q
	}
}

// Dropped forgets a queue that was deleted just now.
func (c *Copy) Dropped(ns, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q, ok := c.queues[QueueName{ns, name}]; ok {
		c.gone[q.name()] = q.Config.Version
		delete(c.queues, q.name())
	}
}

// isGone says whether a queue, as an answer on its way tells of it, was deleted after that. The caller holds the lock.
func (c *Copy) isGone(q Queue) bool {
	version, ok := c.gone[q.name()]
	return ok && q.Config.Version <= version
}

// Queue is a queue that exists, as far as this node knows.
func (c *Copy) Queue(ns, name string) (Queue, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.queues[QueueName{ns, name}]
	return q, ok
}

// Queues lists up to limit queues of a namespace behind a name, in the order of their names.
func (c *Copy) Queues(ns, after string, limit int) (queues []Queue) {
	c.mu.RLock()
	for _, q := range c.queues {
		if q.Namespace == ns && q.Name > after {
			queues = append(queues, q)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(queues, func(a, b Queue) int { return strings.Compare(a.Name, b.Name) })
	return queues[:min(limit, len(queues))]
}

// Namespaces lists those that have queues.
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
