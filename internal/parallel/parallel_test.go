package parallel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitsAreStable(t *testing.T) {
	if Limit != 65 {
		t.Errorf("a call starts up to %d goroutines, want 65: one for each shard of the largest cluster", Limit)
	}
}

// Once a part has succeeded, those that are left have 800 ms, and as much again after each further one. Parts that fail cut off no others.
func TestPartsAreLate(t *testing.T) {
	const hangs = time.Hour
	allBut1 := "" // of the shards of the largest cluster
	for i := range Limit - 1 {
		allBut1 += fmt.Sprint(i)
	}
	for _, c := range []struct {
		name  string
		parts []time.Duration // negative: it fails then
		took  time.Duration
		late  string
	}{
		{"one that hangs", []time.Duration{0, hangs, 10 * time.Millisecond}, 810 * time.Millisecond, "1"},
		{"several that hang, and slow ones", []time.Duration{hangs, 1300 * time.Millisecond, hangs, 600 * time.Millisecond},
			2100 * time.Millisecond, "02"},
		{"the last a moment too late", []time.Duration{0, 800*time.Millisecond - 1, 1600 * time.Millisecond}, 1600*time.Millisecond - 1,
			"2"},
		{"one that fails, and slow ones", []time.Duration{-1, 5 * time.Second, 5800*time.Millisecond - 1}, 5800*time.Millisecond - 1, ""},
		{"one that fails among those that are late", []time.Duration{0, hangs, -500 * time.Millisecond}, 800 * time.Millisecond, "1"},
		{"all fail", []time.Duration{-1, -5 * time.Second}, 5 * time.Second, ""},
		{"all slow", []time.Duration{5 * time.Second, 5 * time.Second}, 5 * time.Second, ""},
		{"one alone", []time.Duration{5 * time.Second}, 5 * time.Second, ""},
		{"none", nil, 0, ""},
		{"more than run at a time", append(slices.Repeat([]time.Duration{hangs}, Limit-1),
			slices.Repeat([]time.Duration{300 * time.Millisecond}, 10)...), 3800 * time.Millisecond, allBut1},
		{"all but one hang", append(slices.Repeat([]time.Duration{hangs}, 64), 0), stragglerTime, allBut1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			late := ""
			for i, err := range EachUntilLate(t.Context(), len(c.parts), func(ctx context.Context, i int) error {
				select {
				case <-time.After(max(c.parts[i], -c.parts[i])):
					if c.parts[i] < 0 {
						return errors.New("refused")
					}
					return ctx.Err()
				case <-ctx.Done():
					return ctx.Err()
				}
			}) {
				if failed := c.parts[i] < 0; errors.Is(err, context.Canceled) || (err != nil) != failed {
					late += fmt.Sprint(i)
				}
			}
			if took := time.Since(began); took != c.took || late != c.late {
				t.Errorf("%s: late are %q after %s, want %q after %s", c.name, late, took, c.late, c.took)
			}
		})
	}
}

// As many run at once as may, and all have ended when Run returns.
func TestRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make([]bool, 2*Limit+1)
		began := time.Now()
		Run(len(done), func(i int) {
			time.Sleep(time.Second)
			done[i] = true
		})
		if took := time.Since(began); slices.Contains(done, false) || took != 3*time.Second {
			t.Errorf("after %v: %v, want all done after 3s", took, done)
		}
	})
}

// Each call runs, one or many of them, and a panic of one is its error.
func TestEach(t *testing.T) {
	away := errors.New("away")
	for _, n := range []int{0, 1, 2, 3 * Limit} {
		var ran atomic.Int32
		errs := Each(n, func(i int) error {
			ran.Add(1)
			switch i {
			case 0:
				panic("ouch")
			case 1:
				return away
			}
			return nil
		})
		if int(ran.Load()) != n || len(errs) != n {
			t.Fatalf("of %d calls %d ran, with %d errors", n, ran.Load(), len(errs))
		}
		for i, err := range errs {
			if i == 0 && (err == nil || !strings.Contains(err.Error(), "panic: ouch")) || i == 1 && !errors.Is(err, away) ||
				i > 1 && err != nil {
				t.Errorf("call %d of %d: %v", i, n, err)
			}
		}
	}
	odd := errors.New("odd")
	if err := FirstError([]error{nil, odd, away}); err != odd {
		t.Errorf("the first error is %v", err)
	}
	if err := FirstError([]error{nil, nil}); err != nil {
		t.Errorf("the first error of none is %v", err)
	}
}
