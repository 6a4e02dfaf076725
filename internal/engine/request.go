package engine

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// request is a call that may be a repeat: its idempotency key or request id may already belong to a task.
type request struct {
	r     *Round
	n     *NewTask
	print uint64 // hash of what must be the same when a key is used again
}

// earlier returns the task to which the idempotency key or the request id already belongs.
func (q *request) earlier() (Accepted, error) {
	r, n := q.r, q.n
	for _, key := range []string{n.IdempotencyKey, n.OlderKey} {
		if key == "" {
			continue
		}
		a, err := q.byIdempotencyKey(key)
		if a.Duplicate && key == n.OlderKey { // in a scope that was larger, perhaps: there it may be of another key
			if x, gone := r.Exec(n.Namespace, a.ID); gone != nil || x.Key != n.Key {
				continue
			}
		}
		if a.Duplicate || err != nil {
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
		if _, foreign := r.tx.Get(schema.IDKey(n.Namespace, schema.TableGroup, n.ID)); foreign {
			return Accepted{}, ForeignID(n.RequestID, "group", n.ID)
		}
		return q.byKey(schema.ForgottenKey(n.Namespace, n.ID), "request_id", n.RequestID.String())
	}
	if schema.ReadEnvelope(r.tx, n.Namespace, n.ID).Fingerprint != q.print {
		return Accepted{}, reused("request_id", n.RequestID.String(), n.ID)
	}
	return Accepted{ID: n.ID, State: x.State, CreatedAt: x.CreatedAt, Duplicate: true, Order: x.Order}, nil
}

// byIdempotencyKey returns the task of an idempotency key.
func (q *request) byIdempotencyKey(name string) (Accepted, error) {
	r, n := q.r, q.n
	key := schema.IdempotencyKey(n.Namespace, n.Queue, name)
	if r.l.keys.IsNew(r.tx, r.now, key) {
		return Accepted{}, nil
	}
	a, err := q.byKey(key, "idempotency_key", name)
	a.KeyTaken = a.Duplicate && n.fromBroker() && !q.createdTask(a.ID)
	return a, err
}

// byRequest returns the task of a request id that is not a UUIDv7.
func (q *request) byRequest() (Accepted, error) {
	n := q.n
	k, ok := schema.ReadKey(q.r.tx, schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID))
	k.Until = q.r.l.restored.Extended(k.Until, keyDeadline(k.Until))
	return q.byRow(k, ok, "request_id", n.RequestID.String())
}

// fromBroker reports whether the broker itself enqueues the task.
func (n *NewTask) fromBroker() bool { return n.Parent != nil || n.Member != nil || n.RequestTTL > 0 }

// createdTask reports whether this same request created the task.
func (q *request) createdTask(id task.ID) bool {
	r, n := q.r, q.n
	k, ok := schema.ReadKey(r.tx, schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID))
	return ok && k.ID == id
}

// byKey returns the task that a key's row names, unless the key has expired.
func (q *request) byKey(row []byte, field, value string) (Accepted, error) {
	k, ok := schema.ReadKey(q.r.tx, row)
	return q.byRow(k, ok, field, value)
}

func (q *request) byRow(k schema.KeyRow, ok bool, field, value string) (Accepted, error) {
	r, n := q.r, q.n
	if !ok || q.expired(k) {
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

// assignKeys assigns the keys to the new task.
func (q *request) assignKeys(x *schema.Exec) {
	r, n := q.r, q.n
	if n.IdempotencyKey != "" {
		key := schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey)
		r.tx.Set(key, schema.KeyRow{ID: n.ID, Fingerprint: q.print, Until: x.KeyedUntil, Order: x.Order}.Encode())
		q.setDeadline(x.KeyedUntil, schema.OnKey, key)
		r.l.keys.Add(key, r.now, x.KeyedUntil)
	}
	if n.RequestID != (task.ID{}) && !n.RequestID.IsV7() {
		key, until := schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID), r.now.Add(max(task.RequestWindow, n.RequestTTL))
		r.tx.Set(key, schema.KeyRow{ID: n.ID, Fingerprint: q.print, Until: until}.Encode())
		q.setDeadline(until, schema.OnRequest, key)
	}
}

