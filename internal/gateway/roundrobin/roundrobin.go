// Package roundrobin divides claims over weighted queues in several shards, by smooth weighted round robin: each set of queues has its
// credit, so that over many claims the shares are exact.
//
// It knows which queues had tasks and how many, but asks no shards.
package roundrobin

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
)

// Picker remembers, for each distinct set of weighted queues over several shards, whose turn it is.
type Picker struct {
	mu     sync.Mutex
	states map[string]*state
}

// state is the credit of the queues of one set.
type state struct {
	mu     sync.Mutex
	credit []int
}

// Turn is one claim from a set of queues. Other claims from the set may run at the same time: they take what this one plans for
// granted until it ends.
type Turn struct {
	state    *state
	queues   []broker.Share
	credit   []int // when it began
	reserved []int // what its first plan added to the state's credit
}

// Begin begins a claim.
func (p *Picker) Begin(c broker.ClaimCall) *Turn {
	s := p.of(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &Turn{state: s, queues: c.Queues, credit: slices.Clone(s.credit), reserved: make([]int, len(c.Queues))}
	plan(s.credit, t.queues, make([]int, len(t.queues)), make([]bool, len(t.queues)), c.Max)
	for i, was := range t.credit {
		t.reserved[i] = s.credit[i] - was
	}
	return t
}

// Plan returns how many of n tasks to take from each queue. An empty queue provides what it already gave.
func (t *Turn) Plan(got []int, empty []bool, n int) (want []int) {
	return plan(slices.Clone(t.credit), t.queues, got, empty, n)
}

// End ends the claim, with what each queue gave.
func (t *Turn) End(got []int, empty []bool) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	for i, n := range t.reserved {
		t.state.credit[i] -= n
	}
	account(t.state.credit, t.queues, got, empty)
}

// maxShares bounds how many sets are remembered. Beyond it all are dropped, which costs each less than one turn.
const maxShares = 10_000

// of returns the state of the queues of a claim.
func (p *Picker) of(c broker.ClaimCall) *state {
	var name strings.Builder
	name.WriteString(c.Namespace)
	for _, q := range c.Queues {
		name.WriteByte(0)
		name.WriteString(q.Queue)
		name.WriteByte('=')
		name.WriteString(strconv.Itoa(q.Weight))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.states[name.String()]
	if s == nil {
		if p.states == nil || len(p.states) >= maxShares {
			p.states = map[string]*state{}
		}
		s = &state{credit: make([]int, len(c.Queues))}
		p.states[name.String()] = s
	}
	return s
}

// plan distributes n tasks over the queues by smooth weighted round robin, advancing credit. An empty queue provides what it
// already gave and accrues no credit.
func plan(credit []int, queues []broker.Share, got []int, empty []bool, n int) (want []int) {
	want = make([]int, len(queues))
	for range n {
		best, sum := -1, 0
		for i, q := range queues {
			if empty[i] && want[i] >= got[i] {
				credit[i] = 0
				continue
			}
			credit[i] += q.Weight
			sum += q.Weight
			if best < 0 || credit[i] > credit[best] {
				best = i
			}
		}
		if best < 0 {
			return want
		}
		credit[best] -= sum
		want[best]++
	}
	return want
}

// account advances credit by what each queue gave. A queue that has more, but was not asked because the claim had reached its
// bytes, is owed its share.
func account(credit []int, queues []broker.Share, got []int, empty []bool) {
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
				credit[i] = 0
				continue
			}
			credit[i] += q.Weight
			sum += q.Weight
		}
		credit[best] -= sum
		left[best]--
	}
}
