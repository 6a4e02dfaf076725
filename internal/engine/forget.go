package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ended is a task that has ended, whose queue may be gone.
func (r *Round) ended(ns string, id task.ID, x *schema.Exec) Change {
	return Change{r: r, ns: ns, id: id, From: x}
}

// retentionEnds removes a task whose retention is over. A dead letter goes through the archive first. While the clock is in doubt, nothing
// is removed.
func (c *Change) retentionEnds() {
	if until, doubted := c.r.DeletesFrom(); doubted {
		c.keepUntil(until)
		return
	}
	if x := c.From; x.State == task.Dead || x.State == task.Poisoned {
		c.r.tx.Set(schema.ArchiveKey(c.ns, x.EndedAt, c.id), nil)
		c.r.ToArchive = true
		return
	}
	c.forget()
}

// keepUntil lets the retention of an ended task last longer.
func (c *Change) keepUntil(until store.Time) {
	to := *c.From
	to.KeptUntil = until
	c.r.Rewrite(c.ns, c.id, &to)
	c.r.setTaskDeadline(until, schema.OnForget, c.ns, c.id)
}

// forget deletes every row of an ended task.
func (c *Change) forget() {
	r, ns, id, x := c.r, c.ns, c.id, c.From
	if x.State == task.Dead || x.State == task.Poisoned {
		c.q = r.QueueOf(ns, x)
		c.leave(x)
	}
	unique.Forget(r, ns, x)
	if x.Keyed {
		c.noteEnd()
	}
	if until := x.CreatedAt.Add(DedupWindow); until > r.now {
		c.noteForgotten(until)
	}
	r.l.hot.Drop(id)
	r.tx.Delete(schema.IDKey(ns, schema.TableEnvelope, id))
	r.tx.Delete(schema.IDKey(ns, schema.TableExec, id))
	r.tx.Delete(schema.ListedKey(ns, x.Queue, id))
	if x.HasResult {
		r.tx.Delete(schema.IDKey(ns, schema.TableResult, id))
	}
	if x.Checkpointed {
		r.tx.Delete(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	if x.Links != nil && x.Links.Followed {
		r.tx.Delete(schema.IDKey(ns, schema.TableFollow, id))
	}
	if x.Fence > 1 || x.State != task.Succeeded && x.Fence == 1 {
		c.forgetAttempts()
	}
}

func (c *Change) forgetAttempts() {
	prefix := schema.IDKey(c.ns, schema.TableAttempt, c.id)
	var keys [][]byte
	c.r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
		keys = append(keys, bytes.Clone(k))
		return true
	})
	for _, k := range keys {
		c.r.tx.Delete(k)
	}
}

// noteEnd lets the idempotency key of a task that goes say how it ended, if the key lives longer.
func (c *Change) noteEnd() {
	e := schema.ReadEnvelope(c.r.tx, c.ns, c.id)
	key := schema.IdempotencyKey(c.ns, e.Queue, e.IdempotencyKey)
	if k, ok := schema.ReadKey(c.r.tx, key); ok && k.ID == c.id && k.Until > c.r.now {
		k.Ended, k.Created = c.From.State, c.From.CreatedAt
		c.r.tx.Set(key, k.Encode())
	}
}

// noteForgotten leaves a row in place of a task that goes while its request may be repeated.
func (c *Change) noteForgotten(until store.Time) {
	c.r.setKey(c.ns, schema.OnRequest, schema.ForgottenKey(c.ns, c.id), schema.KeyRow{ID: c.id, Fingerprint: c.r.Envelope(c.ns, c.id).Fingerprint,
		Until: until, Ended: c.From.State, Created: c.From.CreatedAt})
}

// ForgetArchived removes a dead letter that has been archived as it was when it ended at time ended, and whose retention
// is over.
func ForgetArchived(r *Round, ns string, id task.ID, ended store.Time) {
	r.tx.Delete(schema.ArchiveKey(ns, ended, id))
	x, err := r.Exec(ns, id)
	if err != nil || x.EndedAt != ended || x.KeptUntil > r.now || (x.State != task.Dead && x.State != task.Poisoned) {
		return
	}
	c := r.ended(ns, id, x)
	c.forget()
}
