package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/wal"
)

// maxTail is how many bytes of the newest entries a log keeps in memory, so that entries just saved are applied and sent
// to peers without reading the log.
const maxTail = 2 << 20

// Start is the position up to which a shard's state has applied entries durably, with the membership there.
type Start struct {
	Index, Term uint64
	Conf        *pb.ConfState
	// FromSnapshot means that the state was replaced by a snapshot: unless the log has its entry, it starts over there.
	FromSnapshot bool
	// Ran means that the replica has run before, so that a log without a mark is damaged.
	Ran bool
	// Epoch is the state's epoch, which can be ahead of the log's: a recovery raises it and drops the log.
	Epoch uint64
}

// ShardLog is one shard's log, and the raft.Storage of its group. The goroutine that drives the group owns it.
type ShardLog struct {
	log   *Log
	shard uint32
	index *shardIndex
	epoch uint64
	conf  *pb.ConfState // what InitialState returns

	hard    *pb.HardState // as saved, or to be saved with the next entries
	pending bool          // hard has an unsaved commit index
	start   position      // the entry before the first
	last    position
	tail    []*pb.Entry // the newest entries, up to last
	tailLen int         // bytes of data in tail
}

var _ raft.Storage = (*ShardLog)(nil)

// ErrStateBehind: the log no longer has entries that the state lacks. Files of the state are lost or old.
var ErrStateBehind = errors.New("the files of the state are lost or old")

// Shard opens the log of a shard whose state is at start. It checks the log against its mark and the state, and brings it up to the
// state: a blank log starts there, and after a power loss a log may have a commit index below what was applied.
func (l *Log) Shard(id uint32, start Start) (*ShardLog, error) {
	s := &ShardLog{log: l, shard: id, conf: start.Conf}
	if s.conf == nil {
		s.conf = &pb.ConfState{}
	}
	if err := s.open(start); err != nil {
		return nil, fmt.Errorf("log of shard %d: %w", id, err)
	}
	return s, nil
}

// Check compares the log of a shard with its mark and with its state, as Shard does, and changes nothing on disk.
func (l *Log) Check(id uint32, start Start) error {
	s := &ShardLog{log: l, shard: id}
	s.load()
	lost, err := s.compare(start)
	if lost != nil && !l.cfg.AcceptDataLoss {
		err = lost
	}
	if err != nil {
		return fmt.Errorf("log of shard %d: %w", id, err)
	}
	return nil
}

func (s *ShardLog) open(start Start) error {
	l := s.log
	s.load()
	l.mu.Lock()
	l.shards[s.shard] = s.index
	l.mu.Unlock()
	lost, err := s.compare(start)
	if lost != nil && !l.cfg.AcceptDataLoss {
		err = lost
	}
	if err != nil {
		return err
	}
	k, known := l.marks.get(s.shard)
	s.epoch = max(s.epoch, start.Epoch, k.epoch)
	if lost != nil {
		if err := s.giveUp(k, lost); err != nil {
			return err
		}
	}
	applied := position{start.Index, start.Term}
	switch reached := s.reached(s.last.index); {
	case !s.has(applied):
		err = s.Reset(applied.index, applied.term)
	case !known || k != reached:
		err = l.marks.set(reached)
	}
	if err != nil {
		return err
	}
	// The commit index is not synced on its own, and the state may have gone past the one on disk.
	s.hard.Commit = new(min(max(s.hard.GetCommit(), applied.index), s.last.index))
	return nil
}

// load loads the shard's state from the index.
func (s *ShardLog) load() {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.index = l.shards[s.shard]; s.index == nil {
		s.index = &shardIndex{}
	}
	s.epoch, s.hard = s.index.epoch, s.index.hard.proto()
	s.start, s.last = s.index.start, s.index.last()
}

// reached returns the mark of a log whose last entry is at index.
func (s *ShardLog) reached(index uint64) mark {
	return mark{s.shard, s.epoch, position{index, s.hard.GetTerm()}, s.hard.GetVote()}
}

// has reports whether the log has an entry, or begins after it.
func (s *ShardLog) has(p position) bool {
	term, err := s.Term(p.index)
	return err == nil && term == p.term
}

// blank reports whether nothing was ever written to the log.
func (s *ShardLog) blank() bool { return s.last == position{} && s.hard.GetTerm() == 0 }

