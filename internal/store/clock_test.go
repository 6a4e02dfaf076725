package store

import (
	"testing"
	"time"
)

// fakeTime has a wall clock that jumps and a monotonic clock that does not.
type fakeTime struct {
	wall    time.Time
	elapsed time.Duration
}

func (f *fakeTime) source() TimeSource {
	return TimeSource{Wall: func() time.Time { return f.wall }, Elapsed: func() time.Duration { return f.elapsed }}
}

func (f *fakeTime) pass(d time.Duration) { f.wall, f.elapsed = f.wall.Add(d), f.elapsed+d }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestClockTakesTheLaterTime(t *testing.T) {
	f := &fakeTime{wall: noon}
	if got := LeaderClock(f.source(), TimeOf(noon.Add(-time.Hour))).Now(); got != TimeOf(noon) {
		t.Errorf("after downtime the clock is at %s, want noon", got.Time())
	}
	if got := LeaderClock(f.source(), TimeOf(noon.Add(time.Hour))).Now(); got != TimeOf(noon.Add(time.Hour)) {
		t.Errorf("with a wall clock that is behind the clock is at %s, want one o'clock", got.Time())
	}
}

// A jump of the wall clock within a term makes nothing early: the bound is 500 ms, at a slew of 500 millionths.
func TestClockDoesNotFollowJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 1000 * time.Hour} {
		f := &fakeTime{wall: noon}
		c := LeaderClock(f.source(), 0)
		f.wall = f.wall.Add(jump)
		before := c.Now()
		for range 600 {
			f.pass(time.Second)
			now := c.Now()
			if now < before {
				t.Fatalf("time went back by %s", before.Sub(now))
			}
			before = now
		}
		if off := before.Sub(TimeOf(noon.Add(600 * time.Second))); off.Abs() > 500*time.Millisecond {
			t.Errorf("ten minutes after a jump by %s the clock is off by %s", jump, off)
		}
	}
}

func TestClockConvergesOnWallClock(t *testing.T) {
	f := &fakeTime{wall: noon}
	c := LeaderClock(f.source(), 0)
	f.wall = f.wall.Add(time.Second)
	for range 3600 {
		f.pass(time.Second)
		c.Now()
	}
	if off := c.Now().Sub(TimeOf(f.wall)); off.Abs() > time.Millisecond {
		t.Errorf("an hour after a step of 1s the clock is still off by %s", off)
	}
}

func TestClockDoesNotLoseShortSteps(t *testing.T) {
	f := &fakeTime{wall: noon}
	c := LeaderClock(f.source(), 0)
	for range 1_000_000 {
		f.pass(100 * time.Nanosecond)
		c.Now()
	}
	if got := c.Now().Sub(TimeOf(noon)); got < 99*time.Millisecond || got > 101*time.Millisecond {
		t.Errorf("a million steps of 100ns advanced the clock by %s, want 100ms", got)
	}
}
