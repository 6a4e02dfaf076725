package wal

import "unsafe"

// blockSize is the unit in which records are written: what direct writes ask of offsets, lengths and addresses of memory on the disks and file systems
// that are in use. The last block of a write may be filled in part. It is written again, with more records, by the next one.
const blockSize = 4096

func blockStart(offset int) int { return offset &^ (blockSize - 1) }

func blockEnd(offset int) int { return blockStart(offset + blockSize - 1) }

// newBlocks returns an empty buffer for at least n bytes. Its memory begins and ends at a block.
func newBlocks(n int) []byte {
	n = blockEnd(n)
	b := make([]byte, n+blockSize)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (blockSize - 1) // #nosec G103 -- only looks at the address
	return b[skip : skip : skip+n]
}

// growBlocks returns b, or a copy of it with room for n bytes more.
func growBlocks(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	larger := newBlocks(max(len(b)+n, 2*cap(b)))
	return append(larger, b...)
}
