package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/ondisk"
)

// OwnerError reports that the log belongs to another owner.
type OwnerError struct {
	File  string
	Owner []byte // as stored in the file
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("log %q belongs to owner %x", e.File, e.Owner)
}

func (l *Log) damage(segment uint32, from, to int, reason string) *ondisk.DamageError {
	return &ondisk.DamageError{What: "log", File: l.cfg.pathOf(segment), From: int64(from), To: int64(to), Reason: reason}
}

// Replay receives the records of a log in order. checkpoint marks the content that Config.Checkpoint returned. content is
// valid until Replay returns.
type Replay func(at LSN, content []byte, checkpoint bool) error

// Open opens the log in cfg.Dir, or creates one if it has no segments, and calls replay for the records of all segments
// that are needed. Some may have been replayed before Open fails. If it returns ondisk.ErrDamaged, nothing was changed on
// disk, and AcceptLoss opens what remains.
func Open(cfg Config, replay Replay) (*Log, error) {
	l, err := Load(cfg, replay)
	if err != nil {
		return nil, err
	}
	if err := l.Begin(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Load is the first half of Open: it reads the log and changes nothing on disk. Until Begin, only Close may be called.
func Load(cfg Config, replay Replay) (*Log, error) {
	cfg.setDefaults()
	l := &Log{cfg: cfg, segments: map[uint32]*segment{}, work: make(chan struct{}, 1), done: make(chan struct{})}
	l.changed.L = &l.mu
	l.drop = time.AfterFunc(dropAfter, l.dropBuffers)
	l.drop.Stop() // until a large write
	l.retry = time.AfterFunc(retryAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake()
	})
	l.retry.Stop() // until the disk is full
	if err := l.load(replay); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	return l, nil
}

func (l *Log) load(replay Replay) (err error) {
	if l.cfg.SegmentSize%blockSize != 0 {
		return fmt.Errorf("segments of %d bytes: their size must be a multiple of %d", l.cfg.SegmentSize, blockSize)
	}
	if len(l.cfg.Owner) > maxOwner {
		return fmt.Errorf("owner of %d bytes: at most %d", len(l.cfg.Owner), maxOwner)
	}
	if err := l.openSegments(); err != nil {
		return err
	}
	l.first, l.end, err = l.replayAll(replay)
	return l.cfg.accept(err)
}

// Begin is the second half of Open: it cuts off what is beyond the end of the log, and makes the log writable.
func (l *Log) Begin() error {
	err := l.cfg.removeUnfinished()
	if err == nil {
		err = l.cutAt(l.end)
	}
	switch {
	case err != nil:
	case l.end == 0:
		err = l.start()
	default:
		err = l.resume(l.first, l.end)
	}
	if err != nil {
		return err
	}
	l.begun = true
	l.wake()
	go l.keepSegments()
	return nil
}

// accept logs damage and returns nil, if the configuration accepts loss.
func (c *Config) accept(err error) error {
	var damage *ondisk.DamageError
	if !c.AcceptLoss || !errors.As(err, &damage) {
		return err
	}
	c.Logger.Warn("damage to the log is accepted: what follows it is lost", "damage", damage)
	return nil
}

// openSegments opens all segment files in the directory. A missing directory has none.
func (l *Log) openSegments() error {
	names, err := l.cfg.FS.List(l.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if number, ok := numberOf(name); ok {
			s, err := l.cfg.openSegment(number, 0)
			if err != nil {
				return err
			}
			l.segments[number] = s
			if err := s.readSeed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeUnfinished removes files that did not become segments.
func (c *Config) removeUnfinished() error {
	names, err := c.FS.List(c.Dir)
	for _, name := range names {
		if strings.HasSuffix(name, suffix+unfinishedSuffix) {
			err = errors.Join(err, c.FS.Remove(c.path(name)))
		}
	}
	return err
}

// numbers returns the numbers of all open segments, in order.
func (l *Log) numbers() []uint32 { return slices.Sorted(maps.Keys(l.segments)) }

// replayAll replays the log, and returns the first segment that is needed and the end of the log. With an error that is
// damage, end is the end of the undamaged part, or 0 if there is none.
func (l *Log) replayAll(replay Replay) (first uint32, end LSN, err error) {
	last, first, err := l.findLast()
	if err != nil || last == 0 {
		return 0, 0, err
	}
	for n := first; n <= last; n++ {
		if l.segments[n] == nil {
			return first, end, l.damage(n, 0, 0, "it is missing")
		}
		if end, err = l.replaySegment(n, end, n == last, replay); err != nil {
			return first, end, err
		}
	}
	return first, end, nil
}

// findLast finds the last segment that has begun, which is the one with the highest number and a first record, and the first
// segment that is needed. It returns 0 if none has begun.
func (l *Log) findLast() (last, first uint32, err error) {
	for _, n := range slices.Backward(l.numbers()) {
		first, err := l.readFirst(n)
		if err = l.cfg.accept(err); err != nil {
			return 0, 0, err
		}
		if first > 0 {
			return n, first, nil
		}
	}
	return 0, 0, nil
}

// readFirst reads the number of the first needed segment from the first record of a segment. It returns 0 if the segment has
// not begun.
func (l *Log) readFirst(n uint32) (first uint32, err error) {
	s := l.segments[n]
	b, err := s.read()
	if err != nil {
		return 0, err
	}
	if err := l.checkHead(n, b); err != nil {
		return 0, err
	}
	if r, ok := parse(b[segmentHead:], s.place(segmentHead)); ok {
		if _, first, _, ok := parseCheckpoint(r.content); ok && 0 < first && first <= n {
			return first, nil
		}
	}
	if w := s.witness(b, segmentHead); w > 0 {
		return 0, l.damage(n, segmentHead, w, "its first record can't be read, though a later one says that it was synced")
	}
	return 0, nil
}

// checkHead refuses a segment of another owner, and one without a head: a file has its name only once its head is on disk.
func (l *Log) checkHead(n uint32, b []byte) error {
	number, _, owner, ok := decodeHead(b)
	switch {
	case ok && !bytes.Equal(owner, l.cfg.Owner):
		return &OwnerError{l.cfg.pathOf(n), bytes.Clone(owner)}
	case ok && number == n:
		return nil
	}
	return l.damage(n, 0, segmentHead, "its head can't be read")
}

// replaySegment replays the records of one segment and returns their end. The previous segment ended at prev.
func (l *Log) replaySegment(n uint32, prev LSN, last bool, replay Replay) (end LSN, err error) {
	s := l.segments[n]
	b, err := s.read()
	if err != nil {
		return prev, err
	}
	if err := l.checkHead(n, b); err != nil {
		return prev, err
	}
	at, begin := segmentHead, 0
	for at < len(b) {
		r, ok := parse(b[at:], s.place(at))
		if !ok {
			break
		}
		content, isFirst := r.content, at == segmentHead
		if isFirst {
			if content, err = l.replayCheckpoint(n, prev, content); err != nil {
				return prev, err
			}
		}
		if err := replay(lsnOf(n, at), content, isFirst); err != nil {
			return prev, fmt.Errorf("%s, record at %d: %w", l.cfg.pathOf(n), at, err)
		}
		if at += r.size; isFirst {
			begin = at
		}
		l.synced = r.synced
	}
	l.begin = begin
	if at == segmentHead {
		return prev, l.damage(n, segmentHead, len(b), "its first record can't be read")
	}
	if w := s.witness(b, at); last && w > 0 {
		return lsnOf(n, at), l.damage(n, at, w, "a record can't be read, though later ones say that it was synced")
	}
	return lsnOf(n, at), nil
}

// replayCheckpoint checks that the previous segment ended where the checkpoint says.
func (l *Log) replayCheckpoint(n uint32, prev LSN, content []byte) ([]byte, error) {
	end, _, rest, ok := parseCheckpoint(content)
	switch {
	case !ok:
		return nil, l.damage(n, segmentHead, segmentHead, "its first record has an unknown form")
	case prev != 0 && end != prev:
		return nil, l.damage(prev.Segment(), prev.Offset(), end.Offset(), "records are lost that the next segment follows")
	}
	return rest, nil
}

// witness finds a valid record after an offset without one that claims the log was synced beyond the offset. It returns
// that record's offset, or 0 if there is none. Other records after the offset were never synced: a power loss may keep later
// parts of a write and lose earlier ones.
func (s *segment) witness(b []byte, from int) (at int) {
	s.findRecord(b, from, func(r record, offset int) bool {
		if r.synced > lsnOf(s.number, from) {
			at = offset
		}
		return at > 0
	})
	return at
}

// findRecord calls fn for the valid records of a segment from an offset on, at any position where one may begin, until fn returns true.
func (s *segment) findRecord(b []byte, from int, fn func(r record, offset int) bool) bool {
	for at := from; at+recordHead <= len(b); at += recordAlign {
		if r, ok := parse(b[at:], s.place(at)); ok && fn(r, at) {
			return true
		}
	}
	return false
}

// cutAt makes sure that nothing after the end of the log, which was never synced or was given up, is later taken for a
// record. The segment that ends there is not continued if it has records after the end: what would overwrite them may itself
// be lost, to a failed sync. A clean segment that follows immediately becomes next.
func (l *Log) cutAt(end LSN) error {
	for _, n := range l.numbers() {
		s := l.segments[n]
		if n < end.Segment() {
			continue
		}
		b, err := s.read()
		if err != nil {
			return err
		}
		if n == end.Segment() {
			l.torn = s.hasRecords(b, end.Offset())
			continue
		}
		delete(l.segments, n)
		number, _, _, ok := decodeHead(b)
		if ok && number == n && end > 0 && n == end.Segment()+1 && len(b) == l.cfg.SegmentSize && !s.hasRecords(b, segmentHead) {
			l.next = s
		} else {
			l.obsolete = append(l.obsolete, s)
		}
	}
	return l.removeObsolete()
}

func (s *segment) hasRecords(b []byte, from int) bool {
	return s.findRecord(b, from, func(record, int) bool { return true })
}

// removeObsolete removes files that can't be reused, before others take their names.
func (l *Log) removeObsolete() error {
	l.mu.Lock()
	doomed := l.obsolete
	l.obsolete = nil
	l.mu.Unlock()
	for _, s := range doomed {
		if err := errors.Join(s.close(), l.cfg.FS.Remove(l.cfg.pathOf(s.number))); err != nil {
			return err
		}
	}
	return nil
}

// start creates an empty log.
func (l *Log) start() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last, err = l.cfg.create(1); err != nil {
		return err
	}
	l.segments[1] = l.last
	l.outAt = segmentHead
	l.checkpoint(0)
	l.flush()
	return l.err
}

// resume continues the log at its end.
func (l *Log) resume(first uint32, end LSN) error {
	l.last = l.segments[end.Segment()]
	if err := l.rewriteTail(end); err != nil {
		return err
	}
	for _, n := range l.numbers() {
		if s := l.segments[n]; n < first {
			delete(l.segments, n)
			l.discard(s)
		}
	}
	if err := ondisk.SyncDir(l.cfg.FS, l.cfg.Dir); err != nil || !l.torn {
		return err
	}
	return l.leave()
}

// rewriteTail writes the end of the log again, from where its last record says that it was synced. What was read there may
// not be on disk: the process that wrote it may have exited before its sync, or because of a failed one, after which the
// system may take data for written that it only has in memory. Another sync would then write nothing, but what was once read
// must not be lost.
func (l *Log) rewriteTail(end LSN) error {
	from := segmentHead
	if l.synced.Segment() == end.Segment() {
		from = blockStart(l.synced.Offset()) // the last record begins there or later
	}
	tail := newBlocks(end.Offset() - from)[:end.Offset()-from]
	if _, err := l.last.file.ReadAt(tail, int64(from)); err != nil && !errors.Is(err, io.EOF) { // the file may end in its padding
		return err
	}
	blocks := tail[:blockEnd(len(tail))]
	if err := l.last.write(blocks, from); err != nil {
		return err
	}
	l.last.size = max(l.last.size, from+len(blocks))
	l.outAt, l.synced = blockStart(end.Offset()), end
	l.old = end.Offset() - l.outAt
	l.out = append(newBlocks(blockSize), tail[len(tail)-l.old:]...)
	return nil
}

// leave begins the next segment, since the last one has records after its end.
func (l *Log) leave() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		if l.next, err = l.cfg.create(l.last.number + 1); err != nil {
			return err
		}
	}
	l.rotate()
	return nil
}
