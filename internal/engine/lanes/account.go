package lanes

import "github.com/pawlq/pawl/internal/store"

// accounts tracks what the flows of a queue have used. When tasks begin to wait after none did, a new accounting period
// starts and every flow's usage is zero.
type accounts struct {
	period int        // number of the period: incremented when a task waits after none did
	opened store.Time // when the period began
}

// price returns the worker time that a flow has used in this period up to now.
func (a *accounts) price(f *Flow, now store.Time) float64 {
	used, at := f.used, f.at
	if f.period != a.period {
		used, at = 0, a.opened
	}
	return used + float64(f.Running)*float64(max(now-at, 0))/f.weight
}

// updateUsage brings used up to date, before Running changes.
func (a *accounts) updateUsage(f *Flow, now store.Time) {
	f.used, f.at, f.period = a.price(f, now), now, a.period
}

// coldPrice returns what the key of a cold lane has used in this period. It runs no task, so its usage does not grow with time.
func (a *accounts) coldPrice(c *coldLane) float64 {
	if int(c.period) != a.period {
		return c.of.start
	}
	return max(c.used, c.of.start)
}
