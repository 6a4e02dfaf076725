package engine

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ended returns a change of an ended task, whose queue may be gone.
func (r *Round) ended(ns string, id task.ID, x *schema.Exec) Change {
	return Change{r: r, ns: ns, id: id, From: x}
}

// ForgetStep is the unit to which the time of forgetting a task, or its remains, is rounded up, so that tasks that
// ended one after another are forgotten together (decision 80).
const ForgetStep = time.Second

// keptUntil returns when a retention ends. A retention of 0 ends immediately.
func keptUntil(ended store.Time, keep time.Duration) store.Time {
	if keep == 0 {
		return ended
	}
	return ended.Add(keep).RoundUp(ForgetStep)
}

// expiredTask is an ended task that will be forgotten.
type expiredTask struct {
	Change
	print uint64 // of the request that created it, if the request must be remembered
}

// runs groups rows to delete, or their tasks, by the order of their keys: between the rows of one run there is no row that stays.
type runs[T any] struct {
	all   [][]T
	ended bool // by a row that stays
}

// add appends an element that comes after all earlier ones. If apart is set, there is another row between it and the one before.
func (s *runs[T]) add(one T, apart bool) {
	if last := len(s.all) - 1; last < 0 || apart || s.ended {
		s.all, s.ended = append(s.all, []T{one}), false
	} else {
		s.all[last] = append(s.all[last], one)
	}
}

// retentionsEnd forgets the tasks of a deadline whose retention is over.
func retentionsEnd(r *Round, d schema.Deadline) {
	ids := d.Shared
	slices.SortFunc(ids, task.ID.Compare)
	execs, apart := make([]*schema.Exec, len(ids)), make([]bool, len(ids))
	r.tx.GetRuns(schema.IDKeys(d.Namespace, schema.TableExec, ids), func(i int, row []byte, isApart bool) {
		x := schema.Must(schema.DecodeExec(row))
		execs[i], apart[i] = x, isApart
	})
	var over runs[expiredTask]
	for i, x := range execs {
		if x == nil {
			continue // forgotten earlier
		}
		c := r.ended(d.Namespace, ids[i], x)
		if at, kind := x.Deadline(); at == d.At && kind == d.Kind && c.retentionEnds() {
			over.add(expiredTask{Change: c}, apart[i])
		} else {
			over.ended = true
		}
	}
	forget(r, d.Namespace, over.all)
}

// movedCheck is how often a moved task whose retention is over is checked again while its message is on its way.
const movedCheck = time.Hour

// retentionEnds reports whether a task whose retention is over may be forgotten now. A dead letter must be archived
// first, and a task that was sent to another queue is restored if that refuses it, however late. While the clock is in
// doubt, nothing is forgotten.
func (c *Change) retentionEnds() (goes bool) {
	if until, doubted := c.r.DeletesFrom(); doubted {
		c.keepUntil(until)
		return false
	}
	x := c.From
	if x.Reason == task.ReasonMoved && x.MovedTo == (task.ID{}) {
		if _, onItsWay := schema.ReadMessage(c.r.tx, c.ns, task.MoveRequest(c.id, x.Operation)); onItsWay {
			c.keepUntil(c.r.now.Add(movedCheck))
			return false
		}
	}
	if x.State == task.Dead || x.State == task.Poisoned {
		c.r.tx.Set(schema.ArchiveKey(c.ns, x.EndedAt, c.id), nil)
		c.r.ToArchive = true
		return false
	}
	return true
}

// keepUntil extends the retention of an ended task.
func (c *Change) keepUntil(until store.Time) {
	to := *c.From
	to.KeptUntil = until
	c.r.Rewrite(c.ns, c.id, &to)
	c.r.setTaskDeadline(until, schema.OnForget, c.ns, c.id)
}

// forget deletes every row of ended tasks.
func forget(r *Round, ns string, runs [][]expiredTask) {
	readPrints(r, ns, runs)
	for _, run := range runs {
		for i := range run {
			run[i].unindex()
		}
		if len(run) < store.RangeFrom {
			deleteEach(r, ns, run)
		} else {
			deleteRanges(r, ns, run)
		}
	}
}

// readPrints reads the fingerprints of the requests that must be remembered.
func readPrints(r *Round, ns string, runs [][]expiredTask) {
	var of []*expiredTask
	var keys [][]byte
	for _, run := range runs {
		for i := range run {
			if c := &run[i]; c.repeatableUntil() > r.now {
				of, keys = append(of, c), append(keys, schema.IDKey(ns, schema.TableEnvelope, c.id))
			}
		}
	}
	read := 0
	r.tx.GetEach(keys, func(i int, row []byte) {
		of[i].print = schema.Must(schema.DecodeFingerprint(row))
		read++
	})
	if read < len(keys) {
		schema.Damaged(fmt.Errorf("%d of %d tasks to forget have no envelope", len(keys)-read, len(keys)))
	}
}

