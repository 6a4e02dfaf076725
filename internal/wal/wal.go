package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// Config configures a Log.
type Config struct {
	Dir   string // must exist when Begin is called
	FS    vfs.FS // nil: the operating system's
	Owner []byte // identifies the log, at most 256 bytes: Open refuses the log of another owner

	// SegmentSize is the size of a file in bytes, a multiple of 4 KiB; 0: 16 MiB. A record that does not fit makes its file
	// longer.
	SegmentSize int

	// Checkpoint is called for every new segment. It returns the content of the segment's first record, and the oldest segment
	// whose records are still needed, which may be the new one. Once that record is on disk, files of older segments are removed
	// or reused, so the content must repeat everything in their records that is still valid. Checkpoint must not call the log.
	Checkpoint func(segment uint32) (content []byte, first uint32)

	// AcceptLoss opens what remains of a damaged log: everything before the damage, or nothing. The damage is logged.
	AcceptLoss bool

	Logger *slog.Logger
	// Failed is called, at most once, when a file can't be created, written or synced. Nothing can be appended from then on: the
	// contents of the disk are unknown, and a retried sync may succeed without having written anything. A full disk is no failure
	// while the last segment has room.
	Failed func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = ondisk.OS
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
}

const (
	// maxFree is how many files are kept for reuse; any others are removed.
	maxFree = 2
	// maxBuffer is the size of the largest buffer that is kept for later records, in bytes.
	maxBuffer = 4 << 20
	// Buffers are dropped this long after the last write that left one of over idleBuffer bytes.
	dropAfter  = 500 * time.Millisecond
	idleBuffer = 64 << 10
	// retryAfter is how long after the disk was found full the next segment is tried again, unless it is needed before.
	retryAfter = 10 * time.Second
)

// ErrClosed: the log was closed.
var ErrClosed = errors.New("log is closed")

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	changed sync.Cond // signals that a sync has ended, a segment is ready, or the log has failed
	err     error     // the first failure, or ErrClosed

	first uint32 // the first segment that is needed, according to Load
	end   LSN    // of the log, according to Load
	begun bool   // Begin has succeeded

	segments map[uint32]*segment // the needed ones
	last     *segment            // records go here
	begin    int                 // where its records begin, after the checkpoint
	next     *segment            // ready to follow last; nil: not yet
	free     []*segment          // to be reused
	obsolete []*segment          // to be removed
	needed   bool                // a caller waits for next
	full     bool                // the disk had no room for next
	retry    *time.Timer         // tries again to prepare next

	out     []byte      // the next write to last, from the beginning of a block
	outAt   int         // offset of out in last
	old     int         // bytes at the beginning of out that were written before
	spare   []byte      // another buffer for out
	drop    *time.Timer // runs dropBuffers
	syncing bool        // a caller is writing and syncing
	synced  LSN         // the end of the log on disk; while it is replayed, what its last record says
	torn    bool        // when the log was opened, its last segment had records after the end
	cut     cut

	work chan struct{} // has a token when keepSegments may have something to do
	done chan struct{} // closed when keepSegments has ended
}

// cut is what a checkpoint allows once it is on disk: the segments before first may be dropped.
type cut struct {
	first uint32
	after LSN
}

