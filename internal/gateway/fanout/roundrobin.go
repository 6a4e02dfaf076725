package fanout

import (
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/lanes"
)

// Picker remembers whose turn it is, for each set of weighted queues over several shards and each set of types.
type Picker struct {
	mu   sync.Mutex
	book lanes.TurnBook
}

// Turn is one claim from a set of queues. Other claims from the set may run at the same time: they take what this one plans for
// granted until it ends.
type Turn struct {
	picker   *Picker
	state    lanes.Credit // of all claims from the set, guarded by picker.mu
	queues   []broker.Share
	credit   lanes.Credit // when it began
	reserved []int        // what its first plan added to the state
}

// Begin begins a claim.
func (p *Picker) Begin(c broker.ClaimCall) *Turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.book.Of(c.Namespace, len(c.Queues), func(i int) (string, int) { return c.Queues[i].Queue, c.Queues[i].Weight }, c.Types)
	t := &Turn{picker: p, state: s, queues: c.Queues, credit: slices.Clone(s), reserved: make([]int, len(c.Queues))}
	plan(s, t.queues, make([]int, len(t.queues)), make([]bool, len(t.queues)), c.Max)
	for i, was := range t.credit {
		t.reserved[i] = s[i] - was
	}
	return t
}

// Plan returns how many of n tasks to take from each queue. An empty queue provides what it already gave.
func (t *Turn) Plan(got []int, empty []bool, n int) (want []int) {
	return plan(slices.Clone(t.credit), t.queues, got, empty, n)
}

// End ends the claim, with what each queue gave.
func (t *Turn) End(got []int, empty []bool) {
	t.picker.mu.Lock()
	defer t.picker.mu.Unlock()
	for i, n := range t.reserved {
		t.state[i] -= n
	}
	account(t.state, t.queues, got, empty)
}

// plan distributes n tasks over the queues, advancing credit. An empty queue provides what it already gave.
func plan(credit lanes.Credit, queues []broker.Share, got []int, empty []bool, n int) (want []int) {
	want = make([]int, len(queues))
	for range n {
		next := credit.Next(func(i int) int {
			if empty[i] && want[i] >= got[i] {
				return 0
			}
			return queues[i].Weight
		})
		if next < 0 {
			return want
		}
		want[next]++
	}
	return want
}

// account advances credit by what each queue gave. A queue that has more, but was not asked because the claim had reached its
// bytes, is owed its share.
func account(credit lanes.Credit, queues []broker.Share, got []int, empty []bool) {
	left := slices.Clone(got)
	for {
		best, sum := -1, 0
		for i, q := range queues {
			if left[i] > 0 && (best < 0 || credit[i]+q.Weight > credit[best]+queues[best].Weight) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		for i, q := range queues {
			if empty[i] && left[i] == 0 {
				continue
			}
			credit[i] += q.Weight
			sum += q.Weight
		}
		credit[best] -= sum
		left[best]--
	}
}
