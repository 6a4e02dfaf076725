package check

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// expect records the rows that must exist because of a task.
func (c *checker) expect(id task.ID, x *schema.Exec) {
	c.ExpectRow(schema.ListedKey(c.ns, x.Queue, id), nil)
	q := c.countsOf(x.Queue)
	if n := q.Of(x.State, x.Priority); n != nil {
		*n++
	}
	if !x.State.Ended() {
		q.Bytes += x.Size
	}
	switch {
	case x.Parked():
		q.Parked++
		if x.Role != schema.RoleNext {
			q.Behind++
		}
		c.ExpectRow(schema.WaitKey(c.ns, x.Queue, x.State, x.RunAt, id), nil)
	case x.State == task.Ready:
		c.ExpectRow(schema.ReadyKey(c.ns, x.Queue, x.Lane(), x.Seq), schema.EncodeReady(id, x.ReadyAt))
		l := c.laneOf(schema.LaneKey(c.ns, schema.TableLane, x.Queue, x.Lane()))
		l.count++
		l.first = min(l.first, x.Seq)
	case x.State == task.Scheduled || x.State == task.Retrying:
		c.ExpectRow(schema.WaitKey(c.ns, x.Queue, x.State, x.RunAt, id), nil)
	case x.State == task.Dead || x.State == task.Poisoned:
		c.ExpectRow(schema.DeadKey(c.ns, x.Queue, x.State, x.EndedAt, id), x.EncodeDead())
	}
	c.checkPrint(id, x)
	if at, kind := x.Deadline(); c.archives(id, x) {
		c.ExpectRow(schema.ArchiveKey(c.ns, x.EndedAt, id), nil)
	} else if kind.Shared() {
		c.expectShared(at, kind, id[:])
	} else if kind != 0 {
		c.ExpectRow(schema.DeadlineKey(at, kind, c.ns, id[:]), nil)
	}
	if x.AwaitsStart() {
		c.ExpectRow(schema.DeadlineKey(x.ExpiresAt, schema.OnExpiry, c.ns, id[:]), nil)
	}
	if x.State == task.Claimed && x.Key != "" {
		at := string(schema.UseKey(c.ns, x.Queue, x.Key))
		if c.counted[at] == nil {
			c.counted[at] = map[task.ID]bool{}
		}
		c.counted[at][id] = true
	}
	c.noteUnique(id, x)
	c.noteOrder(id, x)
	c.checkZone(id, x)
	if (x.Fence == 1 || x.ExpiresAlways) && x.ExpiresAt != 0 && x.Claim.At >= x.ExpiresAt {
		c.Find("task %s was claimed after it had expired", id)
	}
	bound := x.Claim.RunUntil.Add(engine.LeaderGrace) // a new leader may extend a lease that far
	if x.State == task.Claimed && (x.Claim.Nonce == 0 || x.Claim.Until > bound && !x.Claim.Orphaned) {
		c.Find("task %s: its claim is without nonce or beyond its bound", id)
	}
	if x.State.Ended() != (x.EndedAt != 0) {
		c.Find("task %s is %s but its end is %d", id, x.State, x.EndedAt)
	}
	if x.HasResult {
		if _, ok := c.rows.Get(schema.IDKey(c.ns, schema.TableResult, id)); !ok {
			c.Find("task %s has lost its result", id)
		}
	}
	if _, ok := c.rows.Get(schema.IDKey(c.ns, schema.TableCheckpoint, id)); ok != x.Checkpointed {
		c.Find("task %s: checkpoint row %t, state says %t", id, ok, x.Checkpointed)
	}
}

// checkZone checks that the zone of a task records its type and its end state.
func (c *checker) checkZone(id task.ID, x *schema.Exec) {
	if !c.zones.Tells(id, x) {
		c.Find("task %s: its zone does not include %s tasks of type %q in queue %q", id, x.State, x.Type, x.Queue)
	}
}

// checkPrint compares the stored fingerprint of a dead task with that of its last failure.
func (c *checker) checkPrint(id task.ID, x *schema.Exec) {
	if x.Fingerprint == 0 {
		return // it is not dead, or died under a leader that stored none
	}
	last := schema.LastFailure(schema.ReadAttempts(c.rows, c.ns, id))
	if want := fingerprint.Of(x.Type, fingerprint.Normalize(last.Message)); x.Fingerprint != want {
		c.Find("task %s has the fingerprint %s, that of its last failure is %s", id, fingerprint.Text(x.Fingerprint),
			fingerprint.Text(want))
	}
}

// archives reports whether the task is a dead letter that waits for the archive: its archive row has replaced the
// deadline of its retention.
func (c *checker) archives(id task.ID, x *schema.Exec) bool {
	if x.State != task.Dead && x.State != task.Poisoned {
		return false
	}
	_, ok := c.rows.Get(schema.ArchiveKey(c.ns, x.EndedAt, id))
	return ok
}
