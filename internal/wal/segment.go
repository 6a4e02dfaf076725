package wal

import (
	"crypto/rand"
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
//	"pawlwal" 1 | number 4 | seed 8 | length of owner 4 | owner | CRC-32C 4 | zeros
//
// followed by its records. Each file is named after its number, and has this name only once its head is on disk. The seed
// is random, and new each time the file is used.
const (
	magic       = "pawlwal\x01"
	segmentHead = 4096
	maxOwner    = 256
	suffix      = ".log"
	zeroChunk   = 256 << 10

	unfinishedSuffix = ".new" // after the name of a segment whose file is being prepared
)

// segment is an open file of the log.
type segment struct {
	number  uint32
	seed    uint64
	file    vfs.File
	direct  vfs.File // the same file, for writes that bypass the page cache; nil: not supported
	size    int      // of the file
	readers int      // guarded by Log.mu
}

func (c *Config) path(name string) string { return c.FS.PathJoin(c.Dir, name) }

func fileName(number uint32) string { return fmt.Sprintf("%010d%s", number, suffix) }

func (c *Config) pathOf(number uint32) string { return c.path(fileName(number)) }

// numberOf parses the number in the name of a segment's file.
func numberOf(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil && fileName(uint32(n)) == name
}

// place returns what a record at an offset of the segment says about its place.
func (s *segment) place(offset int) uint64 { return uint64(lsnOf(s.number, offset)) ^ s.seed }

func newSeed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// create creates the file of a new segment, all zeros except for its head. Its name appears once all of it is on disk.
func (c *Config) create(number uint32) (*segment, error) {
	fs, unfinished, seed := c.FS, c.pathOf(number)+unfinishedSuffix, newSeed()
	f, err := fs.Create(unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(encodeHead(number, seed, c.Owner))
	zeros := make([]byte, min(zeroChunk, c.SegmentSize))
	for left := c.SegmentSize - segmentHead; left > 0 && err == nil; left -= len(zeros) {
		_, err = f.Write(zeros[:min(left, len(zeros))])
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = fs.Remove(unfinished) // others may need the room; otherwise the next Open removes it
		return nil, err
	}
	if err := c.name(number); err != nil {
		return nil, err
	}
	return c.openSegment(number, seed)
}

// reuse turns an old segment's file into a new segment. Its old records don't count in the new segment, which has another seed. The
// file has no segment's name while its head is being replaced: whatever a crash leaves then is not taken for a damaged segment.
func (c *Config) reuse(old *segment, number uint32) (*segment, error) {
	s := &segment{number: number, seed: newSeed(), file: old.file, direct: old.direct, size: old.size}
	err := c.FS.Rename(c.pathOf(old.number), c.pathOf(number)+unfinishedSuffix)
	if err == nil {
		_, err = s.file.WriteAt(encodeHead(number, s.seed, c.Owner), 0)
	}
	if err == nil {
		err = s.file.SyncData()
	}
	if err == nil {
		err = c.name(number)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// name gives the unfinished file of a segment its name, durably.
func (c *Config) name(number uint32) error {
	if err := c.FS.Rename(c.pathOf(number)+unfinishedSuffix, c.pathOf(number)); err != nil {
		return err
	}
	return ondisk.SyncDir(c.FS, c.Dir)
}

func (c *Config) openSegment(number uint32, seed uint64) (*segment, error) {
	f, err := c.FS.OpenReadWrite(c.pathOf(number), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &segment{number: number, seed: seed, file: f, size: int(info.Size())}
	if s.direct, err = c.openDirect(s); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// readSeed reads the seed from the segment's head. checkHead refuses a segment whose head can't be read.
func (s *segment) readSeed() error {
	b := make([]byte, segmentHead)
	if _, err := s.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, s.seed, _, _ = decodeHead(b)
	return nil
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

func encodeHead(number uint32, seed uint64, owner []byte) []byte {
	b := append(make([]byte, 0, segmentHead), magic...)
	b = binary.LittleEndian.AppendUint32(b, number)
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(owner)))
	b = append(b, owner...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return b[:segmentHead]
}

// decodeHead decodes a segment's number, seed and owner. It returns false if b is not a head.
func decodeHead(b []byte) (number uint32, seed uint64, owner []byte, ok bool) {
	const fixed = len(magic) + 16
	if len(b) < segmentHead || string(b[:len(magic)]) != magic {
		return 0, 0, nil, false
	}
	number = binary.LittleEndian.Uint32(b[len(magic):])
	seed = binary.LittleEndian.Uint64(b[len(magic)+4:])
	n := binary.LittleEndian.Uint32(b[len(magic)+12:])
	if n > maxOwner || crc32.Checksum(b[:fixed+int(n)], castagnoli) != binary.LittleEndian.Uint32(b[fixed+int(n):]) {
		return 0, 0, nil, false
	}
	return number, seed, b[fixed : fixed+int(n)], true
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
