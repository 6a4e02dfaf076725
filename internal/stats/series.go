package stats

import (
	"slices"
	"time"
)

// level is a step length and how many steps are kept.
type level struct {
	step time.Duration
	keep int64
}

func (l level) at(second int64) int64 { return second / int64(l.step/time.Second) }

// rateLevels are the levels of rates, timeLevels those of the times that tasks wait and run.
var (
	rateLevels = [...]level{{time.Second, 120}, {10 * time.Second, 360}, {5 * time.Minute, 288}}
	timeLevels = [...]level{{30 * time.Second, 10}, {5 * time.Minute, 12}, {time.Hour, 24}}
)

// series holds the steps in which something happened, oldest first. A queue that is seldom used takes little space.
type series[T any] struct{ slots []slot[T] }

type slot[T any] struct {
	_  struct{} `cbor:",toarray"`
	At int64    // number of the step since 1970
	V  T
}

// now returns the slot of a step, which must not be before that of the last call.
func (s *series[T]) now(at, keep int64) *T {
	if n := len(s.slots); n > 0 && s.slots[n-1].At >= at {
		return &s.slots[n-1].V
	}
	if len(s.slots) == cap(s.slots) { // append will copy it anyway
		s.drop(at - keep)
	}
	s.slots = append(s.slots, slot[T]{At: at})
	return &s.slots[len(s.slots)-1].V
}

// drop drops the steps up to and including one.
func (s *series[T]) drop(upto int64) {
	i := 0
	for i < len(s.slots) && s.slots[i].At <= upto {
		i++
	}
	if i > 0 {
		s.slots = slices.Delete(s.slots, 0, i)
	}
}

// dropAfter drops the steps after one: the clock was set back.
func (s *series[T]) dropAfter(at int64) {
	for n := len(s.slots); n > 0 && s.slots[n-1].At > at; n-- {
		s.slots = s.slots[:n-1]
	}
}

// after returns the steps after one.
func (s *series[T]) after(at int64) []slot[T] {
	i := len(s.slots)
	for i > 0 && s.slots[i-1].At > at {
		i--
	}
	return s.slots[i:]
}
