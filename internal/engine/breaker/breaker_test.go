package breaker

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A breaker survives encoding and decoding: a closed one with its window, and any other with its state.
func TestRows(t *testing.T) {
	for what, b := range map[string]Breaker{
		"closed": {Seen: Window{newest: 13, parts: [windowParts]Tally{{1, 0}, {2, 1}, {3, 3}, 9: {200, 100}}}, LastError: "down"},
		"open": {State: Open, LastError: strings.Repeat("down", maxError/4), Since: 5, Until: 9, Opened: 2, Cause: Tally{4, 3},
			Over: time.Minute},
		"probing": {State: Probing, Since: 5, Opened: 2, Passed: 1, Probe: task.ID{1}, Cause: Tally{4, 3}, Over: time.Minute},
	} {
		b.Type = "t"
		got, err := Decode("t", b.Encode())
		if err != nil || !reflect.DeepEqual(*got, b) {
			t.Errorf("%s: got %+v, %v, want %+v", what, got, err, b)
		}
	}
	open := Breaker{State: Open, Seen: Window{newest: 13}}
	if got, err := Decode("", open.Encode()); err != nil || got.Seen.newest != 0 {
		t.Errorf("a breaker that is not closed was stored with its window: %+v, %v", got, err)
	}
}

func TestInvalidRows(t *testing.T) {
	row := func(state, newest uint64, seen ...byte) []byte {
		f := schema.Encoding(nil)
		schema.Num(&f, 1, &state)
		schema.Num(&f, 2, &newest)
		f.Bytes(3, &seen)
		return f.Row()
	}
	window := make([]byte, 2*windowParts)
	for what, c := range map[string]struct {
		row   []byte
		sound bool
	}{
		"closed":                 {row(0, 0, window...), true},
		"probing":                {row(2, 0), true},
		"in no state":            {row(3, 0), false},
		"far beyond any state":   {row(9, 0), false},
		"before 1970":            {row(0, math.MaxUint64, window...), false},
		"at the end of time":     {row(0, math.MaxInt64/2, window...), true},
		"after the end of time":  {row(0, math.MaxInt64/2+1, window...), false},
		"without a window":       {row(0, 5), false},
		"with a part of one":     {row(0, 5, window[1:]...), false},
		"with a number too long": {row(0, 5, append(window[2:], 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0)...), false},
		"cut behind its window":  {append(row(0, 5, window...), 4<<3|2, 9), false},
		"cut":                    {[]byte{schema.RowVersion, 1 << 3, 1, 3<<3 | 2, 9}, false},
	} {
		if b, err := Decode("t", c.row); (err == nil) != c.sound {
			t.Errorf("%s: Decode = %+v, %v", what, b, err)
		}
	}
}

func TestReason(t *testing.T) {
	for want, i := range map[string]Info{
		"3 of 4 attempts failed within 1m0s": {Failed: 3, Attempts: 4, Window: time.Minute,
			Opened: 1},
		"1 of 1 attempt failed within 1m0s, then 1 probe": {Failed: 1, Attempts: 1, Window: time.Minute,
			Opened: 2},
		`3 of 4 attempts failed within 1m0s, then 2 probes, the last with "out of paper"`: {Failed: 3, Attempts: 4, Window: time.Minute,
			Opened: 3, Error: "out of paper"},
	} {
		if got := i.Reason(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	none := Info{Failed: 3, Attempts: 4, Window: time.Minute}
	if got := none.Reason(); got != "3 of 4 attempts failed within 1m0s" {
		t.Errorf("Reason of a breaker that never opened = %q", got)
	}
}

// A window counts what ended in its ten newest tenths, whenever it is read. It is compared with a list of all ends.
func TestWindow(t *testing.T) {
	const tenth = 1000 // µs
	length := 10 * tenth * time.Microsecond
	var w Window
	type end struct {
		at     int64
		failed bool
	}
	var ends []end
	at := int64(123 * tenth)
	for n, step := range []int64{0, 1, 0, 2, 9, 1, 1, 1, 3, 10, 1, 11, 1, 0, 8, 1, 1, 25, 4, 4, 4, 1} {
		at += step * tenth
		ends = append(ends, end{at, n%3 == 0})
		w.add(store.Time(at), length, n%3 == 0)
		for later := int64(0); later <= 12; later++ {
			var want Tally
			for _, e := range ends {
				if e.at/tenth > (at/tenth+later)-windowParts {
					want.Attempts++
					if e.failed {
						want.Failed++
					}
				}
			}
			now, c := store.Time(at+later*tenth), w
			if got := c.Sum(now, length); got != want {
				t.Fatalf("after %d outcomes and %d tenths the window has %+v, want %+v", n+1, later, got, want)
			}
			if w.over(now, length) != (want.Attempts == 0) {
				t.Fatalf("after %d outcomes and %d tenths over = %t", n+1, later, want.Attempts > 0)
			}
		}
	}
	if was, now := w.Sum(store.Time(at), length), w.Sum(store.Time(at-2*tenth), length); was != now {
		t.Errorf("a sum at an earlier time than the newest outcome is %+v, want %+v", now, was)
	}
	if windowParts != 10 {
		t.Errorf("a window has %d parts, but rows of older releases have 10", windowParts)
	}
}

func TestWindowCheck(t *testing.T) {
	for what, c := range map[string]struct {
		w     Window
		sound bool
	}{
		"nothing":                {Window{}, false},
		"less than nothing":      {Window{parts: [windowParts]Tally{{-1, -1}}}, false},
		"one":                    {Window{parts: [windowParts]Tally{3: {1, 0}}}, true},
		"all failed":             {Window{parts: [windowParts]Tally{{2, 2}, {1, 0}}}, true},
		"more than all":          {Window{parts: [windowParts]Tally{{2, 3}}}, false},
		"far more than all":      {Window{parts: [windowParts]Tally{{2, 9}, {1, 0}}}, false},
		"failures of no attempt": {Window{parts: [windowParts]Tally{{0, 1}, {1, 0}}}, false},
	} {
		if err := c.w.Check(); (err == nil) != c.sound {
			t.Errorf("a window with %s: Check = %v", what, err)
		}
	}
}
