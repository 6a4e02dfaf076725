package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// LSN is the position of a record, its log sequence number: the number of its segment in the upper half, the offset in the
// segment's file in the lower. A later record has a greater LSN.
type LSN uint64

func lsnOf(segment uint32, offset int) LSN { return LSN(segment)<<32 | LSN(offset) }

// Segment returns the number of the segment that holds the record.
func (l LSN) Segment() uint32 { return uint32(l >> 32) }

// Offset returns where the record begins in its segment's file.
func (l LSN) Offset() int { return int(uint32(l)) }

func (l LSN) String() string { return fmt.Sprintf("%d/%d", l.Segment(), l.Offset()) }

// A record is
//
//	CRC-32C 4 | length 4 | place 8 | synced 8 | content | zeros up to a multiple of 8
//
// in little-endian order. The checksum covers all that follows it except the zeros. The place is the record's LSN XOR the
// seed of its segment. So neither the contents of a reused segment nor data written at another place can pass for a record,
// even if someone chose these contents: only the segment's head knows the seed. synced is the LSN up to which the log was
// synced when the record was appended.
const (
	recordHead  = 24
	recordAlign = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordSize returns the size in a segment of a record with n bytes of content.
func recordSize(n int) int {
	return (recordHead + n + recordAlign - 1) &^ (recordAlign - 1)
}

// setLength sets the length of the content of a record that will be sealed later.
func setLength(rec []byte, n int) { binary.LittleEndian.PutUint32(rec[4:], uint32(n)) }

// sealAll fills in the heads of the records in b. They are for a segment, from an offset on, and the log is synced up to synced.
func sealAll(b []byte, s *segment, offset int, synced LSN) {
	for len(b) > 0 {
		n := int(binary.LittleEndian.Uint32(b[4:]))
		size := recordSize(n)
		binary.LittleEndian.PutUint64(b[8:], s.place(offset))
		binary.LittleEndian.PutUint64(b[16:], uint64(synced))
		clear(b[recordHead+n : size])
		binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:recordHead+n], castagnoli))
		b, offset = b[size:], offset+size
	}
}

// record is the result of parse. Its content aliases the parsed buffer.
type record struct {
	content []byte
	synced  LSN
	size    int // in the segment
}

// parse parses the record of a place at the beginning of b. It returns false if there is none.
func parse(b []byte, place uint64) (r record, ok bool) {
	if len(b) < recordHead || binary.LittleEndian.Uint64(b[8:]) != place {
		return r, false
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if n > len(b)-recordHead || crc32.Checksum(b[4:recordHead+n], castagnoli) != binary.LittleEndian.Uint32(b) {
		return r, false
	}
	synced := LSN(binary.LittleEndian.Uint64(b[16:]))
	return record{b[recordHead : recordHead+n], synced, recordSize(n)}, true
}

// checkpointHead is the length of the head of a first record's content: the LSN at which the previous segment ends (0: there
// is none), and the number of the first segment that is needed.
const checkpointHead = 12

func parseCheckpoint(content []byte) (end LSN, first uint32, rest []byte, ok bool) {
	if len(content) < checkpointHead {
		return 0, 0, nil, false
	}
	return LSN(binary.LittleEndian.Uint64(content)), binary.LittleEndian.Uint32(content[8:]), content[checkpointHead:], true
}