// compare refuses a log that does not go with its state. lost is what the log has lost according to its mark and the state.
func (s *ShardLog) compare(start Start) (lost *ondisk.DamageError, err error) {
	applied := position{start.Index, start.Term}
	snapshot := start.FromSnapshot && !s.has(applied) // its log is about to start over
	switch {
	case applied.index < s.start.index:
		return nil, fmt.Errorf("%w: its log begins after entry %d, and it has only entry %d", ErrStateBehind, s.start.index, applied.index)
	case applied.index <= s.last.index && !snapshot && !s.has(applied):
		term, _ := s.Term(applied.index)
		return nil, damaged(s.log.path(), "entry %d is of term %d, the state applied one of term %d", applied.index, term, applied.term)
	}
	k, known := s.log.marks.get(s.shard)
	end, term := s.last.index, s.hard.GetTerm()
	switch {
	case s.log.lossy:
		return damaged(s.log.path(), "parts of the store were given up"), nil
	case !known && (start.Ran || !s.blank()):
		return damaged(s.log.marks.path, "it has no mark of shard %d", s.shard), nil
	case k.term > term:
		return damaged(s.log.path(), "shard %d had reached entry %d in term %d, but now ends at entry %d in term %d", s.shard, k.index,
			k.term, end, term), nil
	case k.term == term && k.vote != 0 && k.vote != s.hard.GetVote():
		return damaged(s.log.path(), "shard %d had voted for replica %d in term %d, and now has the vote %d", s.shard, k.vote, k.term,
			s.hard.GetVote()), nil
	case snapshot:
	case k.term == term && k.index > end:
		return damaged(s.log.path(), "entries %d to %d of shard %d are lost", end+1, k.index, s.shard), nil
	case applied.index > end && !s.blank() && (start.Ran || start.Epoch <= max(s.epoch, k.epoch)): // otherwise a recovery is being repeated
		return damaged(s.log.path(), "shard %d ends at entry %d, and its state has entry %d already", s.shard, end, applied.index), nil
	}
	return nil, nil
}

// giveUp accepts that the log has lost something: it begins a new epoch, in a term in which this replica has not voted.
func (s *ShardLog) giveUp(k mark, lost *ondisk.DamageError) error {
	s.log.giveUpShard(s.shard, lost)
	s.epoch++
	s.hard = &pb.HardState{Term: new(max(s.hard.GetTerm(), k.term) + 1), Commit: s.hard.Commit}
	if err := s.saveEpoch(); err != nil {
		return err
	}
	// Entries behind a gap are still in the write-ahead log. What replaces the last one before it drops them from the next replay, too.
	if s.last == s.start {
		return s.Reset(s.start.index, s.start.term)
	}
	last, err := s.Entries(s.last.index, s.last.index+1, 0)
	if err != nil {
		return err
	}
	return s.appendEntries(last)
}

// LostError returns the error for a log that has lost something that only others know of.
func (s *ShardLog) LostError(format string, args ...any) error {
	return damaged(s.log.path(), "shard %d: %s", s.shard, fmt.Sprintf(format, args...))
}

func (l *Log) giveUpShard(id uint32, err error) {
	l.cfg.Logger.Error("data loss accepted", "dir", l.cfg.Dir, "shard", id, "error", err)
}

func (s *ShardLog) saveEpoch() error {
	hard := hardStateOf(s.hard)
	content := appendNumbers(appendHead(nil, recordEpoch, s.shard), s.epoch, hard.term, hard.vote, hard.commit)
	return s.appendContent(content, true, func(x *shardIndex) { x.epoch, x.hard = s.epoch, hard })
}

// appendContent appends a record, and applies it to the index.
func (s *ShardLog) appendContent(content []byte, sync bool, apply func(*shardIndex)) error {
	return s.log.append(len(content), sync, func(_ wal.LSN, b []byte) {
		copy(b, content)
		s.log.mu.Lock()
		apply(s.index)
		s.log.mu.Unlock()
	})
}

// Epoch grows by one whenever the loss of part of this log is accepted. It is never below Start.Epoch.
func (s *ShardLog) Epoch() uint64 { return s.epoch }

