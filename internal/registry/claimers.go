package registry

import "iter"

// maxClaimers bounds those of a node: names come from callers. Beyond it, those who come anew are served and not told of.
const maxClaimers = 10_000

// claimers are those who claim by single calls, maxClaimers at most. A namespace may have all places as long as no other wants them: when
// they are taken, one that has fewer than another gets a place of the one that has most.
type claimers struct {
	of   map[string]map[claimerKey]*Worker // by namespace; none is empty
	many int
}

func newClaimers() *claimers { return &claimers{of: map[string]map[claimerKey]*Worker{}} }

func (c *claimers) get(by claimerKey) *Worker { return c.of[by.namespace][by] }

func (c *claimers) full() bool { return c.many >= maxClaimers }

// add takes one in who is not there, if there is a place, and answers with who has none now: that one, another whose place it got, or nil.
func (c *claimers) add(by claimerKey, w *Worker) (out *Worker) {
	if c.full() {
		if out = c.makeRoom(by.namespace); out == nil {
			return w
		}
	}
	if c.of[by.namespace] == nil {
		c.of[by.namespace] = map[claimerKey]*Worker{}
	}
	c.of[by.namespace][by] = w
	c.many++
	return out
}

// makeRoom takes a place away from the namespace that has most, unless that would leave it with less than the other then has, and answers with who had
// that place; nil: nobody lost it.
func (c *claimers) makeRoom(ns string) *Worker {
	var most map[claimerKey]*Worker
	for _, of := range c.of {
		if len(of) > len(most) {
			most = of
		}
	}
	if len(most)-1 < len(c.of[ns])+1 {
		return nil
	}
	for by, w := range most { // whichever
		c.remove(by)
		return w
	}
	return nil
}

func (c *claimers) remove(by claimerKey) {
	of := c.of[by.namespace]
	if _, there := of[by]; !there {
		return
	}
	delete(of, by)
	c.many--
	if len(of) == 0 {
		delete(c.of, by.namespace)
	}
}

// all goes over everyone. Whoever it is at may be removed.
func (c *claimers) all() iter.Seq2[claimerKey, *Worker] {
	return func(yield func(claimerKey, *Worker) bool) {
		for _, of := range c.of {
			for by, w := range of {
				if !yield(by, w) {
					return
				}
			}
		}
	}
}
