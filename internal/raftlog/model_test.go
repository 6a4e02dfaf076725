package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// modelLog is what a shard's log must hold.
type modelLog struct {
	log     *ShardLog
	start   position
	applied position      // by the state
	entries []*pb.Entry   // after start
	hard    *pb.HardState // its commit index is a lower bound
}

func (m *modelLog) last() uint64 { return m.start.index + uint64(len(m.entries)) }

func (m *modelLog) term(index uint64) uint64 {
	if index == m.start.index {
		return m.start.term
	}
	return m.entries[index-m.start.index-1].GetTerm()
}

// TestModel does random operations on the logs of several shards, and compares them with a model after each step.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			d := newDisk(t)
			d.open()
			logs := map[uint32]*modelLog{}
			reopen := func() {
				for id, m := range logs {
					var err error
					if m.log, err = d.log.Shard(id, Start{Index: m.applied.index, Term: m.applied.term, Ran: true}); err != nil {
						t.Fatal(err)
					}
					m.reopened(t, id)
				}
			}
			for range 400 {
				id := uint32(rng.IntN(3))
				m := logs[id]
				switch n := rng.IntN(20); {
				case m == nil:
					at := position{uint64(rng.IntN(2) * 5), 1}
					if at.index == 0 {
						at.term = 0
					}
					s, err := d.log.Shard(id, Start{Index: at.index, Term: at.term})
					if err != nil {
						t.Fatal(err)
					}
					logs[id] = &modelLog{log: s, start: at, applied: at, hard: aHardState(at.term, 0, at.index)}
				case n == 0:
					if err := d.log.Remove(id); err != nil {
						t.Fatal(err)
					}
					delete(logs, id)
				case n == 1:
					m.reset(t, rng)
				case n == 2:
					before := d.log.indexes()
					d.close()
					if d.open(); !maps.Equal(d.log.indexes(), before) {
						t.Errorf("the log has %+v, and after a restart %+v", before, d.log.indexes())
					}
					reopen()
				case n == 3:
					d.losePower(0, seed)
					d.open()
					reopen()
				case n < 7:
					m.compact(t, rng)
				default:
					m.save(t, rng)
				}
				synctest.Wait()
				for id, m := range logs {
					m.check(t, rng, id)
				}
				var ids []uint32
				for id := range uint32(5) {
					m := logs[id]
					if m != nil {
						ids = append(ids, id)
					}
					holds := m != nil && (m.last() > 0 || m.hard.GetTerm() > 0)
					if d.log.Has(id) != (m != nil) || m != nil && d.log.Last(id) != m.last() || d.log.Holds(id) != holds {
						t.Errorf("shard %d: Has, Last and Holds return %v, %d and %v for %+v", id, d.log.Has(id), d.log.Last(id),
							d.log.Holds(id), m)
					}
				}
				if got := d.log.Shards(); !slices.Equal(got, ids) {
					t.Errorf("there are logs of the shards %v, want %v", got, ids)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			d.close()
		})
	}
}

// indexed is what the index of a shard says.
type indexed struct {
	epoch       uint64
	hard        hardState
	start, last position
}

// indexes returns the indexes in memory, from which the next checkpoint is made.
func (l *Log) indexes() map[uint32]indexed {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[uint32]indexed{}
	for id, x := range l.shards {
		if at := (indexed{x.epoch, x.hard, x.start, x.last()}); at != (indexed{}) { // a log to which nothing was written
			all[id] = at
		}
	}
	return all
}

// save saves some entries, in place of the last ones or after them, and perhaps a hard state.
func (m *modelLog) save(t *testing.T, rng *rand.Rand) {
	var hs *pb.HardState
	hard := aHardState(m.hard.GetTerm(), m.hard.GetVote(), m.hard.GetCommit())
	from := m.last() + 1
	if rng.IntN(3) == 0 {
		hard.Term, hard.Vote = new(hard.GetTerm()+rng.Uint64N(2)+1), new(rng.Uint64N(3))
		from -= rng.Uint64N(min(m.last()-m.applied.index, 4) + 1)
		hs = hard
	} else if rng.IntN(3) == 0 && hard.GetTerm() > 0 {
		hard.Commit = new(max(hard.GetCommit(), m.applied.index+rng.Uint64N(m.last()-m.applied.index+1)))
		hs = hard
	}
	var entries []*pb.Entry
	for i := range rng.Uint64N(5) {
		if hard.GetTerm() == 0 {
			break
		}
		kind := pb.EntryType(rng.IntN(3))
		entries = append(entries, &pb.Entry{Index: new(from + i), Term: new(hard.GetTerm()), Type: &kind,
			Data: make([]byte, rng.IntN(1000))})
	}
	if len(entries) > 0 {
		hard.Commit = new(min(hard.GetCommit(), from-1))
		m.entries = append(m.entries[:from-m.start.index-1:from-m.start.index-1], entries...)
	}
	voted := hs != nil && (hs.GetTerm() != m.hard.GetTerm() || hs.GetVote() != m.hard.GetVote())
	save(t, m.log, hs, entries)
	m.hard = hard
	if saved := voted || len(entries) > 0; saved == m.log.pending && (saved || hs != nil) {
		t.Errorf("%d entries and the hard state %v were saved, and a commit index is still to be saved: %v",
			len(entries), hs, m.log.pending)
	}
}

