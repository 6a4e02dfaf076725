package raftlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
)

// maxTail is how many bytes of the newest entries a log keeps in memory, so that those just saved are applied and sent
// to peers without reading the store.
const maxTail = 2 << 20

// Start is the position that a shard's state has applied and made durable, with the membership there.
type Start struct {
	Index, Term uint64
	Conf        *pb.ConfState
	// Anew says that the state was replaced by one that others sent: whatever the log has, it begins anew there.
	Anew bool
	// Epoch is the state's, which can be ahead of the log's: a recovery raises it and throws the log away.
	Epoch uint64
}

// ShardLog is one shard's log, and the raft.Storage of its group. It belongs to the goroutine that drives the group.
type ShardLog struct {
	log   *Log
	shard uint32
	epoch uint64
	conf  *pb.ConfState // what InitialState returns

	hard    *pb.HardState // as saved, or to be saved with the next entries
	pending bool          // hard has a commit index that is not saved
	start   position      // the entry before the first
	last    position
	tail    []*pb.Entry // the newest entries, up to last
	tailLen int         // bytes of data in tail
}

var _ raft.Storage = (*ShardLog)(nil)

// ErrStateBehind: the log has cut off what a state had made durable, and the state has lost.
var ErrStateBehind = errors.New("the files of the state are lost or old")

// Shard opens the log of a shard whose state is at start. It checks the log against its mark, and brings it to where
// the state is: a power loss may have kept less of a log than the state had applied from it, if the log was being
// replaced, and a commit index older than what was applied.
func (l *Log) Shard(id uint32, start Start) (*ShardLog, error) {
	s := &ShardLog{log: l, shard: id, conf: start.Conf, hard: &pb.HardState{}}
	if s.conf == nil {
		s.conf = &pb.ConfState{}
	}
	if err := s.open(start); err != nil {
		return nil, fmt.Errorf("log of shard %d: %w", id, err)
	}
	return s, nil
}

func (s *ShardLog) open(start Start) error {
	if err := s.load(); err != nil {
		return err
	}
	s.epoch = max(s.epoch, start.Epoch)
	applied := position{start.Index, start.Term}
	if start.Anew {
		if err := s.Reset(applied.index, applied.term); err != nil {
			return err
		}
	}
	if applied.index < s.start.index {
		return fmt.Errorf("%w: its log begins after entry %d, and it has only entry %d", ErrStateBehind, s.start.index, applied.index)
	}
	if err := s.checkMark(applied); err != nil {
		return err
	}
	if applied.index > s.last.index {
		if err := s.Reset(applied.index, applied.term); err != nil {
			return err
		}
	} else if term, err := s.Term(applied.index); err != nil {
		return err
	} else if term != applied.term {
		return damaged(s.log.path(), "entry %d is of term %d, the state applied one of term %d", applied.index, term, applied.term)
	}
	// The commit index is not synced on its own, and the state may have gone past the one on disk.
	s.hard.Commit = new(min(max(s.hard.GetCommit(), applied.index), s.last.index))
	if s.hard.GetTerm() < s.last.term {
		s.hard.Term, s.hard.Vote = new(s.last.term), new(uint64(0))
	}
	return nil
}

// load reads what the store has, and checks that entries lie without a gap and that terms never fall.
func (s *ShardLog) load() error {
	if f, err := s.row(startRow, 2); err != nil {
		return err
	} else if f != nil {
		s.start = position{f[0], f[1]}
	}
	if f, err := s.row(epochRow, 1); err != nil {
		return err
	} else if f != nil {
		s.epoch = f[0]
	}
	if b, ok, err := s.log.get(rowKey(s.shard, hardStateRow)); err != nil {
		return s.damage(err)
	} else if ok {
		if s.hard, err = decodeHardState(b); err != nil {
			return s.damage(err)
		}
	}
	s.last = s.start
	return s.scan(s.start.index+1, math.MaxUint64, func(e *pb.Entry) bool {
		s.last = position{e.GetIndex(), e.GetTerm()}
		return true
	})
}

// row reads a row of n numbers; nil if there is none.
func (s *ShardLog) row(kind byte, n int) ([]uint64, error) {
	b, ok, err := s.log.get(rowKey(s.shard, kind))
	if err != nil {
		return nil, s.damage(err)
	}
	if !ok {
		return nil, nil
	}
	f, err := decodeExact(b, n)
	return f, s.damage(err)
}

