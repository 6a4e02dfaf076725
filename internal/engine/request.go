package engine

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// request is an enqueue that may be a repeat: an idempotency key or a request id may stand for a task already.
type request struct {
	r     *Round
	n     *NewTask
	print uint64 // sums up what must be the same when a key is used again
}

// earlier finds the task that an idempotency key or a request id stands for already.
func (q *request) earlier() (Accepted, error) {
	r, n := q.r, q.n
	if n.Archived != (task.ID{}) {
		return q.restoredEarlier()
	}
	if n.IdempotencyKey != "" {
		if a, err := q.byKey(schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey), "idempotency_key", n.IdempotencyKey); a.Duplicate || err != nil {
			a.Met = a.Duplicate && n.born() && !q.made(a.ID)
			return a, err
		}
	}
	if n.RequestID != (task.ID{}) && !n.RequestID.IsV7() {
		return q.byRequest()
	}
	if n.Fresh || r.idsOf(n.Namespace).IsNew(n.ID) {
		return Accepted{}, nil
	}
	x, err := r.Exec(n.Namespace, n.ID)
	if err != nil { // forgotten, or the request is new
		return q.byKey(schema.ForgottenKey(n.Namespace, n.ID), "request_id", n.RequestID.String())
	}
	if schema.ReadEnvelope(r.tx, n.Namespace, n.ID).Fingerprint != q.print {
		return Accepted{}, reused("request_id", n.RequestID.String(), n.ID)
	}
	return Accepted{ID: n.ID, State: x.State, CreatedAt: x.CreatedAt, Duplicate: true, Order: x.Order}, nil
}

// restoredEarlier finds the task as which an archived one came back already. The idempotency key of the archived task goes over to the new
// one; if it stands for another task, it is a conflict.
func (q *request) restoredEarlier() (Accepted, error) {
	r, n := q.r, q.n
	if a, err := q.byRequest(); a.Duplicate || err != nil || n.IdempotencyKey == "" {
		return a, err
	}
	k, ok := schema.ReadKey(r.tx, schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey))
	if ok && k.Until > r.now && k.ID != n.Archived {
		return Accepted{}, &task.Error{Code: task.CodeConflict, Field: "idempotency_key",
			Message: fmt.Sprintf("idempotency_key %q stands for task %s by now", n.IdempotencyKey, k.ID)}
	}
	return Accepted{}, nil
}

// byRequest finds the task of a request id that is no UUIDv7.
func (q *request) byRequest() (Accepted, error) {
	n := q.n
	return q.byKey(schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID), "request_id", n.RequestID.String())
}

// born says whether the broker itself enqueues the task.
func (n *NewTask) born() bool { return n.Parent != nil || n.Member != nil || n.RequestTTL > 0 }

// made says whether a task was made by this same request.
func (q *request) made(id task.ID) bool {
	r, n := q.r, q.n
	k, ok := schema.ReadKey(r.tx, schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID))
	return ok && k.ID == id
}

// byKey finds the task that a key's row names, if its time is not over.
func (q *request) byKey(row []byte, field, value string) (Accepted, error) {
	r, n := q.r, q.n
	k, ok := schema.ReadKey(r.tx, row)
	if !ok || k.Until <= r.now {
		return Accepted{}, nil
	}
	if k.Fingerprint != q.print {
		return Accepted{}, reused(field, value, k.ID)
	}
	if x, err := r.Exec(n.Namespace, k.ID); err == nil {
		k.Ended, k.Created = x.State, x.CreatedAt
	} else if k.Ended == 0 {
		f, _ := schema.ReadKey(r.tx, schema.ForgottenKey(n.Namespace, k.ID))
		k.Ended, k.Created = f.Ended, f.Created
	}
	return Accepted{ID: k.ID, Duplicate: true, State: k.Ended, CreatedAt: k.Created, Order: k.Order}, nil
}

// remember lets the keys stand for the new task.
func (q *request) remember(order uint64) {
	r, n := q.r, q.n
	if n.IdempotencyKey != "" {
		r.setKey(n.Namespace, schema.OnKey, schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey), schema.KeyRow{ID: n.ID, Fingerprint: q.print, Until: r.now.Add(n.IdempotencyTTL), Order: order})
	}
	if n.RequestID != (task.ID{}) && !n.RequestID.IsV7() {
		r.setKey(n.Namespace, schema.OnRequest, schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID), schema.KeyRow{ID: n.ID, Fingerprint: q.print, Until: r.now.Add(max(DedupWindow, n.RequestTTL))})
	}
}

// setKey writes a row that ends by itself. A row that it replaces has its own deadline, which then finds a later end.
func (r *Round) setKey(ns string, kind schema.DeadlineKind, key []byte, k schema.KeyRow) {
	r.tx.Set(key, k.Encode())
	r.SetDeadline(k.Until, kind, ns, key[len(ns)+2:])
}

func reused(field, value string, id task.ID) error {
	return &task.Error{Code: task.CodeConflict, Field: field,
		Message: fmt.Sprintf("%s %q stands for task %s, which has another type, payload or queue", field, value, id)}
}

// contentHash sums up what must be the same when a key is used again.
func contentHash(n *NewTask) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(n.Queue)
	if n.AnyContent {
		return d.Sum64()
	}
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(n.Type)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(n.ContentType)
	_, _ = d.Write([]byte{0})
	_, _ = d.Write(n.Payload)
	return d.Sum64()
}

// keyEnds removes a key row whose time is over. One that was set anew has a later deadline of its own.
func keyEnds(r *Round, d schema.Deadline) {
	tab := map[schema.DeadlineKind]byte{schema.OnKey: schema.TableKey, schema.OnRequest: schema.TableRequest, schema.OnClaimKey: schema.TableClaimKey}[d.Kind]
	key := append(schema.Table(d.Namespace, tab), d.Rest...)
	row, ok := r.tx.Get(key)
	if !ok {
		return
	}
	var until store.Time
	if d.Kind == schema.OnClaimKey {
		c, err := schema.DecodeClaimKey(row)
		schema.Must(err)
		until = c.Until
	} else {
		k, err := schema.DecodeKey(row)
		schema.Must(err)
		until = k.Until
	}
	if until <= r.now {
		r.tx.Delete(key)
	}
}
