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

// Map is the cluster at one moment: nodes and shards in the order of their numbers. It is never changed.
type Map struct {
	Version  uint64 // index of the latest change of the system shard's tables that it includes
	Settings Settings
	Nodes    []Node
	Shards   []Shard
}

// Node returns the node with a number.
func (m *Map) Node(number uint32) (Node, bool) {
	i, ok := slices.BinarySearchFunc(m.Nodes, number, func(n Node, want uint32) int { return cmp.Compare(n.Number, want) })
	if !ok {
		return Node{}, false
	}
	return m.Nodes[i], true
}

// Members returns the nodes that are not removed.
func (m *Map) Members() []Node {
	return slices.DeleteFunc(slices.Clone(m.Nodes), func(n Node) bool { return n.State == Removed })
}

// Named returns the node with a name that is not removed.
func (m *Map) Named(name string) (Node, bool) {
	for _, n := range m.Nodes {
		if n.Name == name && n.State != Removed {
			return n, true
		}
	}
	return Node{}, false
}

// Shard returns the placement of a shard.
func (m *Map) Shard(id uint32) (Shard, bool) {
	i, ok := slices.BinarySearchFunc(m.Shards, id, func(s Shard, want uint32) int { return cmp.Compare(s.ID, want) })
	if !ok {
		return Shard{}, false
	}
	return m.Shards[i], true
}

// mapFormat is the version of a map's file format.
const mapFormat = 1

type mapFile struct {
	Format int
	*Map
}

// Encode encodes the map for a file, by which a node finds the others after a restart.
func (m *Map) Encode() []byte {
	b, err := json.MarshalIndent(mapFile{mapFormat, m}, "", " ")
	if err != nil {
		panic(err) // numbers, strings and bytes can always be encoded
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
	// gone holds queues that were deleted through this node, with the version that they had, until a Delta reports it: one in flight may
	// still include them.
	gone    map[QueueName]uint64
	version uint64 // of the latest delta; 0: none yet
	access  func(auth.Access)
	changed chan struct{} // closed when the map changes
	onQuiet func(version uint64, all bool, quiet []QuietWorker, resumed []WorkerName)
}

// NewCopy returns a copy without queues. known is the map from before a restart; nil: none.
func NewCopy(known *Map) *Copy {
	if known == nil {
		known = &Map{}
	}
	c := &Copy{queues: map[QueueName]Queue{}, gone: map[QueueName]uint64{}, changed: make(chan struct{}),
		onQuiet: func(uint64, bool, []QuietWorker, []WorkerName) {}}
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
func (c *Copy) Shards() []uint32 { return dataShards(c.Map().Settings.DataShards) }

func dataShards(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i) + 1
	}
	return ids
}

// Apply applies an answer of Control.Changes. An answer that is older than the copy is ignored, unless it holds everything.
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
		c.access(*d.Access) // before the version, by which the node confirms that it has applied it
	}
	c.version = d.Version
	c.onQuiet(d.Version, d.All, d.Quiet, d.Resumed)
	if d.Map != nil {
		c.current.Store(d.Map)
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// OnQuiet has fn called whenever the copy has had an answer of the leader, with the workers that are quiet and those no longer so: all that
// are quiet, or the changes since the previous call. version is the copy's. fn is called with a lock held, and must not block. OnQuiet must
// be called before the first Apply.
func (c *Copy) OnQuiet(fn func(version uint64, all bool, quiet []QuietWorker, resumed []WorkerName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onQuiet = fn
}

// Learned adds a queue that the system shard's leader has just returned.
func (c *Copy) Learned(q Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.queues[q.name()]; !c.isGone(q) && (!ok || q.newerThan(old)) {
		c.queues[q.name()] = q
	}
}

// Dropped removes a queue that was just deleted.
func (c *Copy) Dropped(ns, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q, ok := c.queues[QueueName{ns, name}]; ok {
		c.gone[q.name()] = q.Config.Version
		delete(c.queues, q.name())
	}
}

// isGone reports whether a queue was deleted after the state in which an answer in flight describes it. The caller holds the lock.
func (c *Copy) isGone(q Queue) bool {
	version, ok := c.gone[q.name()]
	return ok && q.Config.Version <= version
}

// Queue returns a queue, if it exists as far as this node knows.
func (c *Copy) Queue(ns, name string) (Queue, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.queues[QueueName{ns, name}]
	return q, ok
}

// Queues returns up to limit queues of a namespace after a name, in the order of their names.
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
