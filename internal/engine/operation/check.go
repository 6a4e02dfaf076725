package operation

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// check checks that the counts of each operation add up, that it has one visit of a shard at most, that each ended operation and each step
// has a deadline, and that the tasks a step has sent away are in the outbox.
func check(c engine.Checker) {
	unfinished := 0
	c.Scan(schema.TableOperation, func(k, v []byte) {
		o, err := decodeOperation(schema.IDAt(k), v)
		if err != nil {
			c.Find("operation %s can't be read: %v", schema.IDAt(k), err)
			return
		}
		waits := o.Spec.Action == task.Move && (!o.State.Ended() || o.State == Failed)
		if n := o.Done + o.Failed + o.SkippedCount(); n > o.Matched || n < o.Matched && !waits {
			c.Find("operation %s: %d tasks matched, %d done, %d failed, %d skipped", o.ID, o.Matched, o.Done, o.Failed, o.SkippedCount())
		}
		if o.State.Ended() != (o.EndedAt != 0) || (o.State == Paused) != (o.PausedAt != 0) || o.State != Running && o.Stopping != 0 {
			c.Find("operation %s is %s: ended %d, paused %d, stopping %d", o.ID, o.State, o.EndedAt, o.PausedAt, o.Stopping)
		}
		visited := map[uint32]bool{o.Shard: true}
		for _, v := range o.Postponed {
			if visited[v.Shard] || v.Shard > o.Last || v.Open && o.State != Running || !o.CanPostpone() {
				c.Find("operation %s is %s in shard %d of %d: postponed %+v", o.ID, o.State, o.Shard, o.Last, o.Postponed)
				break
			}
			visited[v.Shard] = true
		}
		if o.State.Ended() {
			c.ExpectRow(schema.DeadlineKey(o.EndedAt.Add(operationKept), schema.OnOperation, c.Namespace(), o.ID[:]), nil)
		} else if unfinished++; unfinished > maxOperations {
			c.Find("%d operations have not ended", unfinished)
		}
	})
	away := map[task.ID]int64{}
	c.Scan(schema.TableOutbox, func(k, v []byte) {
		if p, err := schema.DecodeMessage(schema.IDAt(k), v); err == nil && p.From.Operation != (task.ID{}) {
			away[p.From.Operation]++
		}
	})
	c.Scan(schema.TableStep, func(k, v []byte) {
		s, err := decodeStep(v)
		n := away[schema.IDAt(k)]
		if delete(away, schema.IDAt(k)); err != nil || s.step == 0 || s.away != n {
			c.Find("the last step for operation %s: %+v (%v), and %d tasks are on their way", schema.IDAt(k), s, err, n)
			return
		}
		c.ExpectRow(schema.DeadlineKey(s.until, schema.OnStep, c.Namespace(), k[len(k)-16:]), nil)
	})
	for id, n := range away {
		c.Find("%d tasks are on their way for operation %s, but the shard did no step of it", n, id)
	}
}
