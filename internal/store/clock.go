package store

import (
	"sync"
	"time"
)

// Time is a shard's time: microseconds since 1970.
type Time int64

// TimeOf converts a wall-clock time, cutting it to microseconds.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro()) }

// Time converts back, in UTC.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Add returns t+d.
func (t Time) Add(d time.Duration) Time { return t + Time(d/time.Microsecond) }

// RoundUp returns the first multiple of d, which is whole microseconds, that is not before t.
func (t Time) RoundUp(d time.Duration) Time {
	step := Time(d / time.Microsecond)
	return (t + step - 1) / step * step
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }

// TimeSource is where a clock reads time. Elapsed is monotonic from any start, and goes on while the machine is
// suspended.
type TimeSource struct {
	Wall    func() time.Time
	Elapsed func() time.Duration
}

// SystemTime reads the operating system's clocks.
func SystemTime() TimeSource {
	return TimeSource{Wall: time.Now, Elapsed: sinceBoot}
}

// maxSlew is how far a clock leans towards the wall clock: 500 millionths, what NTP allows itself. So a jump of the
// wall clock by an hour moves the shard's time by less than 2 s in the next hour, and makes nothing early.
const maxSlew = 500e-6

// Clock is a shard's time while its leader leads: it starts at the later of the wall clock and the shard's last
// time, runs on monotonic time, and leans towards the wall clock. Any goroutine may read it.
type Clock struct {
	src   TimeSource
	start Time          // when it became leader
	began time.Duration // the source's Elapsed then

	mu   sync.Mutex
	read time.Duration // Elapsed at the last reading
	lean float64       // microseconds gained towards the wall clock since; a float, since a reading may gain less than one
	last Time
}

// LeaderClock starts the clock of a new leader whose state was last at time last.
func LeaderClock(src TimeSource, last Time) *Clock {
	start, elapsed := max(TimeOf(src.Wall()), last), src.Elapsed()
	if planted("store-clock-forgets") {
		start = TimeOf(src.Wall())
	}
	return &Clock{src: src, start: start, began: elapsed, read: elapsed, last: start}
}

// Now returns the shard's time. It never runs backwards.
func (c *Clock) Now() Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if planted("store-clock-wall") {
		c.last = max(c.last, TimeOf(c.src.Wall()))
		return c.last
	}
	elapsed := c.src.Elapsed()
	if step := elapsed - c.read; step > 0 {
		c.read = elapsed
		most := float64(step) / float64(time.Microsecond) * maxSlew
		ahead := float64(TimeOf(c.src.Wall()) - c.at())
		c.lean += min(max(ahead, -most), most)
	}
	c.last = max(c.last, c.at())
	return c.last
}

func (c *Clock) at() Time { return c.start.Add(c.read-c.began) + Time(c.lean) }
