package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config says where a log lies and how it is cut into files.
type Config struct {
	Dir   string // must exist
	FS    vfs.FS // nil: the operating system's
	Owner []byte // whose log it is, at most 256 bytes: Open refuses the log of another

	// SegmentSize is how many bytes a file has, a multiple of 4 KiB; 0: 16 MiB. A record that is too large for it makes its file
	// longer.
	SegmentSize int

	// Checkpoint opens a new segment: it returns the content of the segment's first record, and the oldest segment whose
	// records are still needed, which may be the new one. Once that record is on disk, files of older segments are removed or
	// used again, so the content must repeat all that their records said and that still holds. Checkpoint must not call the
	// log.
	Checkpoint func(segment uint32) (content []byte, first uint32)

	// AcceptLoss opens what is left of a damaged log: what came before the damage, or nothing. The damage is logged.
	AcceptLoss bool

	Logger *slog.Logger
	// Failed is called, at most once, when a file can't be made, written or synced. Nothing can be appended from then on:
	// what the disk holds is not known any more, and a sync that is tried again may pass without having written anything.
	Failed func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
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
	// maxFree is how many files wait to be used again; further ones are removed.
	maxFree = 2
	// maxBuffer is how large a buffer may be to be kept for later records.
	maxBuffer = 4 << 20
)

// ErrClosed: the log was closed.
var ErrClosed = errors.New("log is closed")

// Log is an open log. Its methods may be called from any goroutine.
type Log struct {
	cfg Config

	mu      sync.Mutex
	changed sync.Cond // a sync has ended, a segment is ready, or the log has failed
	err     error     // of the first failure, or ErrClosed

	segments map[uint32]*segment // those that are needed
	last     *segment            // that records go to
	begin    int                 // where its records begin, behind the checkpoint
	next     *segment            // ready to follow it; nil: not yet
	free     []*segment          // to be used again
	doomed   []*segment          // to be removed

	out     []byte // what comes next into last, from the beginning of a block
	outAt   int    // where in last that is
	old     int    // how many bytes at the beginning of out were written before
	spare   []byte // another buffer for out
	syncing bool   // a caller writes and syncs
	synced  LSN    // the end of what is on disk
	cut     cut

	work chan struct{} // has a token when keepSegments may have something to do
	done chan struct{} // closed when keepSegments has ended
}

// cut is what a checkpoint allows once it is on disk: the segments before first may go.
type cut struct {
	first uint32
	after LSN
}

// Append adds a record of n bytes, which fill writes into b, all of it. Fill runs under the lock of the log: it must be
// brief and must not call the log. With sync, Append returns when the record and all before it are on disk; without, the
// record goes to disk with the next that is synced, or with Close.
//
// An error is for good, and leaves open whether the record is there.
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

// makeRoom returns when size bytes fit into the last segment, or it is a new one.
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
			l.changed.Wait()
		default:
			l.rotate()
		}
	}
	return l.err
}

// put adds a record to the buffer and returns where it ends. Its head is sealed when it is written.
func (l *Log) put(n int, fill func(at LSN, b []byte)) (end LSN) {
	begin, size := len(l.out), recordSize(n)
	at := lsnOf(l.last.number, l.outAt+begin)
	l.out = growBlocks(l.out, size)[:begin+size]
	rec := l.out[begin:]
	setLength(rec, n)
	fill(at, rec[recordHead:recordHead+n:recordHead+n])
	return at + LSN(size)
}

// flush writes the buffer and syncs it. It gives up the lock meanwhile.
func (l *Log) flush() {
	out, at, old, to := l.out, l.outAt, l.old, l.last
	tail := len(out) - blockStart(len(out)) // the next write repeats it
	l.out, l.spare = growBlocks(l.spare[:0], tail)[:tail], nil
	l.outAt, l.old = at+len(out)-tail, tail
	l.syncing = true
	synced := l.synced
	l.mu.Unlock()

	sealAll(out[old:], lsnOf(to.number, at+old), synced)
	end, blocks := len(out), out[:blockEnd(len(out))]
	clear(blocks[end:])
	err := to.write(blocks, at)

	l.mu.Lock()
	l.syncing = false
	copy(l.out, out[end-tail:])
	if cap(out) <= maxBuffer {
		l.spare = out
	}
	if err != nil {
		l.fail(fmt.Errorf("%s: %w", l.pathOf(to.number), err))
		return
	}
	to.size = max(to.size, at+len(blocks))
	l.synced = lsnOf(to.number, at+end)
	l.dropOld()
	l.changed.Broadcast()
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

// checkpoint writes the first record of the last segment; the one before it ends at end.
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

// dropOld gives up the segments that the last checkpoint has made superfluous, if it is on disk.
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

// discard keeps the file of a segment that nobody needs for another one, or has it removed.
func (l *Log) discard(s *segment) {
	if s.size == l.cfg.SegmentSize && len(l.free) < maxFree {
		l.free = append(l.free, s)
		return
	}
	l.doomed = append(l.doomed, s)
	l.wake()
}

// fail ends the log for writers. It gives up the lock while it reports.
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

// Read returns the content of a record of n bytes that is on disk and in a segment that is needed.
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
		return nil, fmt.Errorf("%s: %w", l.pathOf(s.number), err)
	}
	r, ok := parse(b, at)
	if !ok || len(r.content) != n {
		return nil, l.damage(s.number, at.Offset(), at.Offset()+len(b), "a record that was synced can't be read")
	}
	return r.content, nil
}

// DiskBytes is how much the files of the log take.
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

// Segments says which segments are needed.
func (l *Log) Segments() (first, last uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.last.number
	for n := range l.segments {
		first = min(first, n)
	}
	return first, l.last.number
}

// Close writes what is not written yet and closes the files.
func (l *Log) Close() error {
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

func (l *Log) closeFiles() (err error) {
	for _, s := range l.segments {
		err = errors.Join(err, s.close())
	}
	for _, s := range append(append(l.free, l.doomed...), l.next) {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// wake gives keepSegments something to do. It is called with the lock held.
func (l *Log) wake() {
	if l.err != nil {
		return
	}
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// keepSegments removes what is not needed and makes the next segment before it is needed. It ends in Close, or when the
// log fails.
func (l *Log) keepSegments() {
	defer close(l.done)
	for range l.work {
		if err := l.tidy(); err != nil {
			l.mu.Lock()
			l.fail(err)
			l.mu.Unlock()
			return
		}
	}
}

func (l *Log) tidy() error {
	if err := l.removeDoomed(); err != nil {
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
	l.next = next
	l.changed.Broadcast()
	return nil
}

func (l *Log) makeSegment(old *segment, number uint32) (*segment, error) {
	if old != nil {
		return l.reuse(old, number)
	}
	return l.create(number)
}