// Append appends a record of n bytes. fill must write all of b. It runs under the lock of the log, so it must be brief and
// must not call the log. With sync, Append returns when the record and all before it are on disk; without, the record goes
// to disk with the next synced one, or with Close.
//
// An error is permanent, and leaves open whether the record was written.
func (l *Log) Append(n int, sync bool, fill func(at LSN, b []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.makeRoom(recordSize(n)); err != nil {
		return err
	}
	end := l.put(n, fill)
	for sync && l.synced < end && l.err == nil {
		if l.syncing {
			l.changed.Wait()
		} else {
			l.flush()
		}
	}
	return l.err
}

// makeRoom returns once size bytes fit into the last segment, or that segment is new.
func (l *Log) makeRoom(size int) error {
	for l.err == nil {
		end := l.outAt + len(l.out)
		switch {
		case end+size <= l.cfg.SegmentSize || end == l.begin:
			return nil
		case l.syncing:
			l.changed.Wait()
		case len(l.out) > l.old:
			l.flush()
		case l.next == nil:
			l.needed = true
			l.wake()
			l.changed.Wait()
		default:
			l.rotate()
		}
	}
	return l.err
}

// put adds a record to the buffer and returns its end. The record's head is sealed when the buffer is written.
func (l *Log) put(n int, fill func(at LSN, b []byte)) (end LSN) {
	begin, size := len(l.out), recordSize(n)
	at := lsnOf(l.last.number, l.outAt+begin)
	l.out = growBlocks(l.out, size)[:begin+size]
	rec := l.out[begin:]
	setLength(rec, n)
	fill(at, rec[recordHead:recordHead+n:recordHead+n])
	return at + LSN(size)
}

// flush writes the buffer and syncs it. It releases the lock meanwhile.
func (l *Log) flush() {
	out, at, old, to := l.out, l.outAt, l.old, l.last
	tail := len(out) - blockStart(len(out)) // the next write repeats it
	l.out, l.spare = growBlocks(l.spare[:0], tail)[:tail], nil
	l.outAt, l.old = at+len(out)-tail, tail
	l.syncing = true
	synced := l.synced
	l.mu.Unlock()

	sealAll(out[old:], to, at+old, synced)
	end, blocks := len(out), out[:blockEnd(len(out))]
	clear(blocks[end:])
	err := to.write(blocks, at)

	l.mu.Lock()
	l.syncing = false
	copy(l.out, out[end-tail:])
	if cap(out) <= maxBuffer {
		l.spare = out
	}
	if cap(l.spare) > idleBuffer {
		l.drop.Reset(dropAfter)
	}
	if err != nil {
		l.fail(fmt.Errorf("%s: %w", l.cfg.pathOf(to.number), err))
		return
	}
	to.size = max(to.size, at+len(blocks))
	l.synced = lsnOf(to.number, at+end)
	l.dropOld()
	l.changed.Broadcast()
}

// dropBuffers drops the buffers, except for what is to be written, and for one that is being written.
func (l *Log) dropBuffers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = nil
	l.out = append(newBlocks(len(l.out)), l.out...)
}

// rotate begins the next segment.
func (l *Log) rotate() {
	end := lsnOf(l.last.number, l.outAt+len(l.out))
	l.last, l.next = l.next, nil
	l.segments[l.last.number] = l.last
	l.out, l.outAt, l.old = l.out[:0], segmentHead, 0
	l.checkpoint(end)
	l.wake()
}

// checkpoint adds the first record of the last segment. The previous segment ends at end.
func (l *Log) checkpoint(end LSN) {
	content, first := l.cfg.Checkpoint(l.last.number)
	after := l.put(checkpointHead+len(content), func(_ LSN, b []byte) {
		binary.LittleEndian.PutUint64(b, uint64(end))
		binary.LittleEndian.PutUint32(b[8:], first)
		copy(b[checkpointHead:], content)
	})
	l.begin = after.Offset()
	l.cut = cut{first, after}
}

// dropOld drops the segments that the last checkpoint has made obsolete, if the checkpoint is on disk.
func (l *Log) dropOld() {
	if l.synced < l.cut.after {
		return
	}
	for n, s := range l.segments {
		if n < l.cut.first && s.readers == 0 {
			delete(l.segments, n)
			l.discard(s)
		}
	}
}

// discard keeps a segment's file for reuse, or schedules its removal.
func (l *Log) discard(s *segment) {
	if s.size == l.cfg.SegmentSize && len(l.free) < maxFree {
		l.free = append(l.free, s)
		return
	}
	l.obsolete = append(l.obsolete, s)
	l.wake()
}