// damage says that what was read can't be what was written.
func (s *ShardLog) damage(err error) error { return asDamage(s.log.path(), err) }

// scan calls fn for the entries from lo up to but without hi, until it returns false. Entries are valid within fn.
func (s *ShardLog) scan(lo, hi uint64, fn func(*pb.Entry) bool) error {
	it, err := s.log.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(s.shard, lo), UpperBound: entryKey(s.shard, hi)})
	if err != nil {
		return s.damage(err)
	}
	prev := position{index: lo - 1}
	if prev.index == s.start.index {
		prev = s.start
	}
	for ok := it.First(); ok; ok = it.Next() {
		e, err := s.decode(it)
		if err == nil && (e.GetIndex() != prev.index+1 || e.GetTerm() < prev.term) {
			err = fmt.Errorf("entry %d of term %d follows entry %d of term %d", e.GetIndex(), e.GetTerm(), prev.index, prev.term)
		}
		if err != nil {
			return errors.Join(s.damage(err), it.Close())
		}
		if prev = (position{e.GetIndex(), e.GetTerm()}); !fn(e) {
			break
		}
	}
	return s.damage(errors.Join(it.Error(), it.Close()))
}

func (s *ShardLog) decode(it *pebble.Iterator) (*pb.Entry, error) {
	index, err := decodeEntryIndex(it.Key())
	if err != nil {
		return nil, err
	}
	b, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	e, err := decodeEntry(b)
	if err == nil && e.GetIndex() != index {
		err = fmt.Errorf("entry %d lies where entry %d should", e.GetIndex(), index)
	}
	return e, err
}

// checkMark refuses a log that is shorter than its mark, and gives a new one its first.
func (s *ShardLog) checkMark(applied position) error {
	k, known := s.log.marks.get(s.shard)
	s.epoch = max(s.epoch, k.epoch)
	end := max(s.last.index, applied.index)
	reached := position{end, s.hard.GetTerm()}
	var lost *ondisk.DamageError
	switch {
	case s.log.lossy:
		lost = damaged(s.log.path(), "parts of the store were given up")
	case !known && (s.last != position{} || s.hard.GetTerm() > 0):
		lost = damaged(s.log.marks.path, "it has no mark of shard %d", s.shard)
	case known && k.term > reached.term:
		lost = damaged(s.log.path(), "shard %d had reached entry %d in term %d, and comes back with entry %d in term %d", s.shard, k.index, k.term, end, reached.term)
	case known && k.term == reached.term && k.index > end:
		lost = damaged(s.log.path(), "entries %d to %d of shard %d are lost", end+1, k.index, s.shard)
	}
	if lost != nil && !s.log.cfg.AcceptDataLoss {
		return lost
	}
	if lost != nil {
		s.log.giveUpShard(s.shard, lost)
		s.epoch++
		reached.term = max(reached.term, k.term) + 1 // the vote in the last term may be lost
		s.hard = &pb.HardState{Term: new(reached.term), Vote: new(uint64(0)), Commit: s.hard.Commit}
		if err := s.saveEpoch(); err != nil {
			return err
		}
	}
	if known && k.epoch == s.epoch && k.position == reached {
		return nil
	}
	return s.log.marks.set(mark{s.shard, s.epoch, reached})
}

func (l *Log) giveUpShard(id uint32, err error) {
	l.cfg.Logger.Error("data loss accepted", "dir", l.cfg.Dir, "shard", id, "error", err)
}

func (s *ShardLog) saveEpoch() error {
	b := s.log.db.NewBatch()
	s.set(b, epochRow, encodeRow(s.epoch))
	s.set(b, hardStateRow, encodeHardState(s.hard))
	return s.log.commit(b, true)
}

func (s *ShardLog) set(b *pebble.Batch, kind byte, value []byte) {
	mustPut(b.Set(rowKey(s.shard, kind), value, nil))
}

// mustPut panics: a batch refuses a row only if it is closed, or the row over 4 GiB.
func mustPut(err error) {
	if err != nil {
		panic(err)
	}
}

// Epoch grows by one each time that the loss of a part of this log was accepted. It is never below Start.Epoch.
func (s *ShardLog) Epoch() uint64 { return s.epoch }

