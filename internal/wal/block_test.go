package wal

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestBlockEnd(t *testing.T) {
	for offset, want := range map[int]int{0: 0, 1: blockSize, blockSize: blockSize, blockSize + 1: 2 * blockSize, 3*blockSize - 1: 3 * blockSize} {
		if got := blockEnd(offset); got != want {
			t.Errorf("blockEnd(%d) = %d, want %d", offset, got, want)
		}
	}
}

// TestBuffersAreReused: a log that writes records of similar sizes allocates no buffers.
func TestBuffersAreReused(t *testing.T) {
	for _, c := range []struct{ small, large, allocations int }{
		{100, 100, 0},
		{2 * blockSize, 2 * blockSize, 0},
		{keptBuffer, keptBuffer, 0},
		{3 * keptBuffer, 5 * keptBuffer, 1}, // the header of the slice in the pool
		{maxBuffer, maxBuffer, 1},
	} {
		t.Run(fmt.Sprint(c.large), func(t *testing.T) {
			var s buffers
			var out []byte
			n := 0
			write := func() { // as Append does
				size := c.small
				if n++; n%2 == 0 {
					size = c.large
				}
				tail := min(size-1, 10)
				b := s.grow(out[:0], size-tail)
				out = s.take(tail)
				s.release(b)
				if len(s.spare) != 0 || len(out) != tail {
					t.Fatalf("the spare buffer has %d bytes, the next one %d, want 0 and %d", len(s.spare), len(out), tail)
				}
			}
			for range 10 {
				write()
			}
			if got := testing.AllocsPerRun(200, write); got > float64(c.allocations) {
				t.Errorf("a write of %d or %d bytes costs %.0f allocations, want %d", c.small, c.large, got, c.allocations)
			}
		})
	}
}

// TestBuffersThatAreTooLarge are not kept.
func TestBuffersThatAreTooLarge(t *testing.T) {
	var s buffers
	s.release(newBlocks(2 * maxBuffer))
	if got := cap(takeBuffer(maxBuffer + blockSize)); got != maxBuffer+blockSize {
		t.Errorf("a buffer of %d bytes was kept", got)
	}
}

// TestIdleLogKeepsSmallBuffers: whatever a log has written, it then keeps small buffers alone.
func TestIdleLogKeepsSmallBuffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 3))
	w := newWorld(t, 1000)
	w.mustOpen()
	check := func() {
		t.Helper()
		if out, spare := cap(w.log.out), cap(w.log.buffers.spare); max(out, spare) > keptBuffer {
			t.Errorf("the buffers of an idle log have %d and %d bytes, want at most %d", out, spare, keptBuffer)
		}
	}
	for range 20 {
		w.mustAdd(content(rng, 2*keptBuffer), true)
		check()
		w.mustAdd(content(rng, 900), true)
		check()
		if w.log.buffers.spare == nil {
			t.Error("the buffer of a small write was not kept")
		}
		for range 5 {
			w.mustAdd(content(rng, rng.IntN(3)*keptBuffer/2), false)
		}
		w.mustAdd(nil, true)
		check()
	}
	w.close()
	w.check(w.mustOpen())
	w.close()
}
