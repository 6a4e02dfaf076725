package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// set is a field of an expression: some of the numbers from min to max.
type set struct {
	bits     uint64
	min, max int
}

func setOf(field uint64, low, high int) set {
	return set{bits: field & (1<<(high+1) - 1), min: low, max: high}
}

func (s set) n() int        { return bits.OnesCount64(s.bits) }
func (s set) full() bool    { return s.n() == s.max-s.min+1 }
func (s set) is(n int) bool { return s.bits == 1<<n }
func (s set) first() int    { return bits.TrailingZeros64(s.bits) }
func (s set) last() int     { return bits.Len64(s.bits) - 1 }

// each iterates over the numbers.
func (s set) each(yield func(int) bool) {
	for i := range 64 {
		if s.bits>>i&1 == 1 && !yield(i) {
			return
		}
	}
}

// stride returns the distance between consecutive numbers; 0: it varies.
func (s set) stride() (stride int) {
	before := -1
	for i := range s.each {
		if before >= 0 {
			if stride != 0 && stride != i-before {
				return 0
			}
			stride = i - before
		}
		before = i
	}
	return stride
}

// step returns the stride if the numbers start at the field's minimum and divide it evenly, such as */15; 0: they don't.
func (s set) step() int {
	stride := s.stride()
	if size := s.max - s.min + 1; stride == 0 || s.first() != s.min || size%stride != 0 || s.n() != size/stride {
		return 0
	}
	return stride
}

// run returns the range of the numbers; false: it has gaps.
func (s set) run() (from, to int, through bool) {
	return s.first(), s.last(), s.n() == s.last()-s.first()+1
}

// minPace is from how many numbers with a common stride on they are described as a rhythm and not one by one.
const minPace = 4

// named describes the numbers with a noun: "minute 5", "minutes 1, 5 and 10 to 20", "every 7th minute from 3 to 59".
func (s set) named(noun string) string {
	switch stride := s.stride(); {
	case s.full():
		return "every " + noun
	case s.n() == 1:
		return noun + " " + strconv.Itoa(s.first())
	case stride > 1 && s.n() >= minPace:
		return fmt.Sprintf("every %s %s from %d to %d", ordinal(stride), noun, s.first(), s.last())
	}
	return noun + "s " + listed(s.parts(strconv.Itoa))
}

// minRun is from how many consecutive numbers on they are written as a range.
const minRun = 3

// parts returns the numbers, with ranges where several are consecutive.
func (s set) parts(name func(int) string) (parts []string) {
	for i := s.first(); i <= s.last(); i++ {
		if s.bits>>i&1 == 0 {
			continue
		}
		to := i
		for s.bits>>(to+1)&1 == 1 {
			to++
		}
		if to-i+1 >= minRun {
			parts = append(parts, name(i)+" to "+name(to))
			i = to
			continue
		}
		parts = append(parts, name(i))
	}
	return parts
}

// listed joins words with commas and "and": "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

func ordinal(n int) string {
	end := "th"
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return strconv.Itoa(n) + end
}
