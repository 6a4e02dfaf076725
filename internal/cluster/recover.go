package cluster

import (
	"fmt"

	"github.com/pawlq/pawl/internal/store"
)

// Missing are the shards of which a node holds no replica, by the tables in a state. Held are those that it does, by shard.
func Missing(r store.Reader, held map[uint32]uint64) (lost []uint32, err error) {
	m, err := readMap(r)
	if err != nil {
		return nil, err
	}
	for _, s := range m.Shards {
		if _, ok := held[s.ID]; !ok {
			lost = append(lost, s.ID)
		}
	}
	return lost, nil
}

// Recovered rewrites nodes and placement in the system shard of a node that goes on alone, after the majority was lost: the
// others are removed for ever, and each shard has only the replica that this node holds. One that is missing begins anew.
func Recovered(tx *store.Tx, number uint32, held map[uint32]uint64) error {
	m, err := readMap(tx)
	if err != nil {
		return err
	}
	if _, ok := m.Node(number); !ok {
		return fmt.Errorf("the system shard knows no node %d", number)
	}
	for _, n := range m.Nodes {
		if n.Number != number {
			n.State = Removed
			tx.Set(nodeKey(n.Number), encodeRow(n))
		}
	}
	for _, s := range m.Shards {
		r := Replica{ID: held[s.ID], Node: number}
		s.NextIncarnation = max(s.NextIncarnation, uint32(r.ID>>32)+1) // this row may be older than the replica
		if r.ID == 0 {
			r.ID, r.Founder = ReplicaID(s.NextIncarnation, number), true
			s.NextIncarnation++
		}
		s.Replicas, s.Leaving, s.Preferred = []Replica{r}, nil, 0
		tx.Set(shardKey(s.ID), encodeRow(s))
	}
	tx.Set(newestKey, encodeNumber(tx.Index()))
	return nil
}