// fail ends the log for writers. It releases the lock while it calls Failed.
func (l *Log) fail(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.changed.Broadcast()
	l.mu.Unlock()
	l.cfg.Failed(err)
	l.mu.Lock()
}

// Read returns the content of a record of n bytes. The record must be on disk, and its segment still needed.
func (l *Log) Read(at LSN, n int) ([]byte, error) {
	l.mu.Lock()
	s := l.segments[at.Segment()]
	if s == nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("record %s: its segment is gone", at)
	}
	s.readers++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		s.readers--
		l.dropOld()
		l.mu.Unlock()
	}()
	b := make([]byte, recordHead+n)
	if _, err := s.file.ReadAt(b, int64(at.Offset())); err != nil {
		return nil, fmt.Errorf("%s: %w", l.cfg.pathOf(s.number), err)
	}
	r, ok := parse(b, s.place(at.Offset()))
	if !ok || len(r.content) != n {
		return nil, l.damage(s.number, at.Offset(), at.Offset()+len(b), "a record that was synced can't be read")
	}
	return r.content, nil
}

// DiskBytes returns the size of the log's files.
func (l *Log) DiskBytes() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		n += uint64(s.size)
	}
	for _, s := range l.free {
		n += uint64(s.size)
	}
	if l.next != nil {
		n += uint64(l.next.size)
	}
	return n
}

// Segments returns the range of segments that are needed.
func (l *Log) Segments() (first, last uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.last.number
	for n := range l.segments {
		first = min(first, n)
	}
	return first, l.last.number
}

// Close writes everything not yet written and closes the files.
func (l *Log) Close() error {
	if !l.begun {
		return l.closeFiles()
	}
	l.mu.Lock()
	for l.err == nil && (l.syncing || len(l.out) > l.old) {
		if l.syncing {
			l.changed.Wait()
		} else {
			l.flush()
		}
	}
	err := l.err
	if err == nil {
		l.err = ErrClosed
	}
	close(l.work)
	l.mu.Unlock()
	<-l.done
	return errors.Join(err, l.closeFiles())
}

// closeFiles closes the files. Reads may still end meanwhile.
func (l *Log) closeFiles() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		err = errors.Join(err, s.close())
	}
	for _, s := range append(append(l.free, l.obsolete...), l.next) {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// wake wakes keepSegments. The lock must be held.
func (l *Log) wake() {
	if l.err != nil {
		return
	}
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// keepSegments removes unneeded files and prepares the next segment ahead of time. It ends in Close, or when the log fails.
func (l *Log) keepSegments() {
	defer close(l.done)
	defer l.retry.Stop()
	for range l.work {
		if err := l.tidy(); err != nil && !l.canWait(err) {
			l.mu.Lock()
			l.fail(err)
			l.mu.Unlock()
			return
		}
	}
}

// canWait reports whether an error of tidy does no harm yet: the disk has no room for a segment that nobody needs now. It is tried again.
func (l *Log) canWait(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(err, syscall.ENOSPC) || l.needed {
		return false
	}
	if !l.full {
		l.cfg.Logger.Warn("the disk has no room for the next segment of the log", "segment", l.cfg.pathOf(l.last.number+1), "error", err)
	}
	l.full = true
	l.retry.Reset(retryAfter)
	return true
}

func (l *Log) tidy() error {
	if err := l.removeObsolete(); err != nil {
		return err
	}
	l.mu.Lock()
	number := l.last.number + 1
	var old *segment
	wanted := l.next == nil && l.err == nil
	if n := len(l.free); wanted && n > 0 {
		old, l.free = l.free[n-1], l.free[:n-1]
	}
	l.mu.Unlock()
	if !wanted {
		return nil
	}
	next, err := l.makeSegment(old, number)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.needed, l.full = next, false, false
	l.changed.Broadcast()
	return nil
}

func (l *Log) makeSegment(old *segment, number uint32) (*segment, error) {
	if old != nil {
		return l.cfg.reuse(old, number)
	}
	return l.cfg.create(number)
}
