package shard

import (
	"context"
	"encoding/binary"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Replicas that have applied the same entries hold the same rows. A mark is an entry that changes nothing: each replica
// takes a view of its state where it stands, and makes a checksum of it, so that they can be compared.

// markVersion opens the entry of a mark, in place of entryVersion.
const markVersion = 2

func markEntry(term uint64) []byte { return binary.BigEndian.AppendUint64([]byte{markVersion}, term) }

func isMark(data []byte) bool { return len(data) > 0 && data[0] == markVersion }

// Hash is the checksum of a replica's state after an entry.
type Hash struct {
	Index uint64
	Sum   uint64
	Rows  int64
}

// maxMarks is how many hashes a replica remembers, and makes at once.
const maxMarks = 4

// marks makes the hashes that a loop is asked for.
type marks struct {
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

func newMarks() marks {
	ctx, cancel := context.WithCancel(context.Background())
	return marks{ctx: ctx, cancel: cancel}
}

// wait ends the hashes that are being made.
func (m *marks) wait() {
	m.cancel()
	m.all.Wait()
}

// hashes are those that a replica has made, the latest last.
type hashes struct {
	mu   sync.Mutex
	made []Hash
	busy int
}

// Mark has every replica make a hash of its state, and returns the entry after which. Only the leader can. Errors are as
// for Change.
func (s *Shard) Mark(ctx context.Context) (index uint64, err error) {
	return s.propose(ctx, &change{})
}

// Hash returns this replica's hash after an entry that Mark gave; not ok if it isn't made, or not yet.
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

// applyMark makes the hash of the state as it is now.
func (l *loop) applyMark(e *pb.Entry) error {
	h := &l.hashes
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy == maxMarks {
		return nil
	}
	h.busy++
	snap := l.cfg.State.Snapshot()
	ctx := l.marks.ctx
	l.marks.all.Go(func() {
		defer func() { _ = recover() }() // a state that can't be read has reported it
		defer snap.Close()
		sum, rows, whole := snap.Hash(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy--; !whole {
			return
		}
		if h.made = append(h.made, Hash{e.GetIndex(), sum, rows}); len(h.made) > maxMarks {
			h.made = h.made[1:]
		}
	})
	return nil
}
