package wal

import "testing"

func TestBlockEnd(t *testing.T) {
	for offset, want := range map[int]int{0: 0, 1: blockSize, blockSize: blockSize, blockSize + 1: 2 * blockSize,
		3*blockSize - 1: 3 * blockSize} {
		if got := blockEnd(offset); got != want {
			t.Errorf("blockEnd(%d) = %d, want %d", offset, got, want)
		}
	}
}
