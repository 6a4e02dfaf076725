package engine

import (
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Send puts a message for another shard into the outbox.
func (r *Round) Send(ns string, m *outbox.Message) {
	m.Put(r.tx, ns)
	r.ToSend = true
}

// Delivered notes that a message was brought to its shard, or that no shard will ever take it: then refused says why. It removes the
// message, unless it stays to be brought again: what follows a task, or belongs to a group, waits until its queue has room.
func Delivered(r *Round, ns string, request task.ID, a Accepted, refused *task.Error) (stays bool) {
	m, ok := outbox.Read(r.tx, ns, request)
	if !ok {
		return false
	}
	for _, delivered := range r.l.points.delivered {
		if delivered(r, ns, m, a, refused) {
			return true
		}
	}
	r.tx.Delete(schema.IDKey(ns, schema.TableOutbox, request))
	return false
}
