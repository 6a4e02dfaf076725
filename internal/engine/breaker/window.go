package breaker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// Tally counts attempts, and how many of them failed.
type Tally struct{ Attempts, Failed int }

// windowParts is the number of parts of a window, which slides one part at a time.
const windowParts = 10

// Window counts the attempts that ended in the last ten tenths of its length, the current tenth included.
type Window struct {
	newest int64 // the newest tenth, counted from the epoch
	parts  [windowParts]Tally
}

func part(now store.Time, length time.Duration) int64 {
	return int64(now) / int64(length/time.Microsecond/windowParts)
}

// slide drops what is too old.
func (w *Window) slide(to int64) {
	if to >= w.newest+windowParts {
		*w = Window{}
	}
	for w.newest = max(w.newest, to-windowParts+1); w.newest < to; {
		w.newest++
		w.parts[w.newest%windowParts] = Tally{}
	}
}

// add counts an attempt.
func (w *Window) add(now store.Time, length time.Duration, failed bool) {
	w.slide(part(now, length))
	t := &w.parts[w.newest%windowParts]
	t.Attempts++
	if failed {
		t.Failed++
	}
}

// Sum returns the counts within the length up to now.
func (w *Window) Sum(now store.Time, length time.Duration) (all Tally) {
	w.slide(part(now, length))
	for _, t := range w.parts {
		all.Attempts += t.Attempts
		all.Failed += t.Failed
	}
	return all
}

// over reports whether everything counted is too old.
func (w *Window) over(now store.Time, length time.Duration) bool {
	return part(now, length) >= w.newest+windowParts
}

// encode encodes the tenths, oldest first.
func (w *Window) encode() []byte {
	b := make([]byte, 0, 2*windowParts+8)
	for i := range int64(windowParts) {
		t := w.parts[(w.newest+1+i)%windowParts]
		b = binary.AppendUvarint(b, uint64(t.Attempts)) // #nosec G115 -- a count
		b = binary.AppendUvarint(b, uint64(t.Failed))   // #nosec G115 -- a count
	}
	return b
}

func (w *Window) decode(b []byte) error {
	for i := range int64(windowParts) {
		for _, n := range []*int{&w.parts[(w.newest+1+i)%windowParts].Attempts, &w.parts[(w.newest+1+i)%windowParts].Failed} {
			v, used := binary.Uvarint(b)
			if used <= 0 {
				return fmt.Errorf("a breaker's window of %d bytes is cut short", len(b))
			}
			*n, b = int(v), b[used:] // #nosec G115 -- a count
		}
	}
	return nil
}

// Check returns an error if there are no attempts, or more failures than attempts.
func (w *Window) Check() error {
	some := false
	for _, t := range w.parts {
		some = some || t.Attempts > 0
		if t.Failed > t.Attempts {
			return fmt.Errorf("has seen %d failures of %d attempts", t.Failed, t.Attempts)
		}
	}
	if !some {
		return errors.New("has seen nothing")
	}
	return nil
}
