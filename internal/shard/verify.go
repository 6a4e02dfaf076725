package shard

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Replicas that have applied the same entries hold the same rows. A hash entry changes nothing: each replica takes a
// snapshot of its state at that entry and computes a checksum of it, or of a part, so that the replicas can be compared.

// hashEntryVersion is the first byte of a hash entry, instead of entryVersion.
const hashEntryVersion = 2

// hashEntryLen is the length of a hash entry without the key: version, term, bytes.
const hashEntryLen = 1 + 8 + 8

// Range is a range of rows: from a key on, until they take Size bytes; 0: all of them. It depends on the rows only, so equal states have
// equal ranges.
type Range struct {
	From string
	Size int64
}

func hashEntry(term uint64, of Range) []byte {
	b := binary.BigEndian.AppendUint64([]byte{hashEntryVersion}, term)
	b = binary.BigEndian.AppendUint64(b, uint64(of.Size)) // #nosec G115 -- not negative
	return append(b, of.From...)
}

func isHashEntry(data []byte) bool { return len(data) > 0 && data[0] == hashEntryVersion }

func rangeOf(entry []byte) (Range, error) {
	if len(entry) < hashEntryLen {
		return Range{}, fmt.Errorf("a hash entry of %d bytes, less than %d", len(entry), hashEntryLen)
	}
	size := int64(binary.BigEndian.Uint64(entry[1+8:])) // #nosec G115 -- as it was written
	return Range{From: string(entry[hashEntryLen:]), Size: size}, nil
}

// Hash is the checksum of a range of a replica's rows after an entry.
type Hash struct {
	Index uint64
	Sum   uint64
	Rows  int64
	Next  string // where the next range begins; "": there is none
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

// StartHash makes every replica compute a hash of a range of its state after a new entry, and returns the index of that entry. Only the
// leader can do this. Errors are as for Change.
func (s *Shard) StartHash(ctx context.Context, of Range) (index uint64, err error) {
	return s.propose(ctx, &change{hash: of})
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
	of, err := rangeOf(e.GetData())
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
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
		sum, whole := snap.Hash(ctx, []byte(of.From), of.Size)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy--; !whole {
			return
		}
		if h.made = append(h.made, Hash{e.GetIndex(), sum.Sum, sum.Rows, string(sum.Next)}); len(h.made) > maxHashes {
			h.made = h.made[1:]
		}
	})
	return nil
}
