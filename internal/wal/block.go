package wal

import "unsafe"

// blockSize is the unit in which records are written: direct writes require multiples of it for offsets, lengths and
// memory addresses, on the disks and file systems in use. The last block of a write may be partly filled. The next
// write repeats it, with more records.
const blockSize = 4096

func blockStart(offset int) int { return offset &^ (blockSize - 1) }

func blockEnd(offset int) int { return blockStart(offset + blockSize - 1) }

// newBlocks returns an empty buffer for at least n bytes. Its memory is aligned to blocks at both ends.
func newBlocks(n int) []byte {
	n = blockEnd(n)
	b := make([]byte, n+blockSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (blockSize - 1) // only reads the address
	return b[skip : skip : skip+n]
}

// growBlocks returns b, or a copy of it, with room for n more bytes.
func growBlocks(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	larger := newBlocks(max(len(b)+n, 2*cap(b)))
	return append(larger, b...)
}