func (m *modelLog) compact(t *testing.T, rng *rand.Rand) {
	to := m.start.index + rng.Uint64N(uint64(len(m.entries))+3) // perhaps beyond the end
	if err := m.log.Compact(to); err != nil {
		t.Fatal(err)
	}
	to = min(to, m.last())
	at := position{to, m.term(to)}
	m.entries, m.start = m.entries[to-m.start.index:], at
	if m.applied.index < to {
		m.applied = at
	}
	m.hard.Commit = new(max(m.hard.GetCommit(), to))
}

func (m *modelLog) reset(t *testing.T, rng *rand.Rand) {
	to := position{m.applied.index + rng.Uint64N(10), m.last()}
	to.term = m.hard.GetTerm() + rng.Uint64N(2)
	if err := m.log.Reset(to.index, to.term); err != nil {
		t.Fatal(err)
	}
	if to.term > m.hard.GetTerm() {
		m.hard = aHardState(to.term, 0, 0)
	}
	m.hard.Commit = new(to.index)
	m.start, m.applied, m.entries = to, to, nil
}

// reopened takes over what a restart may change: compacted entries may be back, and the commit index may be lower.
func (m *modelLog) reopened(t *testing.T, id uint32) {
	t.Helper()
	hs, _, _ := m.log.InitialState()
	if first, _ := m.log.FirstIndex(); first > m.start.index+1 || hs.GetCommit() < m.applied.index || hs.GetCommit() > m.last() {
		t.Errorf("shard %d: after a restart the log begins at %d with the commit index %d; it began after %d, and the state has applied %d",
			id, first, hs.GetCommit(), m.start.index, m.applied.index)
	} else if first <= m.start.index {
		if err := m.log.Compact(m.start.index); err != nil {
			t.Fatal(err)
		}
	}
	m.hard.Commit = new(hs.GetCommit())
}

func (m *modelLog) check(t *testing.T, rng *rand.Rand, id uint32) {
	t.Helper()
	if rng.IntN(3) == 0 {
		m.log.tail, m.log.tailLen = nil, 0 // so that entries are read from disk
	}
	first, _ := m.log.FirstIndex()
	last, _ := m.log.LastIndex()
	if first != m.start.index+1 || last != m.last() {
		t.Fatalf("shard %d has entries %d to %d, want %d to %d", id, first, last, m.start.index+1, m.last())
	}
	if hs, _, _ := m.log.InitialState(); hs.GetTerm() != m.hard.GetTerm() || hs.GetVote() != m.hard.GetVote() {
		t.Errorf("shard %d has the hard state %v, want %v", id, hs, m.hard)
	}
	for i := max(m.start.index, 1) - 1; i <= m.last()+1; i++ {
		term, err := m.log.Term(i)
		switch {
		case i < m.start.index && (term != 0 || !errors.Is(err, raft.ErrCompacted)), i > m.last() &&
			(term != 0 || !errors.Is(err, raft.ErrUnavailable)),
			i >= m.start.index && i <= m.last() && (err != nil || term != m.term(i)):
			t.Errorf("shard %d: Term(%d) = %d, %v; it has the entries after %d up to %d", id, i, term, err, m.start.index, m.last())
		}
	}
	for i := max(m.start.index, 1) - 1; i <= m.start.index; i++ {
		if _, err := m.log.Entries(i, m.last()+1, 1); !errors.Is(err, raft.ErrCompacted) {
			t.Errorf("shard %d: Entries from entry %d, of which all up to %d are compacted: %v", id, i, m.start.index, err)
		}
	}
	if _, err := m.log.Entries(m.last()+1, m.last()+2, 1); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("shard %d: Entries beyond entry %d, the last: %v", id, m.last(), err)
	}
	n := uint64(len(m.entries))
	lo := rng.Uint64N(n + 1)
	hi := lo + rng.Uint64N(n-lo+1)
	most := rng.Uint64N(3000)
	got, err := m.log.Entries(first+lo, first+hi, most)
	want, size := m.entries[lo:hi], uint64(0)
	for i, e := range want {
		if size += uint64(entrySize(e)); i > 0 && size > most {
			want = want[:i]
			break
		}
	}
	if text := func(e *pb.Entry) string { return fmt.Sprint(e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData()) }; err != nil ||
		!slices.EqualFunc(got, want, func(a, b *pb.Entry) bool { return text(a) == text(b) }) {
		t.Errorf("shard %d: entries %d to %d in %d bytes are %d entries, %v; want %d", id, first+lo, first+hi, most,
			len(got), err, len(want))
	}
	if k, _ := m.log.log.marks.get(id); k != (mark{id, 0, position{m.last(), m.hard.GetTerm()}, m.hard.GetVote()}) {
		t.Errorf("shard %d has the mark %+v; its log ends at entry %d, with the hard state %v", id, k, m.last(), m.hard)
	}
	sum := 0
	for _, e := range m.log.tail {
		sum += len(e.GetData())
	}
	if sum != m.log.tailLen || len(m.log.tail) > len(m.entries) {
		t.Errorf("shard %d: %d entries with %d bytes, counted as %d, are in memory; the log has %d", id, len(m.log.tail),
			sum, m.log.tailLen, n)
	}
}