// Save makes the hard state and the entries of one raft.Ready durable, in one batch, before it returns; either may be
// empty. Entries may replace existing ones of the same index: then all that followed those are dropped. A hard state that
// differs only in its commit index is saved with the next entries, since losing it before that does no harm. Without it, a
// replica that has what follows a change of membership would not know after a restart that the change is in force, and could
// be elected by the members from before.
//
// After an error no Save succeeds again.
func (s *ShardLog) Save(hs *pb.HardState, entries []*pb.Entry) error {
	newTerm := !raft.IsEmptyHardState(hs) && (hs.GetTerm() != s.hard.GetTerm() || hs.GetVote() != s.hard.GetVote())
	if !raft.IsEmptyHardState(hs) {
		s.hard, s.pending = hs, true
	}
	if len(entries) == 0 && !newTerm {
		return nil
	}
	if len(entries) > 0 && entries[0].GetIndex() > s.last.index+1 {
		return fmt.Errorf("shard %d: entry %d would follow entry %d", s.shard, entries[0].GetIndex(), s.last.index)
	}
	if len(entries) > 0 && entries[0].GetIndex() <= s.last.index {
		if err := s.cutBack(entries[0].GetIndex()); err != nil {
			return err
		}
	}
	if err := s.appendEntries(entries); err != nil {
		return err
	}
	s.pending = false
	s.remember(entries)
	if newTerm {
		return s.log.marks.set(s.reached(s.last.index))
	}
	s.log.marks.advance(s.reached(s.last.index))
	return nil
}

// cutBack prepares the log for other entries from index on.
func (s *ShardLog) cutBack(index uint64) error {
	if index <= s.start.index {
		panic(fmt.Sprintf("shard %d: entry %d would replace one that is compacted (up to %d)", s.shard, index, s.start.index))
	}
	return s.lowerMark(index - 1)
}

// lowerMark lowers the mark before the entries after end are dropped. Otherwise a crash in between would look like a loss.
func (s *ShardLog) lowerMark(end uint64) error {
	k, _ := s.log.marks.get(s.shard)
	if k.index <= end {
		return nil
	}
	k.index = end
	return s.log.marks.set(k)
}

// appendEntries appends the record of a Save.
func (s *ShardLog) appendEntries(entries []*pb.Entry) error {
	head := append(appendHead(make([]byte, 0, 48), recordSave, s.shard), 0)
	hard := hardStateOf(s.hard)
	if s.pending {
		head[len(head)-1] = 1
		head = appendNumbers(head, hard.term, hard.vote, hard.commit)
	}
	n := len(head) + entriesSize(entries)
	return s.log.append(n, true, func(at wal.LSN, b []byte) {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		if s.pending {
			s.index.hard = hard
		}
		b = append(b[:0], head...)
		for _, e := range entries {
			_ = s.index.set(e.GetIndex(), place{at, uint32(n), uint32(len(b)), e.GetTerm()})
			b = appendEntry(b, e)
		}
	})
}

