package cluster

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
)

// NodeState is what an operator wants of a node.
type NodeState string

const (
	Active   NodeState = "active"   // takes replicas
	Draining NodeState = "draining" // its replicas and leadership move off
	Removed  NodeState = "removed"  // for good: its number is never reused
)

// Node is a current or former member of the cluster.
type Node struct {
	Number      uint32    `json:"number"`
	Name        string    `json:"name"`
	PeerAddress string    `json:"peer_address"`
	APIAddress  string    `json:"api_address"`
	State       NodeState `json:"state"`
	Version     string    `json:"version"` // of its release
	// MinLevel and MaxLevel are the feature levels that it supports.
	MinLevel   int        `json:"min_level"`
	MaxLevel   int        `json:"max_level"`
	Nonce      [16]byte   `json:"nonce"` // of its join
	JoinedAt   store.Time `json:"joined_at"`
	ReplacedBy uint32     `json:"replaced_by,omitempty"` // the node that took over its name
	// Silent is how long it has been silent, in steps, so that a new leader of the system shard does not begin to count anew.
	Silent time.Duration `json:"silent,omitempty"`
}

// Replica is one copy of a shard.
type Replica struct {
	ID   uint64 `json:"id"`
	Node uint32 `json:"node"`
	// Founder is set if the replica starts the shard as its only voter. The others wait until they are asked to join.
	Founder bool `json:"founder,omitempty"`
}

// ReplicaID returns the Raft id of a replica. Incarnations are counted per shard and never reused, so no replica comes back under its id
// without its state.
func ReplicaID(incarnation, node uint32) uint64 { return uint64(incarnation)<<32 | uint64(node) }

// NodeOf returns the node of a replica.
func NodeOf(replica uint64) uint32 { return uint32(replica) }

// Shard is the placement of a shard.
type Shard struct {
	ID       uint32    `json:"id"`
	Replicas []Replica `json:"replicas"`
	// Leaving are the ids of replicas to be removed. An id is never taken off this list while its shard may lack it.
	Leaving         []uint64 `json:"leaving,omitempty"`
	NextIncarnation uint32   `json:"next_incarnation"`
	Preferred       uint32   `json:"preferred,omitempty"` // node that should lead; 0: any
}

// On returns the replica on a node.
func (s Shard) On(node uint32) (Replica, bool) {
	for _, r := range s.Replicas {
		if r.Node == node {
			return r, true
		}
	}
	return Replica{}, false
}

// Gone reports whether the shard once had a replica and no longer does. That is final. A replica that this row does not know yet is not
// gone: a newer row may have it.
func (s Shard) Gone(id uint64) bool {
	incarnation := uint32(id >> 32)
	return incarnation < s.NextIncarnation && !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return r.ID == id })
}

// leaves reports whether a replica is to be removed.
func (s Shard) leaves(id uint64) bool { return slices.Contains(s.Leaving, id) }

// clone returns a deep copy.
func (s Shard) clone() Shard {
	s.Replicas, s.Leaving = slices.Clone(s.Replicas), slices.Clone(s.Leaving)
	return s
}

func nodeKey(number uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{system.NodeTable}, number)
}
func shardKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{system.ShardTable}, id) }

// StoredMap returns the map in a state of the system shard, which may be out of date.
func StoredMap(r store.Reader) (*Map, error) { return readMap(r) }

// readMap reads nodes, shards and settings.
func readMap(r store.Reader) (m *Map, err error) {
	m = &Map{Version: system.Newest(r)}
	if m.Settings, _, err = system.GetRow[system.Settings](r, system.SettingsKey); err != nil {
		return nil, err
	}
	if m.Nodes, err = system.ScanRows[Node](r, system.NodeTable); err != nil {
		return nil, err
	}
	m.Shards, err = system.ScanRows[Shard](r, system.ShardTable)
	return m, err
}