// unindex removes an ended task from everything but the rows in the tables of tasks.
func (c *expiredTask) unindex() {
	r, ns, x := c.r, c.ns, c.From
	if x.State == task.Dead || x.State == task.Poisoned {
		c.q = r.QueueOf(ns, x)
		c.leave(x)
	}
	unique.Forget(r, ns, x)
	if until := c.repeatableUntil(); until > r.now {
		c.noteForgotten(until)
	}
	if x.Links != nil && x.Links.Followed { // deleted one by one: the table also holds rows of groups, which a range would delete too
		r.tx.Delete(schema.IDKey(ns, schema.TableFollow, c.id))
	}
	r.l.hot.Drop(c.id)
}

// repeatableUntil returns the time until which the request that created the task may be repeated, by its id or its idempotency key.
func (c *expiredTask) repeatableUntil() store.Time {
	return max(c.From.CreatedAt.Add(task.RequestWindow), c.From.KeyedUntil)
}

// noteForgotten writes a row that stands in for a task forgotten while its request may still be repeated.
func (c *expiredTask) noteForgotten(until store.Time) {
	row := schema.KeyRow{ID: c.id, Fingerprint: c.print, Until: until, Ended: c.From.State, Created: c.From.CreatedAt}
	c.r.tx.Set(schema.ForgottenKey(c.ns, c.id), row.Encode())
	c.r.setTaskDeadline(until.RoundUp(ForgetStep), schema.OnForgotten, c.ns, c.id)
}

// deleteRanges deletes the rows of tasks with no other tasks between them.
func deleteRanges(r *Round, ns string, run []expiredTask) {
	var tables []byte
	listed := map[string][][]byte{}
	for i := range run {
		x := run[i].From
		tables = addTables(tables, x)
		listed[x.Queue] = append(listed[x.Queue], schema.ListedKey(ns, x.Queue, run[i].id))
	}
	first, last := run[0].id, run[len(run)-1].id
	for _, tab := range tables {
		r.tx.DeleteRange(schema.IDKey(ns, tab, first), schema.After(schema.IDKey(ns, tab, last)))
	}
	for _, queue := range schema.SortedKeys(listed) {
		deleteRun(r, listed[queue])
	}
}

// deleteEach deletes the rows of tasks one by one.
func deleteEach(r *Round, ns string, run []expiredTask) {
	var tables []byte
	for i := range run {
		x, id := run[i].From, run[i].id
		tables = addTables(tables[:0], x)
		for _, tab := range tables {
			if tab == schema.TableAttempt {
				deleteAttempts(r, ns, id)
			} else {
				r.tx.Delete(schema.IDKey(ns, tab, id))
			}
		}
		r.tx.Delete(schema.ListedKey(ns, x.Queue, id))
	}
}

func deleteAttempts(r *Round, ns string, id task.ID) {
	prefix := schema.IDKey(ns, schema.TableAttempt, id)
	deleteRun(r, keysIn(r, prefix, schema.After(prefix), math.MaxInt))
}

// deleteRun deletes rows with no other rows between them.
func deleteRun(r *Round, keys [][]byte) {
	if len(keys) >= store.RangeFrom {
		r.tx.DeleteRange(keys[0], schema.After(keys[len(keys)-1]))
		return
	}
	for _, k := range keys {
		r.tx.Delete(k)
	}
}

// addTables adds the tables that hold nothing but tasks' rows and in which an ended task has rows under its id, unless
// they are already listed.
func addTables(tables []byte, x *schema.Exec) []byte {
	add := func(tab byte, has bool) {
		if has && bytes.IndexByte(tables, tab) < 0 {
			tables = append(tables, tab)
		}
	}
	add(schema.TableEnvelope, true)
	add(schema.TableExec, true)
	add(schema.TableResult, x.HasResult)
	add(schema.TableCheckpoint, x.Checkpointed)
	// a successful attempt has no row; fence 1 is always the first
	add(schema.TableAttempt, x.Fence > 1 || x.State != task.Succeeded && x.Fence == 1)
	return tables
}

// forgottenEnd deletes the remaining rows of forgotten tasks, once their requests can't be repeated any more.
func forgottenEnd(r *Round, d schema.Deadline) {
	slices.SortFunc(d.Shared, task.ID.Compare)
	keys := make([][]byte, len(d.Shared))
	for i, id := range d.Shared {
		keys[i] = schema.ForgottenKey(d.Namespace, id)
	}
	var over runs[[]byte]
	r.tx.GetRuns(keys, func(i int, row []byte, apart bool) {
		k := schema.Must(schema.DecodeKey(row))
		if k.Until <= r.now {
			over.add(keys[i], apart)
		} else {
			over.ended = true
		}
	})
	for _, run := range over.all {
		deleteRun(r, run)
	}
}

// ForgetArchived removes a dead letter whose retention is over and which has been archived, unless it has changed since
// it ended at time ended.
func ForgetArchived(r *Round, ns string, id task.ID, ended store.Time) {
	r.tx.Delete(schema.ArchiveKey(ns, ended, id))
	x, err := r.Exec(ns, id)
	if err != nil || x.EndedAt != ended || x.KeptUntil > r.now || (x.State != task.Dead && x.State != task.Poisoned) {
		return
	}
	forget(r, ns, [][]expiredTask{{{Change: r.ended(ns, id, x)}}})
}
