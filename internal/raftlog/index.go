package raftlog

import (
	"fmt"

	"github.com/pawlq/pawl/internal/wal"
)

// shardIndex is the state of one shard according to the write-ahead log, with the places of its entries. It is guarded by
// Log.mu, and changes along with the record that describes the change.
type shardIndex struct {
	epoch  uint64
	hard   hardState
	start  position // the entry before the first
	places []place  // of the entries after start; while the log is replayed, zero for an entry that has not been found yet
}

// place is where an entry is in the write-ahead log.
type place struct {
	record wal.LSN
	length uint32 // of the record
	offset uint32 // in the record
	term   uint64
}

func (x *shardIndex) last() position {
	n := len(x.places)
	if n == 0 {
		return x.start
	}
	return position{x.start.index + uint64(n), x.places[n-1].term}
}

// maxGap bounds how many entries may be missing before another one while the log is replayed: they were copied to its end. check
// finds those that are still missing. No log has more entries: it is cut long before.
const maxGap = 1 << 22

// at returns the place of an entry, or the zero place if the log does not have it.
func (x *shardIndex) at(index uint64) place {
	if index <= x.start.index || index > x.last().index {
		return place{}
	}
	return x.places[index-x.start.index-1]
}

// set appends an entry, or replaces an existing one and drops those after it.
func (x *shardIndex) set(index uint64, p place) error {
	if last := x.last().index; x.start.index < index && index <= last {
		x.places = x.places[:index-x.start.index-1]
	}
	return x.put(index, p)
}

// put sets the place of an entry, and keeps those after it. It returns an error if the entry can't belong to this log.
func (x *shardIndex) put(index uint64, p place) error {
	if index <= x.start.index {
		return nil
	}
	if last := x.last().index; index > last+maxGap {
		return fmt.Errorf("entry %d follows entry %d", index, last)
	}
	n := int(index - x.start.index - 1)
	for len(x.places) <= n {
		x.places = append(x.places, place{})
	}
	x.places[n] = p
	return nil
}

// compact drops the entries up to a position.
func (x *shardIndex) compact(to position) {
	if to.index <= x.start.index {
		return
	}
	n := min(to.index-x.start.index, uint64(len(x.places)))
	x.places = x.places[n:]
	x.start = to
}

// first returns the segment of the oldest record that is needed, or otherwise if that is lower.
func (x *shardIndex) first(otherwise uint32) uint32 {
	for _, p := range x.places {
		otherwise = min(otherwise, p.record.Segment())
	}
	return otherwise
}

// check returns how many entries there are before the first gap, and an error that describes it.
func (x *shardIndex) check() (whole int, err error) {
	prev := x.start.term
	for i, p := range x.places {
		n := x.start.index + uint64(i) + 1
		switch {
		case p.record == 0:
			return i, fmt.Errorf("entry %d is missing", n)
		case p.term < prev:
			return i, fmt.Errorf("entry %d of term %d follows one of term %d", n, p.term, prev)
		}
		prev = p.term
	}
	return len(x.places), nil
}

// apply applies a record to the index of its shard.
func (l *Log) apply(at wal.LSN, content []byte) error {
	r := &reader{rest: content}
	r.version()
	kind, shard := r.byte(), r.shard()
	x := l.shards[shard]
	if x == nil {
		x = &shardIndex{}
		if kind != recordVoid && r.err == nil {
			l.shards[shard] = x
		}
	}
	switch {
	case r.err != nil:
	case kind == recordVoid:
		r.rest = nil
	case kind == recordSave:
		if r.byte() != 0 {
			x.hard = r.hardState()
		}
		x.applyEntries(r, at, content, x.set)
	case kind == recordCopied:
		x.applyEntries(r, at, content, x.put)
	case kind == recordCompacted:
		x.compact(r.position())
	case kind == recordReset:
		x.start, x.hard, x.places = r.position(), r.hardState(), nil
	case kind == recordEpoch:
		x.epoch, x.hard = r.number(), r.hardState()
	case kind == recordRemoved:
		delete(l.shards, shard)
	default:
		return fmt.Errorf("record has unknown kind %d", kind)
	}
	return r.end()
}

func (x *shardIndex) applyEntries(r *reader, at wal.LSN, content []byte, put func(uint64, place) error) {
	for len(r.rest) > 0 && r.err == nil {
		offset := len(content) - len(r.rest)
		if e := r.entry(); r.err == nil {
			r.err = put(e.GetIndex(), place{at, uint32(len(content)), uint32(offset), e.GetTerm()})
		}
	}
}

// checkpoint returns the content of a segment's first record, and the first segment that is needed.
func (l *Log) checkpoint(segment uint32) (content []byte, first uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, first = []byte{recordVersion}, segment
	for id, x := range l.shards {
		content = appendNumbers(content, uint64(id), x.epoch, x.hard.term, x.hard.vote, x.hard.commit, x.start.index, x.start.term)
		first = x.first(first)
	}
	select {
	case l.rotated <- struct{}{}:
	default:
	}
	return content, first
}

// applyCheckpoint applies a checkpoint to the index. Shards that it does not name are gone.
func (l *Log) applyCheckpoint(content []byte) error {
	r := &reader{rest: content}
	r.version()
	named := map[uint32]bool{}
	for len(r.rest) > 0 {
		id := uint32(r.number())
		epoch, hard, start := r.number(), r.hardState(), r.position()
		if r.err != nil {
			break
		}
		x := l.shards[id]
		if x == nil {
			x = &shardIndex{}
			l.shards[id] = x
		}
		named[id], x.epoch, x.hard = true, epoch, hard
		x.compact(start)
	}
	for id := range l.shards {
		if !named[id] {
			delete(l.shards, id)
		}
	}
	return r.end()
}
