package registry

import "iter"

// maxClaimers bounds the claimers of a node, whose names come from callers. Beyond it, new ones are served but not listed.
const maxClaimers = 10_000

// claimers holds the workers that claim by single calls, up to maxClaimers. A namespace may use all places as long as no other needs them:
// when they are full, a worker of a namespace with fewer displaces one of the namespace with the most.
type claimers struct {
	of   map[string]map[claimerKey]*Worker // by namespace; no inner map is empty
	size int
}

func newClaimers() *claimers { return &claimers{of: map[string]map[claimerKey]*Worker{}} }

func (c *claimers) get(by claimerKey) *Worker { return c.of[by.namespace][by] }

func (c *claimers) full() bool { return c.size >= maxClaimers }

// add adds a worker that is not yet known, and returns the one left without a place: w itself, one that it displaced, or nil.
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
	c.size++
	return out
}

// makeRoom removes and returns a worker of the namespace with the most, unless that would leave it with fewer than ns then has; nil: none
// was removed.
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
	for by, w := range most { // any one
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
	c.size--
	if len(of) == 0 {
		delete(c.of, by.namespace)
	}
}

// all iterates over all claimers. The current one may be removed.
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
