package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// An empty or outdated map costs a node none of its replicas: deleting them would lose a vote or, on a standalone node, a shard.
func TestReplicasStayWithoutACurrentMap(t *testing.T) {
	const again = 3<<32 | 2 // node 2's replica of incarnation 3
	me := datadir.Identity{Node: 2, Replicas: map[uint32]datadir.Holding{0: {Replica: 2, Founder: true}, 1: {Replica: again}}}
	row := func(id, next uint32, replicas ...uint64) cluster.Shard {
		s := cluster.Shard{ID: id, NextIncarnation: next}
		for _, r := range replicas {
			s.Replicas = append(s.Replicas, cluster.Replica{ID: r, Node: cluster.NodeOf(r)})
		}
		return s
	}
	for name, c := range map[string]struct {
		rows       []cluster.Shard
		left, here []uint32
	}{
		"no map":                           {nil, nil, nil},
		"all are there":                    {[]cluster.Shard{row(0, 1, 2), row(1, 4, again)}, nil, []uint32{0, 1}},
		"a shard of which it did not know": {[]cluster.Shard{row(0, 1, 2)}, nil, []uint32{0}},
		"before the replica was made":      {[]cluster.Shard{row(0, 1, 2), row(1, 3, 1)}, nil, []uint32{0}},
		"after it has left":                {[]cluster.Shard{row(0, 1, 2), row(1, 4, 1)}, []uint32{1}, []uint32{0}},
		"replaced by another":              {[]cluster.Shard{row(0, 1, 2), row(1, 5, 1, 4<<32|2)}, []uint32{1}, []uint32{0, 1}},
		"to be added":                      {[]cluster.Shard{row(0, 1, 2), row(1, 4, again), row(2, 1, 2)}, nil, []uint32{0, 1, 2}},
	} {
		left, here := placed(me, &cluster.Map{Shards: c.rows})
		if slices.Sort(left); !slices.Equal(left, c.left) || !slices.Equal(slices.Sorted(maps.Keys(here)), c.here) {
			t.Errorf("%s: %v have left and %v are here, want %v and %v", name, left, here, c.left, c.here)
		}
	}
}
