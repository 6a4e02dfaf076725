package queues

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// Queue is a queue, the shard or shards that hold it, and its configuration.
type Queue struct {
	Namespace string
	Name      string
	Shard     uint32 // the shard with all of it, if it has no parts
	Parts     []Part // if the queue is or was spread over shards. Never changed in place
	Moved     uint64 // version that began the last move of slots; 0: none was ever moved
	Own       bool   // no other queue may be in the shards that take its tasks: see SpreadTarget
	Config    task.QueueConfig
}

// FullName returns the queue's name with its namespace.
func (q Queue) FullName() system.Name { return system.Name{Namespace: q.Namespace, Name: q.Name} }

// NewerThan reports whether q is a later state of the queue than old. Versions only grow, even across a deletion.
func (q Queue) NewerThan(old Queue) bool { return q.Config.Version > old.Config.Version }

func queueKey(ns, name string) []byte {
	return system.Key(system.QueueTable, ns, name)
}

// queueRow is the stored form of a queue.
type queueRow struct {
	Shard  uint32 `json:"shard"`
	Parts  []Part `json:"parts,omitempty"`
	Moved  uint64 `json:"moved,omitempty"`
	Own    bool   `json:"own,omitempty"`
	Config []byte `json:"config"`
	// Dropping is set while the queue is being deleted, in its shards first. Using the queue clears it.
	Dropping bool         `json:"dropping,omitempty"`
	DropBy   *task.Author `json:"drop_by,omitempty"` // nil: unknown
}

func encodeQueue(q Queue, dropping bool) []byte {
	return system.EncodeRow(queueRow{q.Shard, q.Parts, q.Moved, q.Own, q.Config.Encode(), dropping, nil})
}

// encodeDropping encodes a queue that is being deleted.
func encodeDropping(q Queue, by task.Author) []byte {
	return system.EncodeRow(queueRow{q.Shard, q.Parts, q.Moved, q.Own, q.Config.Encode(), true, &by})
}

// dropper returns who deletes a queue; the zero Author: unknown.
func dropper(r store.Reader, q Queue) (by task.Author, err error) {
	row, _, err := system.GetRow[queueRow](r, queueKey(q.Namespace, q.Name))
	if err == nil && row.DropBy != nil {
		by = *row.DropBy
	}
	return by, err
}

func decodeQueue(key, value []byte) (q Queue, dropping bool, err error) {
	if len(key) == 0 {
		return Queue{}, false, fmt.Errorf("queue row %q: no key", key)
	}
	ns, name, ok := strings.Cut(string(key[1:]), "\x00")
	if !ok {
		return Queue{}, false, fmt.Errorf("queue row %q: unknown form", key)
	}
	row, err := system.DecodeRow[queueRow](key, value)
	if err != nil {
		return Queue{}, false, err
	}
	config, err := task.DecodeQueueConfig(row.Config)
	return Queue{Namespace: ns, Name: name, Shard: row.Shard, Parts: row.Parts, Moved: row.Moved, Own: row.Own, Config: config},
		row.Dropping, err
}

// Get reads a queue that may be absent.
func Get(r store.Reader, ns, name string) (q Queue, dropping, ok bool, err error) {
	key := queueKey(ns, name)
	value, ok := r.Get(key)
	if !ok {
		return Queue{}, false, false, nil
	}
	q, dropping, err = decodeQueue(key, value)
	return q, dropping, err == nil, err
}

// Scan calls fn for the queues from lo to hi, exclusive, until it returns false.
func Scan(r store.Reader, lo, hi []byte, fn func(q Queue, dropping bool) bool) (err error) {
	r.Scan(lo, hi, func(k, v []byte) bool {
		var q Queue
		var dropping bool
		if q, dropping, err = decodeQueue(k, v); err != nil {
			return false
		}
		return fn(q, dropping)
	})
	return err
}
