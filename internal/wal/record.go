package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// LSN is the place of a record, its log sequence number: the number of its segment in the upper half, the offset in the
// segment's file in the lower. A later record has a greater one.
type LSN uint64

func lsnOf(segment uint32, offset int) LSN { return LSN(segment)<<32 | LSN(offset) }

// Segment is the number of the segment that holds the record.
func (l LSN) Segment() uint32 { return uint32(l >> 32) }

// Offset is where the record begins in its segment's file.
func (l LSN) Offset() int { return int(uint32(l)) }

func (l LSN) String() string { return fmt.Sprintf("%d/%d", l.Segment(), l.Offset()) }

// A record is
//
//	CRC-32C 4 | length 4 | LSN 8 | synced 8 | content | zeros up to a multiple of 8
//
// in little-endian order. The checksum covers all that follows it but the zeros. The LSN keeps what a segment held in an
// earlier life, and what was written at another place, from passing for a record. Synced is the LSN up to which the log
// was synced when the record was appended.
const (
	recordHead  = 24
	recordAlign = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordSize is how many bytes of a segment a record with n bytes of content takes.
func recordSize(n int) int {
	return (recordHead + n + recordAlign - 1) &^ (recordAlign - 1)
}

// setLength notes how long the content of a record is that will be sealed later.
func setLength(rec []byte, n int) { binary.LittleEndian.PutUint32(rec[4:], uint32(n)) }

// sealAll fills in the heads of the records in b, whose first lies at an LSN, when the log is synced up to another.
func sealAll(b []byte, at, synced LSN) {
	for len(b) > 0 {
		n := int(binary.LittleEndian.Uint32(b[4:]))
		size := recordSize(n)
		binary.LittleEndian.PutUint64(b[8:], uint64(at))
		binary.LittleEndian.PutUint64(b[16:], uint64(synced))
		clear(b[recordHead+n : size])
		binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:recordHead+n], castagnoli))
		b, at = b[size:], at+LSN(size)
	}
}

// record is what parse finds. Its content is a part of the buffer that it was found in.
type record struct {
	content []byte
	synced  LSN
	size    int // in the segment
}

// parse reads the record at the beginning of b, which lies at an LSN. It returns false if there is none.
func parse(b []byte, at LSN) (r record, ok bool) {
	if len(b) < recordHead || LSN(binary.LittleEndian.Uint64(b[8:])) != at {
		return r, false
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if n > len(b)-recordHead || crc32.Checksum(b[4:recordHead+n], castagnoli) != binary.LittleEndian.Uint32(b) {
		return r, false
	}
	synced := LSN(binary.LittleEndian.Uint64(b[16:]))
	return record{b[recordHead : recordHead+n], synced, recordSize(n)}, true
}

// checkpointHead is what the content of a segment's first record begins with: the LSN at which the segment before it ends
// (0: there is none), and the number of the first segment that is needed.
const checkpointHead = 12

func parseCheckpoint(content []byte) (end LSN, first uint32, rest []byte, ok bool) {
	if len(content) < checkpointHead {
		return 0, 0, nil, false
	}
	return LSN(binary.LittleEndian.Uint64(content)), binary.LittleEndian.Uint32(content[8:]), content[checkpointHead:], true
}
