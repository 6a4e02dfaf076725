package cluster

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/quotas"
)

// Missing returns the shards of which a node holds no replica, according to the tables. held has its replicas by shard.
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

// Recovered rewrites nodes and placement in the system shard of a node that continues alone after the majority was lost: the others are
// removed for good, and every shard has only the replica that this node holds. A missing shard starts out empty. copies are the queues in
// the data shards, each with the shard that has it.
func Recovered(tx *store.Tx, number uint32, held map[uint32]uint64, copies []queues.Queue) error {
	if err := queues.Reconcile(tx, copies); err != nil {
		return err
	}
	if err := quotas.Reconcile(tx); err != nil {
		return err
	}
	m, err := readMap(tx)
	if err != nil {
		return err
	}
	if _, ok := m.Node(number); !ok {
		return fmt.Errorf("the system shard has no node %d", number)
	}
	for _, n := range m.Nodes {
		if n.Number != number {
			n.State = Removed
			tx.Set(nodeKey(n.Number), system.EncodeRow(n))
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
		tx.Set(shardKey(s.ID), system.EncodeRow(s))
	}
	tx.Set(system.NewestKey, system.EncodeNumber(tx.Index()))
	return nil
}

// Restoration describes how to restore a system shard from a backup.
type Restoration struct {
	Node FirstNode // its addresses are empty until it calls Hello
	// Number is the node's number, which none ever had (NextNode).
	Number uint32
	Held   map[uint32]uint64 // its replicas, by shard
	// Queues are the copies in the data shards. One that this shard does not know was deleted while the backup was made, and is restored
	// with what it had.
	Queues []queues.Queue
}

// NextNode returns the number that the next node would get according to the tables, and the feature level that it must support.
func NextNode(r store.Reader) (number uint32, level int, err error) {
	s, founded, err := system.GetRow[system.Settings](r, system.SettingsKey)
	if err == nil && !founded {
		err = errors.New("the system shard has no settings")
	}
	return s.NextNode, s.Level, err
}

// Restored turns the system shard of a backup into that of a cluster of one node, whose directory holds it.
func Restored(tx *store.Tx, r Restoration) error {
	settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
	if err != nil {
		return err
	}
	if r.Number < settings.NextNode {
		return fmt.Errorf("node number %d was given already, the next is %d", r.Number, settings.NextNode)
	}
	settings.NextNode = r.Number + 1
	tx.Set(system.SettingsKey, system.EncodeRow(settings))
	tx.Set(nodeKey(r.Number), system.EncodeRow(Node{Number: r.Number, Name: r.Node.Name, PeerAddress: r.Node.PeerAddress,
		APIAddress: r.Node.APIAddress, State: Active, Version: r.Node.Version, MinLevel: r.Node.MinLevel, MaxLevel: r.Node.MaxLevel,
		JoinedAt: tx.Now()}))
	return Recovered(tx, r.Number, r.Held, r.Queues)
}
