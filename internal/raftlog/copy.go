package raftlog

import (
	"fmt"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/wal"
)

// A segment is needed as long as any entry in it is. A shard that hardly writes would keep all segments since its last
// entries alive, so these entries are copied to the end of the log when they are few and far behind.

// keepSegments is how many segments the log may have before entries are copied out of older ones.
const keepSegments = 8

// copyOldEntries copies entries whenever a segment has begun. Close ends it.
func (l *Log) copyOldEntries() {
	for {
		select {
		case <-l.quit:
			return
		case <-l.rotated:
		}
		if err := l.copyOnce(); err != nil {
			l.fail(fmt.Errorf("copy old entries: %w", err))
		}
	}
}

// oldEntries is the entries of a shard that are in old segments.
type oldEntries struct {
	shard   uint32
	index   *shardIndex
	numbers []uint64
	places  []place
}

// copyOnce copies the entries in segments that are too old, if they take less than a quarter of a segment.
func (l *Log) copyOnce() error {
	_, last := l.wal.Segments()
	if last <= keepSegments {
		return nil
	}
	old, size := l.entriesBefore(last - keepSegments)
	if size > l.cfg.SegmentSize/4 {
		return nil // a replica lags: it will need them soon, and they are many
	}
	for _, o := range old {
		if err := l.copy(o); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) entriesBefore(segment uint32) (old []oldEntries, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, x := range l.shards {
		o := oldEntries{shard: id, index: x}
		for i, p := range x.places {
			if p.record.Segment() < segment {
				o.numbers, o.places = append(o.numbers, x.start.index+uint64(i)+1), append(o.places, p)
				size += int(p.length) // too much if the record has more entries
			}
		}
		if len(o.places) > 0 {
			old = append(old, o)
		}
	}
	return old, size
}

// copy writes entries again, and updates their places once they are on disk.
func (l *Log) copy(o oldEntries) error {
	content := appendHead(nil, recordCopied, o.shard)
	moved := make([]place, len(o.places))
	for i, p := range o.places {
		rec, err := l.wal.Read(p.record, int(p.length))
		if err != nil && !o.current(l) {
			return nil // the log was compacted meanwhile
		}
		if err != nil {
			return ondisk.AsDamage("log", l.path(), err)
		}
		r := &reader{rest: rec[p.offset:]}
		e := r.entry()
		if r.err != nil {
			return damaged(l.path(), "entry %d of shard %d: %v", o.numbers[i], o.shard, r.err)
		}
		moved[i] = place{offset: uint32(len(content)), term: p.term}
		content = appendEntry(content, e)
	}
	var at wal.LSN
	err := l.append(len(content), true, func(lsn wal.LSN, b []byte) {
		if copy(b, content); o.current(l) {
			at = lsn
		} else {
			b[1] = recordVoid
		}
	})
	if err != nil || at == 0 {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range moved {
		if o.index.at(o.numbers[i]) == o.places[i] {
			p.record, p.length = at, uint32(len(content))
			_ = o.index.put(o.numbers[i], p) // the log is known to have it
		}
	}
	return nil
}

// current reports whether the entries are still part of the log, in the same places.
func (o *oldEntries) current(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shards[o.shard] != o.index {
		return false
	}
	for i, n := range o.numbers {
		if o.index.at(n) != o.places[i] {
			return false
		}
	}
	return true
}
