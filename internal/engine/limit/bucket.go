package limit

import (
	"math"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Bucket is a token bucket that is not full, or was not when it was last looked at.
type Bucket struct {
	Level float64    // tokens; below 0: a debt
	At    store.Time // when that was so
	Due   store.Time // of the deadline when it has a token again; 0: it has one
}

// Enough is how many tokens a task needs to start, but for what rounding may have lost.
const Enough = 1 - 1e-6

// Fill brings the level up to a time.
func (b *Bucket) Fill(r task.Rate, now store.Time) {
	come := float64(max(now-b.At, 0)) * perMicro(r)
	b.Level, b.At = min(b.Level+come, float64(r.Capacity())), max(now, b.At)
}

func perMicro(r task.Rate) float64 { return float64(r.Limit) / float64(r.Period/time.Microsecond) }

// Reaches is when the bucket will have so many tokens.
func (b *Bucket) Reaches(level float64, r task.Rate) store.Time {
	return b.At + store.Time(math.Ceil(max(level-b.Level, 0)/perMicro(r)))
}

// Full says whether a bucket need not be remembered.
func (b *Bucket) Full(r task.Rate, now store.Time) bool {
	b.Fill(r, now)
	return b.Due == 0 && b.Level >= float64(r.Capacity())-1e-6
}

// EmptyUntil says whether a bucket has no token, and when it has one again.
func (b *Bucket) EmptyUntil(rate task.Rate, now store.Time) (until store.Time, empty bool) {
	if b == nil || !rate.IsSet() {
		return 0, false
	}
	at := *b // the bucket itself stays as it is
	if at.Fill(rate, now); at.Level >= Enough {
		return 0, false
	}
	return at.Reaches(1, rate), true
}
