package store

import (
	"sync"
	"time"
)

// Time is a shard's time: microseconds since 1970.
type Time int64

// TimeOf converts a wall-clock time, truncating it to microseconds.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro()) }

// Time converts back, in UTC.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Add returns t+d.
func (t Time) Add(d time.Duration) Time { return t + Time(d/time.Microsecond) }

// RoundUp returns the first multiple of d that is not before t. d must be whole microseconds.
func (t Time) RoundUp(d time.Duration) Time {
	step := Time(d / time.Microsecond)
	return (t + step - 1) / step * step
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }

// TimeSource provides the time to a clock. Elapsed is monotonic from an arbitrary start, and continues while the machine is
// suspended.
type TimeSource struct {
	Wall    func() time.Time
	Elapsed func() time.Duration
}

// SystemTime returns the operating system's clocks.
func SystemTime() TimeSource {
	return TimeSource{Wall: time.Now, Elapsed: sinceBoot}
}

// maxSlew is the rate at which a clock is slewed towards the wall clock: 500 millionths, the limit of NTP. So a jump of the
// wall clock by an hour moves the shard's time by less than 2 s in the next hour, and makes nothing early.
const maxSlew = 500e-6

// Clock is a shard's time while its leader leads. It starts at the later of the wall clock and the shard's last time, runs on
// monotonic time, and is slewed towards the wall clock. It is safe for concurrent use.
type Clock struct {
	src   TimeSource
	start Time          // when the replica became leader
	began time.Duration // the source's Elapsed at start

	mu     sync.Mutex
	read   time.Duration // Elapsed at the last reading
	slewed float64       // microseconds slewed so far; a float, since one reading may gain less than one
	last   Time
}

// LeaderClock starts the clock of a new leader. last is the last time in its state.
func LeaderClock(src TimeSource, last Time) *Clock {
	start, elapsed := max(TimeOf(src.Wall()), last), src.Elapsed()
	return &Clock{src: src, start: start, began: elapsed, read: elapsed, last: start}
}

// Now returns the shard's time. It never runs backwards.
func (c *Clock) Now() Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := c.src.Elapsed()
	if step := elapsed - c.read; step > 0 {
		c.read = elapsed
		most := float64(step) / float64(time.Microsecond) * maxSlew
		ahead := float64(TimeOf(c.src.Wall()) - c.at())
		c.slewed += min(max(ahead, -most), most)
	}
	c.last = max(c.last, c.at())
	return c.last
}

func (c *Clock) at() Time { return c.start.Add(c.read-c.began) + Time(c.slewed) }
