package store

// maxBuffers is the size of the largest buffers that are kept for the next entry, in bytes.
const maxBuffers = 4 << 20

// buffers are kept from entry to entry, as similar entries come in series. The goroutine that runs rounds and applies entries owns them.
type buffers struct {
	writes *writes // nil: in use, or there are none
	entry  []byte
}

func (b *buffers) takeWrites() *writes {
	w := b.writes
	if b.writes = nil; w == nil {
		w = new(writes)
	}
	return w
}

func (b *buffers) keepWrites(w *writes) {
	if w.room() <= maxBuffers {
		w.reset()
		b.writes = w
	}
}

// takeEntry returns an empty buffer for n bytes.
func (b *buffers) takeEntry(n int) []byte {
	buf := b.entry[:0]
	if b.entry = nil; cap(buf) < n {
		buf = make([]byte, 0, n+n/8)
	}
	return buf
}

func (b *buffers) keepEntry(buf []byte) {
	if cap(buf) <= maxBuffers {
		b.entry = buf
	}
}

// BufferedBytes returns the size of the buffers that the store keeps for the next entries.
func (s *Store) BufferedBytes() int {
	n := cap(s.buffers.entry)
	if s.buffers.writes != nil {
		n += s.buffers.writes.room()
	}
	return n
}

// DropBuffers frees the buffers that the store keeps for the next entries.
func (s *Store) DropBuffers() { s.buffers = buffers{} }
