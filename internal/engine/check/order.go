package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// keyName is a key of a queue.
type keyName struct{ queue, key string }

// noteOrder records a task's place in the order of its key.
func (c *checker) noteOrder(id task.ID, x *schema.Exec) {
	switch {
	case x.Order == 0 && x.Behind, x.Behind && x.State != task.Ready, x.Order != 0 && (x.State.Ended() || x.Key == ""):
		c.Find("task %s is %s, has the place %d in the order of key %q, is behind another: %t", id, x.State, x.Order, x.Key, x.Behind)
	case x.Order != 0:
		of := keyName{x.Queue, x.Key}
		c.orders[of] = append(c.orders[of], id)
	}
}

// expectOrder records the rows that must exist because of the order of keys.
func (c *checker) expectOrder() {
	for of, ids := range c.orders {
		slices.SortFunc(ids, func(a, b task.ID) int { return cmp.Compare(c.tasks[a].Order, c.tasks[b].Order) })
		for i, id := range ids {
			x := c.tasks[id]
			if x.State == task.Ready && x.Behind != (i > 0) {
				c.Find("task %s is number %d of key %q, and is behind another: %t", id, i, of.key, x.Behind)
			}
			if i > 0 {
				c.ExpectRow(schema.OrderKey(c.ns, of.queue, of.key, x.Order), id[:])
			}
		}
	}
}

// checkFirsts checks that the first task of each key is recorded, and that it is marked as alone only if it is.
func (c *checker) checkFirsts() {
	left := maps.Clone(c.orders)
	c.Scan(schema.TableFirst, func(k, v []byte) {
		f, err := schema.DecodeFirst(v)
		x := c.tasks[f.ID]
		if err != nil || x == nil {
			c.Find("first of key %q: task %s is not there (%v)", k, f.ID, err)
			return
		}
		of := keyName{x.Queue, x.Key}
		ids := left[of]
		switch {
		case string(k) != string(schema.FirstKey(c.ns, of.queue, of.key)):
			c.Find("first of key %q: task %s is of key %q in queue %q", k, f.ID, of.key, of.queue)
		case len(ids) == 0 || ids[0] != f.ID || f.Order != x.Order:
			c.Find("first of key %q: task %s at %d, expected one of %v", k, f.ID, f.Order, ids)
		case f.Alone && len(ids) > 1:
			c.Find("first of key %q: task %s is alone, and %d are behind it", k, f.ID, len(ids)-1)
		}
		delete(left, of)
	})
	for of := range left {
		c.Find("key %q of queue %q has tasks in order, and no first", of.key, of.queue)
	}
}