// ForeignID returns the error of a call whose request id leads to an id that something else has.
func ForeignID(request task.ID, kind string, id task.ID) error {
	return &task.Error{Code: task.CodeConflict, Field: "request_id",
		Message: fmt.Sprintf("request_id %q: its id belongs to %s %s; use another", request, kind, id)}
}

func reused(field, value string, id task.ID) error {
	differs := "type, payload or queue"
	if field == "idempotency_key" { // each queue has its own keys
		differs = "type or payload"
	}
	return &task.Error{Code: task.CodeConflict, Field: field, Message: fmt.Sprintf("%s %q was used for task %s, which has another %s",
		field, value, id, differs)}
}

// Hasher hashes what must be the same of tasks when a key is used again.
type Hasher struct{ content []byte }

// Hash never returns 0.
func (h *Hasher) Hash(s *task.Spec) uint64 {
	h.content = append(slices.Grow(h.content[:0], len(s.Queue)+len(s.Type)+len(s.ContentType)+len(s.Payload)+3), s.Queue...)
	if !s.AnyContent {
		h.content = s.AppendContent(append(h.content, 0))
	}
	return max(xxhash.Sum64(h.content), 1)
}

// A key's deadline deletes the row without reading it, unless the key may have been renewed: then the row belongs to
// another task and has a later deadline. Leader.renewedUpTo is the last deadline that may be void for this reason. It
// covers
//   - keys that this leader renewed after they had expired (ended);
//   - keys that earlier leaders renewed: their void deadlines are at most a second after the beginning of this leader's term (NewLeader).

// expired reports whether a key has expired, so that it may be renewed.
func (q *request) expired(k schema.KeyRow) bool {
	if k.Until > q.r.now {
		return false
	}
	q.r.l.renewedUpTo = max(q.r.l.renewedUpTo, keyDeadline(k.Until))
	return true
}

// keyDeadline returns when the row of a key is deleted.
func keyDeadline(until store.Time) store.Time { return until.RoundUp(ForgetStep) }

// setDeadline sets the deadline that deletes the row of a key after it expires.
func (q *request) setDeadline(until store.Time, kind schema.DeadlineKind, key []byte) {
	ns := q.n.Namespace
	q.r.shared.AddKey(deadline.Name{Kind: kind, Namespace: ns, At: keyDeadline(until)}, key[len(ns)+2:])
}

// keysEnd deletes the rows of expired keys.
func keysEnd(r *Round, d schema.Deadline) {
	tab := byte(schema.TableRequest)
	if d.Kind == schema.OnKey {
		tab = schema.TableKey
		r.l.keys.End(d.At.Add(-ForgetStep)) // earlier deadlines have run
	}
	for _, name := range d.Keys {
		key := append(schema.Table(d.Namespace, tab), name...)
		if d.Kind == schema.OnRequest {
			until, kept := r.l.restored.Keep(r.tx, key, d.At)
			if until != 0 {
				r.shared.AddKey(deadline.Name{Kind: d.Kind, Namespace: d.Namespace, At: keyDeadline(until)}, name)
			}
			if kept {
				continue
			}
		}
		if d.At <= r.l.renewedUpTo {
			if k, ok := schema.ReadKey(r.tx, key); !ok || k.Until > r.now {
				continue
			}
		}
		r.tx.Delete(key)
	}
}

// claimKeyEnds deletes the row of an expired claim key. A row that was set again has its own, later deadline.
func claimKeyEnds(r *Round, d schema.Deadline) {
	key := schema.ClaimKeyKey(d.Namespace, string(d.Rest))
	if row, ok := r.tx.Get(key); ok && schema.Must(schema.DecodeClaimKey(row)).Until <= r.now {
		r.tx.Delete(key)
	}
}
