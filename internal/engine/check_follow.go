package engine

import "github.com/pawlq/pawl/internal/task"

// checkFollowers: a task that says that something follows it has a row of that, and no other has; what waits, waits for a task that
// has not succeeded, and what is on its way has its parcel.
func (c *checker) checkFollowers() {
	sent := map[Origin]bool{}
	c.scan(tabOutbox, func(k, v []byte) {
		p, err := decodeParcel(idAt(k), v)
		if err != nil {
			c.find("parcel %s: %v", idAt(k), err)
			return
		}
		sent[p.From] = true
	})
	rows := map[task.ID]bool{}
	c.scan(tabFollow, func(k, v []byte) {
		id := idAt(k)
		rows[id] = true
		all, err := decodeFollowers(v)
		x := c.tasks[id]
		if err != nil || x == nil || x.Ties == nil || !x.Ties.Followed {
			c.find("what follows %s follows nothing (%v)", id, err)
			return
		}
		for i := range all {
			f := &all[i]
			if waits := f.Fate == FateWaiting; waits == (x.State == task.Succeeded) || waits != (f.Spec != nil) {
				c.find("task %s is %s, and number %d of what follows it is %s", id, x.State, i, f.Fate)
			}
			if way := (Origin{Parent: id, N: i}); (f.Fate == FateSent) != sent[way] {
				c.find("number %d of what follows task %s is %s, and its parcel there: %t", i, id, f.Fate, sent[way])
			}
		}
	})
	for id, x := range c.tasks {
		if x.Ties != nil && x.Ties.Followed && !rows[id] {
			c.find("nobody knows what follows task %s", id)
		}
	}
}
