package wal

import (
	"sync"
	"unsafe"
)

// blockSize is the unit in which records are written: direct writes require multiples of it for offsets, lengths and memory addresses, on the disks and
// file systems in use. The last block of a write may be partly filled. The next write repeats it, with more records.
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

// keptBuffer is the largest buffer that a log keeps while it is idle, in bytes.
const keptBuffer = 64 << 10

// maxBuffer is the largest buffer that is kept for later writes at all, in bytes.
const maxBuffer = 4 << 20

// largeBuffers holds buffers between writes. Two garbage collections without a write drop them.
var largeBuffers sync.Pool

// takeBuffer returns an empty buffer for at least n bytes.
func takeBuffer(n int) []byte {
	if n > keptBuffer {
		if b, ok := largeBuffers.Get().(*[]byte); ok && cap(*b) >= n {
			return *b
		}
	}
	return newBlocks(n)
}

// buffers makes the buffers of a log grow, and recycles them.
type buffers struct {
	spare []byte // small; nil: none
}

// grow returns b, or a copy of it, with room for n more bytes. It takes over b.
func (s *buffers) grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	larger := append(takeBuffer(max(len(b)+n, 2*cap(b))), b...)
	s.release(b)
	return larger
}

// take returns a buffer of n bytes.
func (s *buffers) take(n int) []byte {
	b := s.spare
	s.spare = nil
	return s.grow(b, n)[:n]
}

// release keeps a buffer that nothing uses any more for a later write.
func (s *buffers) release(b []byte) {
	switch n := cap(b); {
	case n > maxBuffer:
	case n > keptBuffer:
		large := b[:0] // a variable of its own, so that only this case allocates
		largeBuffers.Put(&large)
	case n > cap(s.spare):
		s.spare = b[:0]
	}
}
