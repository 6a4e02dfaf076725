package lanes

import "github.com/pawlq/pawl/internal/store"

// accounts are what the flows of a queue have used. When tasks begin to wait, all accounts begin at nothing.
type accounts struct {
	account int        // grows when something waits after nothing did
	opened  store.Time // when that was
}

// price is the workers' time that a flow has used in this account up to now.
func (a *accounts) price(f *Flow, now store.Time) float64 {
	used, at := f.used, f.at
	if f.account != a.account {
		used, at = 0, a.opened
	}
	return used + float64(f.Running)*float64(max(now-at, 0))/f.weight
}

// reckon brings used up to now, before running changes.
func (a *accounts) reckon(f *Flow, now store.Time) {
	f.used, f.at, f.account = a.price(f, now), now, a.account
}

// coldPrice is what the key of a cold lane has used in this account. It runs nothing, so time adds nothing.
func (a *accounts) coldPrice(c *coldLane) float64 {
	if int(c.account) != a.account {
		return c.of.start
	}
	return max(c.used, c.of.start)
}
