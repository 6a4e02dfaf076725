package quotas

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// runningField is the index of running tasks in Amounts. Their use moves from shard to shard as tasks end; that of the others stays until
// it ends.
const runningField = 2

// shareOut returns the share that each shard should have. Shards that have not answered keep what they may use, and those without a queue
// of the namespace get nothing.
func (d *division) shareOut() []task.Amounts {
	want := make([]task.Amounts, len(d.parts))
	whole := d.quotas.Whole()
	for f, all := range whole.Each() {
		budget := *all
		var holders []int
		for i := range d.parts {
			p := &d.parts[i]
			to := want[i].Each()[f]
			switch {
			case budget == task.NoLimit:
				*to = task.NoLimit
			case !p.known:
				*to = *p.Most.Each()[f]
				budget -= min(*to, budget)
			case p.drains && f != runningField:
				*to = min(*p.space.Use.Each()[f], budget)
				budget -= *to
			case p.holds():
				holders = append(holders, i)
			}
		}
		if budget == task.NoLimit || len(holders) == 0 {
			continue
		}
		var shares []int64
		if f == runningField {
			shares = d.byDemand(holders, budget)
		} else {
			shares = d.byUse(holders, budget, f)
		}
		for n, i := range holders {
			*want[i].Each()[f] = shares[n]
		}
	}
	return want
}

// leaveUsed lowers the shares that nothing is left for, since shards use more than their shares: the whole has been
// lowered, and nothing may begin before so much has ended.
func (d *division) leaveUsed(want []task.Amounts, whole int64, f int) {
	taken := int64(0)
	takes := func(i int) int64 { return min(max(*want[i].Each()[f], *d.parts[i].space.Use.Each()[f]), task.MaxQuota) }
	for i := range want {
		taken += takes(i)
	}
	for i := range want {
		if to := want[i].Each()[f]; whole != task.NoLimit && d.parts[i].known && taken > whole {
			taken -= takes(i)
			*to = min(*to, max(whole-taken, 0))
			taken += takes(i)
		}
	}
}

// byUse gives each shard what it uses. Half of the remainder is divided evenly, so that an idle queue has room when it wakes up, half in
// proportion to use. What does not divide goes to shards that have refused tasks and have no room otherwise; if there are none, to those
// that use some. If more is used than there is, all get less, in proportion.
func (d *division) byUse(holders []int, budget int64, f int) []int64 {
	used := make([]int64, len(holders))
	sum := int64(0)
	for n, i := range holders {
		used[n] = *d.parts[i].space.Use.Each()[f]
		sum += used[n]
	}
	shares := make([]int64, len(holders))
	left := budget
	give := func(n int, v int64) { shares[n], left = shares[n]+v, left-v }
	if sum >= budget {
		for n := range holders {
			give(n, part(budget, used[n], max(sum, 1)))
		}
		return distributeRest(shares, left, func(n int) bool { return used[n] > shares[n] })
	}
	spare := budget - sum
	for n := range holders {
		give(n, used[n]+spare/2/int64(len(holders)))
		give(n, part(spare/2, used[n]+1, sum+int64(len(holders))))
	}
	wants, short := func(n int) bool { return used[n] > 0 }, func(n int) bool {
		return shares[n] <= used[n] &&
			d.parts[holders[n]].refused[f]
	}
	for n := range holders {
		if short(n) {
			wants = short
		}
	}
	return distributeRest(shares, left, wants)
}

// byDemand gives each shard as much of its fair share as it can use: no shard with unmet demand gets less than another. What no shard wants
// is divided evenly.
func (d *division) byDemand(holders []int, budget int64) []int64 {
	shares := make([]int64, len(holders))
	for left := budget; left > 0; {
		var hungry []int
		for n, i := range holders {
			if s := &d.parts[i].space; shares[n] < s.Use.Running+s.Ready {
				hungry = append(hungry, n)
			}
		}
		each := left / int64(max(len(hungry), 1))
		if len(hungry) == 0 || each == 0 {
			even := int64(0)
			if len(hungry) == 0 {
				even = left / int64(len(holders))
			}
			for n := range shares {
				shares[n] += even
			}
			return distributeRest(shares, left-even*int64(len(holders)), func(n int) bool { return slices.Contains(hungry, n) })
		}
		for _, n := range hungry {
			s := &d.parts[holders[n]].space
			v := min(each, s.Use.Running+s.Ready-shares[n])
			shares[n], left = shares[n]+v, left-v
		}
	}
	return shares
}

// distributeRest hands out what does not divide evenly, one each, first to those that want it. Shards take turns: if there is less than one
// each, every shard has its time.
func distributeRest(shares []int64, left int64, wants func(n int) bool) []int64 {
	order := turns(len(shares))
	for _, all := range []bool{false, true} {
		for _, n := range order {
			if left > 0 && (all || wants(n)) {
				shares[n]++
				left--
			}
		}
	}
	shares[order[0]] += left
	return shares
}

// turns returns the order in which n shards come now. It is random, so that no shard comes last each time that a task
// ends, whatever time tasks take, and none comes first more often because those before it want nothing.
func turns(n int) []int { return rand.New(rand.NewPCG(turnNumber(), 0)).Perm(n) } // #nosec G404 -- not a secret

// TurnTime is how long a shard's turn lasts.
const TurnTime = 5 * time.Second

func turnNumber() uint64 { return uint64(time.Now().UnixNano() / int64(TurnTime)) } // #nosec G115 -- after 1970

// part returns whole·some/all without intermediate overflow.
func part(whole, some, all int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(some))   // #nosec G115 -- not negative
	q, _ := bits.Div64(hi%uint64(all), lo, uint64(all)) // #nosec G115 -- no more than whole
	return int64(q)                                     // #nosec G115
}

func least(a, b task.Amounts) task.Amounts {
	return eachOf(a, b, func(v, w int64) int64 { return min(v, w) })
}
func most(a, b task.Amounts) task.Amounts {
	return eachOf(a, b, func(v, w int64) int64 { return max(v, w) })
}

func eachOf(a, b task.Amounts, of func(v, w int64) int64) task.Amounts {
	for f, v := range a.Each() {
		*v = of(*v, *b.Each()[f])
	}
	return a
}
