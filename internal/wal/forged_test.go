package wal

import (
	"math/rand/v2"
	"testing"
)

// forger chooses the contents of records such that they are records themselves, in their place and with their checksum, for this segment
// and for those that will later use its file. It knows all but the seeds that are in use or yet to come.
type forger struct {
	rng   *rand.Rand
	seeds []uint64 // of earlier segments
}

func (f *forger) fill(l *Log) func(at LSN, b []byte) {
	return func(at LSN, b []byte) {
		if n := len(f.seeds); n == 0 || f.seeds[n-1] != l.last.seed {
			f.seeds = append(f.seeds, l.last.seed)
		}
		size := recordSize(8)
		for from := 0; from+size <= len(b); from += size {
			s := &segment{number: at.Segment() + f.rng.Uint32N(5)}
			if known := len(f.seeds) - 1; known > 0 && f.rng.IntN(2) == 0 {
				s.seed = f.seeds[f.rng.IntN(known)]
			} else if s.number > at.Segment() && f.rng.IntN(2) == 0 {
				s.seed = f.seeds[known] // no longer in use then
			}
			rec, offset := b[from:from+size], at.Offset()+recordHead+from
			setLength(rec, 8)
			copy(rec[recordHead:], "forged!!")
			claims := []LSN{0, lsnOf(s.number, offset), lsnOf(s.number+1, 0)}
			sealAll(rec, s, offset, claims[f.rng.IntN(len(claims))])
		}
	}
}

// TestForgedRecords: whatever crash leaves the contents of records, or the old contents of a file, where a record is looked for, they
// don't pass for one, nor for a sign of damage.
func TestForgedRecords(t *testing.T) {
	f := &forger{}
	crashAtAnyWrite(t, 300, func(w *world, rng *rand.Rand) {
		f.rng = rng
		size := recordHead + rng.IntN(40)*recordSize(8)
		if err := w.fill(size, rng.IntN(3) > 0, f.fill(w.log)); err != nil {
			t.Fatal(err)
		}
	})
}