// remember adds saved entries to the tail.
func (s *ShardLog) remember(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	if n := int(s.last.index+1) - int(entries[0].GetIndex()); n > 0 { // replaces the newest n
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
	term, _ := s.Term(index)
	to := position{index, term}
	content := appendNumbers(appendHead(nil, recordCompacted, s.shard), to.index, to.term)
	if err := s.appendContent(content, false, func(x *shardIndex) { x.compact(to) }); err != nil {
		return err
	}
	s.start = to
	if drop := len(s.tail) - int(s.last.index-index); drop > 0 {
		for _, e := range s.tail[:drop] {
			s.tailLen -= len(e.GetData())
		}
		clear(s.tail[:drop])
		s.tail = s.tail[drop:]
	}
	return nil
}

// Has reports whether this node has, or had, a log of a shard.
func (l *Log) Has(id uint32) bool {
	_, known := l.marks.get(id)
	return known
}

// Holds reports whether something was ever written to the log of a shard, and is there.
func (l *Log) Holds(id uint32) bool {
	s := &ShardLog{log: l, shard: id}
	s.load()
	return !s.blank()
}

// Last returns the last entry in the log of a shard.
func (l *Log) Last(id uint32) uint64 {
	s := &ShardLog{log: l, shard: id}
	s.load()
	return s.last.index
}

// Shards returns the shards that have, or had, a log on this node.
func (l *Log) Shards() []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.mu.Lock()
	defer l.marks.mu.Unlock()
	ids := slices.AppendSeq(slices.Collect(maps.Keys(l.shards)), maps.Keys(l.marks.byShard))
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Create records durably that a shard has a log, so that from now on its loss is noticed.
func (l *Log) Create(id uint32) error {
	if l.Has(id) {
		return nil
	}
	return l.marks.set(mark{shard: id})
}

// Remove removes a shard whose replica has left this node for good. Its ShardLog must not be in use. If a crash interrupts it,
// Remove must be called again.
func (l *Log) Remove(id uint32) error {
	content := appendHead(nil, recordRemoved, id)
	err := l.append(len(content), true, func(_ wal.LSN, b []byte) {
		copy(b, content)
		l.mu.Lock()
		delete(l.shards, id)
		l.mu.Unlock()
	})
	if err != nil {
		return err
	}
	return l.marks.remove(id)
}

// Reset drops all entries in favor of a state that has applied the entry at index, of term.
func (s *ShardLog) Reset(index, term uint64) error {
	hard := &pb.HardState{Term: new(max(s.hard.GetTerm(), term)), Vote: s.hard.Vote, Commit: new(index)}
	if hard.GetTerm() > s.hard.GetTerm() {
		hard.Vote = nil
	}
	if err := s.lowerMark(index); err != nil {
		return err
	}
	to, h := position{index, term}, hardStateOf(hard)
	content := appendNumbers(appendHead(nil, recordReset, s.shard), to.index, to.term, h.term, h.vote, h.commit)
	err := s.appendContent(content, true, func(x *shardIndex) { x.start, x.hard, x.places = to, h, nil })
	if err != nil {
		return err
	}
	s.hard, s.pending = hard, false
	s.start, s.last = to, to
	s.tail, s.tailLen = nil, 0
	return s.log.marks.set(s.reached(index))
}

// InitialState implements raft.Storage.
func (s *ShardLog) InitialState() (*pb.HardState, *pb.ConfState, error) { return s.hard, s.conf, nil }

// FirstIndex implements raft.Storage.
func (s *ShardLog) FirstIndex() (uint64, error) { return s.start.index + 1, nil }

// LastIndex implements raft.Storage.
func (s *ShardLog) LastIndex() (uint64, error) { return s.last.index, nil }

// Snapshot implements raft.Storage. A log has no snapshot; the shard sends that of the state.
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
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.index.at(index).term, nil
}

// tailAt returns the position of an entry in the tail, or a negative number if it isn't there.
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
	for index := lo; index < hi; {
		read, err := s.read(index, hi)
		if err != nil {
			s.log.fail(fmt.Errorf("read shard %d: %w", s.shard, err)) // Raft itself would continue, and send a snapshot instead
			return nil, err
		}
		for _, e := range read {
			if size += uint64(entrySize(e)); len(out) > 0 && size > maxSize {
				return out, nil
			}
			out = append(out, e)
		}
		index += uint64(len(read))
	}
	return out, nil
}

// read reads an entry, and those after it in the same record.
func (s *ShardLog) read(index, hi uint64) (out []*pb.Entry, err error) {
	s.log.mu.Lock()
	p := s.index.at(index)
	places := []place{p}
	for next := index + 1; next < hi; next++ {
		q := s.index.at(next)
		if q.record != p.record {
			break
		}
		places = append(places, q)
	}
	s.log.mu.Unlock()
	content, err := s.log.wal.Read(p.record, int(p.length))
	if err != nil {
		return nil, ondisk.AsDamage("log", s.log.path(), err)
	}
	for i, p := range places {
		r := &reader{rest: content[p.offset:]}
		e := r.entry()
		if r.err != nil || e.GetIndex() != index+uint64(i) || e.GetTerm() != p.term {
			return nil, damaged(s.log.path(), "entry %d of shard %d is stored where entry %d of term %d should be: %v",
				e.GetIndex(), s.shard, index+uint64(i), p.term, r.err)
		}
		out = append(out, e)
	}
	return out, nil
}

// limit returns a copy of the entries that fit in maxSize bytes, but at least one.
func limit(entries []*pb.Entry, maxSize uint64) []*pb.Entry {
	size, n := uint64(0), 0
	for ; n < len(entries); n++ {
		if size += uint64(entrySize(entries[n])); n > 0 && size > maxSize {
			break
		}
	}
	return append([]*pb.Entry(nil), entries[:n]...)
}
