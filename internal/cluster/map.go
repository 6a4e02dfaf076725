package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/system"
)

// Map is the cluster at one moment: nodes and shards in the order of their numbers. It is never changed.
type Map struct {
	Version  uint64 // index of the latest change of the system shard's tables that it includes
	Settings system.Settings
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

// CheckMember returns an error for a node that is not a member.
func (m *Map) CheckMember(number uint32) error {
	n, ok := m.Node(number)
	return checkMember(n, ok, number)
}

// HasRemoved reports whether a node with a name was removed, and no member has it now.
func (m *Map) HasRemoved(name string) bool {
	_, member := m.Named(name)
	return !member && slices.ContainsFunc(m.Nodes, func(n Node) bool { return n.Name == name && n.State == Removed })
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