// Save makes the hard state and the entries of one raft.Ready durable, in one batch, before it returns; either may be
// empty. Entries may take the place of others of the same index: then what followed those is gone. A hard state that
// differs only in its commit index waits for the next entries, since nothing is lost with it.
//
// After an error no Save succeeds again.
func (s *ShardLog) Save(hs *pb.HardState, entries []*pb.Entry) error {
	newTerm := !raft.IsEmptyHardState(hs) && (hs.GetTerm() != s.hard.GetTerm() || hs.GetVote() != s.hard.GetVote())
	if !raft.IsEmptyHardState(hs) {
		s.hard, s.pending = hs, true
	}
	if len(entries) == 0 && (!newTerm || planted("raftlog-vote-unsaved")) {
		return nil
	}
	if len(entries) > 0 && entries[0].GetIndex() <= s.last.index {
		if err := s.cutBack(entries[0].GetIndex()); err != nil {
			return err
		}
	}
	if err := s.log.commit(s.batch(entries), true); err != nil {
		return err
	}
	s.pending = false
	s.remember(entries)
	reached := position{s.last.index, s.hard.GetTerm()}
	if newTerm {
		return s.log.marks.set(mark{s.shard, s.epoch, reached})
	}
	s.log.marks.advance(s.shard, reached)
	return nil
}

// cutBack lowers the mark before entries from index on are replaced, or a crash in between would look like a loss.
func (s *ShardLog) cutBack(index uint64) error {
	if index <= s.start.index {
		panic(fmt.Sprintf("shard %d: entry %d would replace one that is compacted (up to %d)", s.shard, index, s.start.index))
	}
	k, _ := s.log.marks.get(s.shard)
	if k.index < index || planted("raftlog-mark-not-lowered") {
		return nil
	}
	k.index = index - 1
	return s.log.marks.set(k)
}

func (s *ShardLog) batch(entries []*pb.Entry) *pebble.Batch {
	size := 64
	for _, e := range entries {
		size += entrySize(e) + entryKeyLen + 12
	}
	b := s.log.db.NewBatchWithSize(size)
	if s.pending {
		s.set(b, hardStateRow, encodeHardState(s.hard))
	}
	if n := len(entries); n > 0 && entries[n-1].GetIndex() < s.last.index && !planted("raftlog-keeps-tail") {
		mustPut(b.DeleteRange(entryKey(s.shard, entries[n-1].GetIndex()+1), entryKey(s.shard, s.last.index+1), nil))
	}
	for _, e := range entries {
		op := b.SetDeferred(entryKeyLen, entrySize(e))
		appendEntryKey(op.Key[:0], s.shard, e.GetIndex())
		putEntry(op.Value, e)
		mustPut(op.Finish())
	}
	return b
}

// remember puts saved entries into the tail.
func (s *ShardLog) remember(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	if n := int(s.last.index+1) - int(entries[0].GetIndex()); n > 0 { // the newest n are replaced
		keep := max(len(s.tail)-n, 0)
		for _, e := range s.tail[keep:] {
			s.tailLen -= len(e.GetData())
		}
		clear(s.tail[keep:])
		s.tail = s.tail[:keep]
	}
	for _, e := range entries {
		s.tailLen += len(e.GetData())
	}
	s.tail = append(s.tail, entries...)
	drop := 0
	for ; s.tailLen > maxTail && drop < len(s.tail)-1; drop++ {
		s.tailLen -= len(s.tail[drop].GetData())
		s.tail[drop] = nil
	}
	s.tail = s.tail[drop:]
	end := entries[len(entries)-1]
	s.last = position{end.GetIndex(), end.GetTerm()}
}

// Compact removes the entries up to index, which must be durable in the state. A crash may bring them back.
func (s *ShardLog) Compact(index uint64) error {
	index = min(index, s.last.index)
	if index <= s.start.index {
		return nil
	}
	term, err := s.Term(index)
	if err != nil {
		return err
	}
	b := s.log.db.NewBatch()
	mustPut(b.DeleteRange(entryKey(s.shard, s.start.index+1), entryKey(s.shard, index+1), nil))
	s.set(b, startRow, encodeRow(index, term))
	if err := s.log.commit(b, false); err != nil {
		return err
	}
	s.start = position{index, term}
	if drop := len(s.tail) - int(s.last.index-index); drop > 0 {
		for _, e := range s.tail[:drop] {
			s.tailLen -= len(e.GetData())
		}
		clear(s.tail[:drop])
		s.tail = s.tail[drop:]
	}
	return nil
}

// Has says whether there is, or was, a log of a shard on this node.
func (l *Log) Has(id uint32) bool {
	_, known := l.marks.get(id)
	return known
}

