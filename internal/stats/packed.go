package stats

import (
	"encoding/binary"
	"time"
)

// packed holds how long the tasks of a type waited and ran in a step of time, in few bytes: most types use only a few of the 55 buckets.
// For each of the two it has the sum, the least and the most in microseconds, the number of buckets that follow, and
// for each of these its distance from the one before and its count, all as varints. It is never changed, so that a copy
// may be read without the lock.
type packed []byte

func pack(wait, run *LogHistogram) packed {
	var room [512]byte
	b := room[:0]
	for _, h := range [...]*LogHistogram{wait, run} {
		used := 0
		for _, n := range h.N {
			if n > 0 {
				used++
			}
		}
		b = binary.AppendUvarint(b, uint64(max(h.Sum/time.Microsecond, 0))) // #nosec G115 -- not below 0
		for _, d := range [...]time.Duration{h.Extent.Least, h.Extent.Most} {
			b = binary.AppendUvarint(b, uint64((d+time.Microsecond-1)/time.Microsecond)) // #nosec G115 -- not below 0
		}
		b = binary.AppendUvarint(b, uint64(used)) // #nosec G115 -- a count
		last := 0
		for i, n := range h.N {
			if n > 0 {
				b = binary.AppendUvarint(b, uint64(i-last)) // #nosec G115 -- it grows
				b = binary.AppendUvarint(b, n)
				last = i
			}
		}
	}
	return append(make(packed, 0, len(b)), b...)
}

// addTo adds what was packed. Of damaged bytes it adds what can be read.
func (p packed) addTo(wait, run *LogHistogram) {
	next := func() uint64 {
		v, n := binary.Uvarint(p)
		if n <= 0 {
			p = nil
			return 0
		}
		p = p[n:]
		return v
	}
	for _, h := range [...]*LogHistogram{wait, run} {
		h.Sum += time.Duration(next()) * time.Microsecond // #nosec G115 -- as it was packed
		least, most := next(), next()
		h.Extent.add(extent{Least: time.Duration(least) * time.Microsecond, Most: time.Duration(most) * time.Microsecond}) // #nosec G115
		at := uint64(0)
		for used := next(); used > 0 && len(p) > 0; used-- {
			at += next()
			if at >= logBuckets {
				return
			}
			h.N[at] += next()
		}
	}
}
