package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Send puts a message for another shard into the outbox.
func (r *Round) Send(ns string, m *schema.Message) {
	m.Put(r.tx, ns)
	r.ToSend = true
}

// Delivered records that a message was delivered to its shard, or that no shard will ever accept it: refused then says
// why. It removes the message, unless it must be delivered again: follow-up tasks and members of groups wait until
// their queue has room.
func Delivered(r *Round, ns string, request task.ID, a Accepted, refused *task.Error) (stays bool) {
	m, ok := schema.ReadMessage(r.tx, ns, request)
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
