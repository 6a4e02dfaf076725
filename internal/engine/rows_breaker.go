package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// tally counts attempts, and those of them that failed.
type tally struct{ attempts, failed int }

// windowParts is how finely a window slides: a tenth of it leaves at once.
const windowParts = 10

// window counts the attempts that ended in the last ten tenths of its length, the one that runs included.
type window struct {
	at    int64 // which tenth is the newest, counted from the beginning of time
	parts [windowParts]tally
}

func part(now store.Time, length time.Duration) int64 {
	return int64(now) / int64(length/time.Microsecond/windowParts)
}

// slide lets go of what is too old.
func (w *window) slide(to int64) {
	if to >= w.at+windowParts {
		*w = window{}
	}
	for w.at = max(w.at, to-windowParts+1); w.at < to; {
		w.at++
		w.parts[w.at%windowParts] = tally{}
	}
}

func (w *window) add(now store.Time, length time.Duration, failed bool) {
	w.slide(part(now, length))
	t := &w.parts[w.at%windowParts]
	t.attempts++
	if failed {
		t.failed++
	}
}

func (w *window) sum(now store.Time, length time.Duration) (all tally) {
	w.slide(part(now, length))
	for _, t := range w.parts {
		all.attempts += t.attempts
		all.failed += t.failed
	}
	return all
}

// over says whether all that was counted is too old.
func (w *window) over(now store.Time, length time.Duration) bool {
	return part(now, length) >= w.at+windowParts
}

// encode writes the tenths, the oldest first.
func (w *window) encode() []byte {
	b := make([]byte, 0, 2*windowParts+8)
	for i := range int64(windowParts) {
		t := w.parts[(w.at+1+i)%windowParts]
		b = binary.AppendUvarint(b, uint64(t.attempts)) // #nosec G115 -- a count
		b = binary.AppendUvarint(b, uint64(t.failed))   // #nosec G115 -- a count
	}
	return b
}

func (w *window) decode(b []byte) error {
	for i := range int64(windowParts) {
		for _, n := range []*int{&w.parts[(w.at+1+i)%windowParts].attempts, &w.parts[(w.at+1+i)%windowParts].failed} {
			v, used := binary.Uvarint(b)
			if used <= 0 {
				return fmt.Errorf("a breaker's window of %d bytes is cut short", len(b))
			}
			*n, b = int(v), b[used:] // #nosec G115 -- a count
		}
	}
	return nil
}

func (b *breaker) encode() []byte {
	r := schema.NewRow(64 + len(b.lastError))
	r.Num(1, uint64(b.state))
	if b.state == BreakerClosed {
		r.Num(2, uint64(b.seen.at)) // #nosec G115 -- not before 1970
		r.Bytes(3, b.seen.encode())
	}
	r.Text(4, b.lastError)
	r.Num(5, uint64(b.since))
	r.Num(6, uint64(b.until))
	r.Num(7, uint64(b.opened))
	r.Num(8, uint64(b.passed))
	r.ID(9, b.probe)
	r.Num(10, uint64(b.cause.attempts))
	r.Num(11, uint64(b.cause.failed))
	r.Num(12, uint64(b.over))
	return r
}

func decodeBreaker(typ string, row []byte) (*breaker, error) {
	b := &breaker{typ: typ}
	var parts []byte
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			b.state = BreakerState(v)
		case 2:
			b.seen.at = int64(v) // #nosec G115 -- as encoded
		case 5:
			b.since = store.Time(v)
		case 6:
			b.until = store.Time(v)
		case 7:
			b.opened = int(v)
		case 8:
			b.passed = int(v)
		case 10:
			b.cause.attempts = int(v)
		case 11:
			b.cause.failed = int(v)
		case 12:
			b.over = time.Duration(v)
		}
	}, func(tag protowire.Number, v []byte) {
		switch tag {
		case 3:
			parts = v
		case 4:
			b.lastError = string(v)
		case 9:
			copy(b.probe[:], v)
		}
	})
	switch {
	case err != nil:
	case b.state > BreakerProbing || b.seen.at < 0 || b.seen.at > math.MaxInt64/2:
		err = fmt.Errorf("the breaker of type %q is in state %d, at %d", typ, b.state, b.seen.at)
	case b.state == BreakerClosed:
		err = b.seen.decode(parts)
	}
	return b, err
}
