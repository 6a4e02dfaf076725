package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// A segment's file begins with a block for its head:
//
//	"pawlwal" 1 | number 4 | length of owner 4 | owner | CRC-32C 4 | zeros
//
// followed by its records. Each file is named after its number.
const (
	magic       = "pawlwal\x01"
	segmentHead = 4096
	maxOwner    = 256
	suffix      = ".log"
	zeroChunk   = 256 << 10
)

// segment is an open file of the log.
type segment struct {
	number  uint32
	file    vfs.File
	direct  vfs.File // the same file, for writes that bypass the page cache; nil: not supported
	size    int      // of the file
	readers int      // guarded by Log.mu
}

func (c *Config) path(name string) string { return c.FS.PathJoin(c.Dir, name) }

func fileName(number uint32) string { return fmt.Sprintf("%010d%s", number, suffix) }

func (l *Log) pathOf(number uint32) string { return l.cfg.path(fileName(number)) }

// numberOf parses the number in the name of a segment's file.
func numberOf(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil && fileName(uint32(n)) == name
}

// create creates the file of a new segment, all zeros except for its head. Its name appears once all of it is on disk.
func (l *Log) create(number uint32) (*segment, error) {
	fs, name := l.cfg.FS, l.pathOf(number)
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(encodeHead(number, l.cfg.Owner))
	zeros := make([]byte, min(zeroChunk, l.cfg.SegmentSize))
	for left := l.cfg.SegmentSize - segmentHead; left > 0 && err == nil; left -= len(zeros) {
		_, err = f.Write(zeros[:min(left, len(zeros))])
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = fs.Remove(name + ".new") // others may need the room; otherwise the next Open removes it
		return nil, err
	}
	if err := fs.Rename(name+".new", name); err != nil {
		return nil, err
	}
	if err := ondisk.SyncDir(l.cfg.FS, l.cfg.Dir); err != nil {
		return nil, err
	}
	return l.openSegment(number)
}

// reuse turns an old segment's file into a new segment. Its old records don't count in the new segment: their LSNs have the old number.
func (l *Log) reuse(old *segment, number uint32) (*segment, error) {
	err := l.cfg.FS.Rename(l.pathOf(old.number), l.pathOf(number))
	if err == nil {
		_, err = old.file.WriteAt(encodeHead(number, l.cfg.Owner), 0)
	}
	if err == nil {
		err = errors.Join(old.file.SyncData(), ondisk.SyncDir(l.cfg.FS, l.cfg.Dir))
	}
	if err != nil {
		return nil, errors.Join(err, old.close())
	}
	return &segment{number: number, file: old.file, direct: old.direct, size: old.size}, nil
}

func (l *Log) openSegment(number uint32) (*segment, error) {
	f, err := l.cfg.FS.OpenReadWrite(l.pathOf(number), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &segment{number: number, file: f, size: int(info.Size())}
	if s.direct, err = l.openDirect(s); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// write writes blocks at an offset and syncs them.
func (s *segment) write(blocks []byte, at int) error {
	f := s.direct
	if f == nil {
		f = s.file
	}
	if _, err := f.WriteAt(blocks, int64(at)); err != nil {
		return err
	}
	return f.SyncData()
}

func (s *segment) close() error {
	if s.direct == nil {
		return s.file.Close()
	}
	return errors.Join(s.direct.Close(), s.file.Close())
}

func encodeHead(number uint32, owner []byte) []byte {
	b := append(make([]byte, 0, segmentHead), magic...)
	b = binary.LittleEndian.AppendUint32(b, number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(owner)))
	b = append(b, owner...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:segmentHead]
}

// decodeHead decodes a segment's number and owner. It returns false if b is not a head.
func decodeHead(b []byte) (number uint32, owner []byte, ok bool) {
	const fixed = len(magic) + 8
	if len(b) < segmentHead || string(b[:len(magic)]) != magic {
		return 0, nil, false
	}
	number = binary.LittleEndian.Uint32(b[len(magic):])
	n := binary.LittleEndian.Uint32(b[len(magic)+4:])
	if n > maxOwner || crc32.Checksum(b[:fixed+int(n)], castagnoli) != binary.LittleEndian.Uint32(b[fixed+int(n):]) {
		return 0, nil, false
	}
	return number, b[fixed : fixed+int(n)], true
}

// read returns the whole contents of a segment's file.
func (s *segment) read() ([]byte, error) {
	b := make([]byte, s.size)
	n, err := s.file.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}
