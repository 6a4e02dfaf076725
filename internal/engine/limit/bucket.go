package limit

import (
	"math"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Bucket is a token bucket that is not full, or was not when last checked.
type Bucket struct {
	Level float64    // tokens; below 0: a debt
	At    store.Time // the time of Level
	Due   store.Time // the deadline at which it has a token again; 0: it has one
}

// Enough is how many tokens a task needs to start, minus a tolerance for rounding errors.
const Enough = 1 - 1e-6

// Fill brings the level up to date.
func (b *Bucket) Fill(r task.Rate, now store.Time) {
	come := float64(max(now-b.At, 0)) * perMicro(r)
	b.Level, b.At = min(b.Level+come, float64(r.Capacity())), max(now, b.At)
}

func perMicro(r task.Rate) float64 { return float64(r.Limit) / float64(r.Period/time.Microsecond) }

// Reaches returns when the bucket will have that many tokens.
func (b *Bucket) Reaches(level float64, r task.Rate) store.Time {
	return b.At + store.Time(math.Ceil(max(level-b.Level, 0)/perMicro(r)))
}

// Full reports whether the bucket is full, so that it need not be stored.
func (b *Bucket) Full(r task.Rate, now store.Time) bool {
	b.Fill(r, now)
	return b.Due == 0 && b.Level >= float64(r.Capacity())-1e-6
}

// EmptyUntil reports whether the bucket has no token, and when it will have one again.
func (b *Bucket) EmptyUntil(rate task.Rate, now store.Time) (until store.Time, empty bool) {
	if b == nil || !rate.IsSet() {
		return 0, false
	}
	at := *b // a copy: the bucket itself is not changed
	if at.Fill(rate, now); at.Level >= Enough {
		return 0, false
	}
	return at.Reaches(1, rate), true
}
