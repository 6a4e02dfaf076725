package check

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkForgotten checks that the row of a forgotten task records how it ended, for as long as its request may be
// repeated. Only after that may a task with its id exist again, created by the same request.
func (c *checker) checkForgotten() {
	schema.EachForgotten(c.rows, c.ns, func(id task.ID, row []byte) {
		k, err := schema.DecodeKey(row)
		if err != nil || k.ID != id || !k.Ended.Ended() || k.Until < k.Created.Add(task.RequestWindow) {
			c.Find("forgotten task %s: %+v (%v)", id, k, err)
		}
		c.expectShared(k.Until.RoundUp(engine.ForgetStep), schema.OnForgotten, id[:])
		if x := c.tasks[id]; x != nil && x.CreatedAt < k.Until {
			c.Find("task %s is %s, and forgotten", id, x.State)
		}
	})
}

// checkKeys checks that a key's row has a deadline, and that its task has the same expiry.
func (c *checker) checkKeys() {
	for tab, kind := range map[byte]schema.DeadlineKind{schema.TableKey: schema.OnKey, schema.TableRequest: schema.OnRequest} {
		c.Scan(tab, func(k, v []byte) {
			if tab == schema.TableRequest && schema.IsForgotten(c.ns, k) {
				return
			}
			row, err := schema.DecodeKey(v)
			if err != nil {
				c.Find("key %q: %v", k, err)
				return
			}
			c.expectShared(row.Until.RoundUp(engine.ForgetStep), kind, k[len(c.ns)+2:])
			if x := c.tasks[row.ID]; x != nil && tab == schema.TableKey && x.KeyedUntil != row.Until {
				c.Find("task %s: its idempotency key ends at %d, and for the task at %d", row.ID, row.Until, x.KeyedUntil)
			}
		})
	}
}

// checkParts checks that attempts and results belong to tasks.
func (c *checker) checkParts() {
	c.Scan(schema.TableAttempt, func(k, v []byte) {
		id, fence := task.ID(k[len(k)-24:len(k)-8]), binary.BigEndian.Uint64(k[len(k)-8:])
		x := c.tasks[id]
		if _, err := schema.DecodeAttempt(fence, v); err != nil || x == nil || fence > x.Fence || fence == x.Fence &&
			x.State == task.Claimed {
			c.Find("attempt %d of task %s is orphaned (%v)", fence, id, err)
		}
	})
	c.Scan(schema.TableResult, func(k, _ []byte) {
		if x := c.tasks[schema.IDAt(k)]; x == nil || x.State != task.Succeeded || !x.HasResult {
			c.Find("result of task %s is orphaned", schema.IDAt(k))
		}
	})
}
