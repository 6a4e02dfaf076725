package shard

import (
	"context"
	"encoding/binary"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Replicas that have applied the same entries hold the same rows. A hash entry changes nothing: each replica takes a
// snapshot of its state at that entry and computes a checksum of it, so that the replicas can be compared.

// hashEntryVersion is the first byte of a hash entry, instead of entryVersion.
const hashEntryVersion = 2

func hashEntry(term uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{hashEntryVersion}, term)
}

func isHashEntry(data []byte) bool { return len(data) > 0 && data[0] == hashEntryVersion }

// Hash is the checksum of a replica's state after an entry.
type Hash struct {
	Index uint64
	Sum   uint64
	Rows  int64
}

// maxHashes is how many hashes a replica keeps, and how many it computes at a time.
const maxHashes = 4

// hashers runs the computations of hashes that a loop has started.
type hashers struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

func newHashers() hashers {
	ctx, cancel := context.WithCancel(context.Background())
	return hashers{ctx: ctx, cancel: cancel}
}

// stop cancels the running computations, and waits until they have ended.
func (m *hashers) stop() {
	m.cancel()
	m.all.Wait()
}

// hashes holds the latest hashes of a replica, the newest last.
type hashes struct {
	mu   sync.Mutex
	made []Hash
	busy int
}

// StartHash makes every replica compute a hash of its state after a new entry, and returns the index of that entry. Only the
// leader can do this. Errors are as for Change.
func (s *Shard) StartHash(ctx context.Context) (index uint64, err error) {
	return s.propose(ctx, &change{})
}

// Hash returns this replica's hash after an entry that StartHash returned. ok is false if it does not have the hash, or not yet.
func (s *Shard) Hash(index uint64) (Hash, bool) {
	s.hashes.mu.Lock()
	defer s.hashes.mu.Unlock()
	for _, h := range s.hashes.made {
		if h.Index == index {
			return h, true
		}
	}
	return Hash{}, false
}

// startHash starts computing the hash of the current state.
func (l *loop) startHash(e *pb.Entry) error {
	h := &l.hashes
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy == maxHashes {
		return nil
	}
	h.busy++
	snap := l.cfg.State.Snapshot()
	ctx := l.hashers.ctx
	l.hashers.all.Go(func() {
		defer func() { _ = recover() }() // a state that can't be read has reported the error
		defer snap.Close()
		sum, rows, whole := snap.Hash(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy--; !whole {
			return
		}
		if h.made = append(h.made, Hash{e.GetIndex(), sum, rows}); len(h.made) > maxHashes {
			h.made = h.made[1:]
		}
	})
	return nil
}
