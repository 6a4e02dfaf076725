package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checkOperations: the counts of an operation add up and it is forgotten in time, and so is the last step that the shard did for
// one; what such a step has sent away lies in the outbox.
func (c *checker) checkOperations() {
	unfinished := 0
	c.scan(schema.TableOperation, func(k, v []byte) {
		o, err := decodeOperation(schema.IDAt(k), v)
		if err != nil {
			c.find("operation %s can't be read: %v", schema.IDAt(k), err)
			return
		}
		waits := o.Spec.Action == task.Move && (!o.State.Ended() || o.State == OperationFailed)
		if n := o.Done + o.Failed + o.Passed(); n > o.Matched || n < o.Matched && !waits {
			c.find("operation %s: %d tasks matched, %d done, %d failed, %d skipped", o.ID, o.Matched, o.Done, o.Failed, o.Passed())
		}
		if o.State.Ended() != (o.EndedAt != 0) || (o.State == OperationPaused) != (o.PausedAt != 0) || o.State != OperationRunning && o.Stopping != 0 {
			c.find("operation %s is %s: ended %d, paused %d, stopping %d", o.ID, o.State, o.EndedAt, o.PausedAt, o.Stopping)
		}
		if o.State.Ended() {
			c.expectRow(schema.DeadlineKey(o.EndedAt.Add(operationKept), schema.OnOperation, c.ns, o.ID[:]), nil)
		} else if unfinished++; unfinished > maxOperations {
			c.find("%d operations have not ended", unfinished)
		}
	})
	away := map[task.ID]int64{}
	c.scan(schema.TableOutbox, func(k, v []byte) {
		if p, err := decodeMessage(schema.IDAt(k), v); err == nil && p.From.Operation != (task.ID{}) {
			away[p.From.Operation]++
		}
	})
	c.scan(schema.TableStep, func(k, v []byte) {
		s, err := decodeStep(v)
		if err != nil || s.step == 0 || s.away != away[schema.IDAt(k)] {
			c.find("the last step for operation %s: %+v (%v), and %d tasks are on their way", schema.IDAt(k), s, err, away[schema.IDAt(k)])
			return
		}
		delete(away, schema.IDAt(k))
		c.expectRow(schema.DeadlineKey(s.until, schema.OnStep, c.ns, k[len(k)-16:]), nil)
	})
	for id, n := range away {
		c.find("%d tasks are on their way for operation %s, of which the shard did no step", n, id)
	}
}