// Remove forgets a shard: its replica has left this node for good. No ShardLog of it may be in use. A crash in between
// leaves something that another Remove takes away.
func (l *Log) Remove(id uint32) error {
	b := l.db.NewBatch()
	mustPut(b.DeleteRange(rowKey(id, 0), rowKey(id, 0xff), nil))
	if err := l.commit(b, true); err != nil {
		return err
	}
	return l.marks.remove(id)
}

// Reset replaces all entries by a state that stands at index, an entry of term.
func (s *ShardLog) Reset(index, term uint64) error {
	b := s.log.db.NewBatch()
	mustPut(b.DeleteRange(entryKey(s.shard, 0), entryKey(s.shard, math.MaxUint64), nil))
	s.set(b, startRow, encodeRow(index, term))
	hard := &pb.HardState{Term: new(max(s.hard.GetTerm(), term)), Vote: s.hard.Vote, Commit: new(index)}
	if hard.GetTerm() > s.hard.GetTerm() {
		hard.Vote = nil
	}
	s.set(b, hardStateRow, encodeHardState(hard))
	if err := s.log.commit(b, true); err != nil {
		return err
	}
	s.hard, s.pending = hard, false
	s.start, s.last = position{index, term}, position{index, term}
	s.tail, s.tailLen = nil, 0
	return s.log.marks.set(mark{s.shard, s.epoch, position{index, hard.GetTerm()}})
}

// InitialState implements raft.Storage.
func (s *ShardLog) InitialState() (*pb.HardState, *pb.ConfState, error) { return s.hard, s.conf, nil }

// FirstIndex implements raft.Storage.
func (s *ShardLog) FirstIndex() (uint64, error) { return s.start.index + 1, nil }

// LastIndex implements raft.Storage.
func (s *ShardLog) LastIndex() (uint64, error) { return s.last.index, nil }

// Snapshot implements raft.Storage. A log has none; that of the state is the shard's to send.
func (s *ShardLog) Snapshot() (*pb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

// Term implements raft.Storage.
func (s *ShardLog) Term(index uint64) (uint64, error) {
	switch {
	case index < s.start.index:
		return 0, raft.ErrCompacted
	case index == s.start.index:
		return s.start.term, nil
	case index > s.last.index:
		return 0, raft.ErrUnavailable
	case index == s.last.index:
		return s.last.term, nil
	}
	if at := s.tailAt(index); at >= 0 {
		return s.tail[at].GetTerm(), nil
	}
	term := uint64(0)
	err := s.scan(index, index+1, func(e *pb.Entry) bool { term = e.GetTerm(); return false })
	if err == nil && term == 0 {
		err = damaged(s.log.path(), "entry %d of shard %d is missing", index, s.shard)
	}
	return term, s.mustRead(err)
}

// tailAt returns where in the tail an entry is, or something negative.
func (s *ShardLog) tailAt(index uint64) int {
	return len(s.tail) - 1 - int(s.last.index-index)
}

// Entries implements raft.Storage.
func (s *ShardLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	switch {
	case lo <= s.start.index:
		return nil, raft.ErrCompacted
	case hi > s.last.index+1:
		return nil, raft.ErrUnavailable
	}
	if at := s.tailAt(lo); at >= 0 {
		return limit(s.tail[at:at+int(hi-lo)], maxSize), nil
	}
	var out []*pb.Entry
	size := uint64(0)
	err := s.scan(lo, hi, func(e *pb.Entry) bool {
		if size += uint64(entrySize(e)); len(out) > 0 && size > maxSize {
			return false
		}
		e.Data = append([]byte(nil), e.GetData()...)
		out = append(out, e)
		return true
	})
	if err == nil && len(out) == 0 {
		err = damaged(s.log.path(), "entry %d of shard %d is missing", lo, s.shard)
	}
	return out, s.mustRead(err)
}

// mustRead stops all writes if entries could not be read. Raft itself goes on: it sends a snapshot where it finds no entries.
func (s *ShardLog) mustRead(err error) error {
	if err != nil {
		s.log.fail(fmt.Errorf("read shard %d: %w", s.shard, err))
	}
	return err
}

// limit returns a copy of as many entries as fit in maxSize bytes, and at least one.
func limit(entries []*pb.Entry, maxSize uint64) []*pb.Entry {
	size, n := uint64(0), 0
	for ; n < len(entries); n++ {
		if size += uint64(entrySize(entries[n])); n > 0 && size > maxSize {
			break
		}
	}
	return append([]*pb.Entry(nil), entries[:n]...)
}
