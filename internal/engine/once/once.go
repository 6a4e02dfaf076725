package once

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy implements once keys.
var Policy = engine.Policy{
	Check: check,
	Due:   map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnOnce: ends},
}

// A once key stands for an effect that must happen only once, whichever task of the queue performs it. Its row names
// the holder while the effect is in progress, and then the result until that expires.
//
// A hold has no lease of its own: it is valid as long as the claim that took it. Readers check whether that claim still
// holds, so that nothing needs to be released, extended or cleaned up in time, and a hold can't outlive a crash.
//
//	begin ─▶ held by the claim ──finish──▶ done ──its time is over──▶ no row
//	            │         ▲
//	            │         └─ begin by another claim, once this one has ended
//	            └─ abandon ─▶ no row
//
// If the task and the key are in the same shard, all of that is decided in one log entry. If not, the router first has
// the task's shard confirm the claim, and asks the holder's shard whether a hold is still valid: once a claim has
// ended, it stays ended.

// Verb is an operation on a once key.
type Verb uint8

// The verbs. Each may be repeated, with the same answer.
const (
	Begin   Verb = 1 + iota // hold the key, unless the effect has happened or another claim holds the key
	Finish                  // the effect has happened
	Abandon                 // it has not, and another task may try
)

// Call is a verb on a once key. The caller has validated key, result and times.
type Call struct {
	Verb   Verb
	Hold   engine.Hold
	Key    string
	Result []byte        // of Finish: a JSON value
	TTL    time.Duration // of Finish: how long the result is kept

	// Routed is the version of the queue by which this shard was chosen for the key. 0: it was not; this is the task's
	// shard, which answers Away if the key may be elsewhere.
	Routed uint64
	// Left says that by that version the key's slot has left this shard, which answers when its copy of the queue says so too.
	Left bool
	// By is a claim of another shard, as that shard has just confirmed it. nil: the claim is in this shard, which checks it.
	By    *Holder
	Queue string // with By, and with Routed
	// Ended is a claim of another shard that no longer holds, according to that shard.
	Ended *Holder
}

// Holder is a claim that holds a once key.
type Holder struct {
	ID     task.ID
	Fence  uint64
	Nonce  uint64
	Worker string
}

// same reports whether two holders are the same claim.
func (h Holder) same(o *Holder) bool {
	return o != nil && h.ID == o.ID && h.Fence == o.Fence && h.Nonce == o.Nonce
}

// State is the state of a once key after a call.
type State uint8

const (
	Free State = 1 + iota // no claim holds it: after Abandon
	Run                   // the caller holds it and should perform the effect
	Done                  // the effect has happened
	Held                  // another claim holds it
	Away                  // the claim is confirmed, and the key must be looked up in the shard of its slot
)

// Answer is the answer to a call.
type Answer struct {
	State      State
	Result     []byte        // of Done
	Until      store.Time    // of Done: when the result is forgotten
	Holder     Holder        // of Held; of Away: the caller's claim
	Far        bool          // of Held: the holder is in another shard, which may know that it no longer holds
	RetryAfter time.Duration // of Held
	Queue      string        // of Away
}

const (
	// farHold is how long a hold of a claim in another shard is kept: longer than any run, so that the claim has ended by then.
	farHold = 2 * task.MaxRun
	// A call on a held key should be retried when the holder's lease ends, but after onceRest at the latest.
	minOnceRest = 50 * time.Millisecond
	onceRest    = time.Second
)

// Do runs a verb on a once key.
//
// Errors: those of a stale claim; wrong_state if the claim finishes a key that it does not hold; ErrSlotMoved if the
// key has no row here and its slot is in another shard; ErrUnknownQueue, also if the copy of the queue is too old for a
// shard that the slot has left.
func Do(r *engine.Round, c *Call) (Answer, error) {
	by, q, err := caller(r, c)
	if err != nil {
		return Answer{}, err
	}
	if c.Left && q.OlderThan(c.Routed) {
		return Answer{}, engine.ErrUnknownQueue
	}
	if c.Routed == 0 && (q.Config().Closed != 0 || q.Config().Moved != 0) {
		return Answer{State: Away, Holder: *by, Queue: q.Name()}, nil
	}
	k := &lookup{r: r, c: c, key: schema.OnceRowKey(c.Hold.Namespace, q.Name(), c.Key), by: *by}
	if !k.read() {
		if c.Routed != 0 && (q.Config().Closed.Has(task.OnceSlot(c.Key)) || c.Routed < q.Config().Moved) {
			return Answer{}, engine.ErrSlotMoved
		}
		return k.absent()
	}
	return k.present()
}

// caller returns the calling claim, and the queue of its task.
func caller(r *engine.Round, c *Call) (*Holder, *engine.Queue, error) {
	if c.By != nil {
		q := r.Queue(c.Hold.Namespace, c.Queue)
		if q == nil {
			return nil, nil, engine.ErrUnknownQueue
		}
		return c.By, q, nil
	}
	x, _, err := r.Held(c.Verb.String(), c.Hold)
	if err != nil {
		return nil, nil, err
	}
	return &Holder{ID: c.Hold.ID, Fence: x.Fence, Nonce: x.Claim.Nonce, Worker: x.Claim.Worker}, r.QueueOf(c.Hold.Namespace, x), nil
}

// String returns the verb as it is named in errors.
func (v Verb) String() string {
	switch v {
	case Begin:
		return "begin once"
	case Finish:
		return "finish once"
	}
	return "abandon once"
}

// lookup is a call in progress.
type lookup struct {
	r   *engine.Round
	c   *Call
	key []byte
	row row // as read
	by  Holder
}

// read reads the key's row; false: there is none, or it has expired. A hold of a claim in this shard lasts as long as the claim.
func (k *lookup) read() bool {
	value, ok := k.r.Tx().Get(k.key)
	if !ok {
		return false
	}
	k.row = schema.Must(decodeRow(value))
	return k.row.until > k.r.Now() || stillHeld(k.r, k.c.Hold.Namespace, &k.row)
}

// stillHeld reports whether a row is a hold of a claim of this shard that still holds its task.
func stillHeld(r *engine.Round, ns string, o *row) bool {
	if o.done || o.far {
		return false
	}
	x, err := r.Exec(ns, o.holder.ID)
	return err == nil && x.ClaimedWith(o.holder.Fence, o.holder.Nonce)
}

// ClaimHolds reports whether a claim of this shard still holds its task. Once false, it stays false.
func ClaimHolds(from store.Reader, ns string, h Holder) bool {
	x, err := schema.ReadExec(from, ns, h.ID)
	return err == nil && x.ClaimedWith(h.Fence, h.Nonce)
}

// absent answers a call on a key without a row.
func (k *lookup) absent() (Answer, error) {
	switch k.c.Verb {
	case Begin:
		return k.take()
	case Finish:
		return Answer{}, k.notHeld("no task holds it: begin it first")
	}
	return Answer{State: Free}, nil
}

// present answers a call on a key with a row.
func (k *lookup) present() (Answer, error) {
	mine := k.row.holder.same(&k.by)
	switch {
	case k.c.Verb == Finish && !mine:
		return Answer{}, k.takenOver()
	case k.row.done:
		return Answer{State: Done, Result: k.row.result, Until: k.row.until}, nil
	case mine && k.c.Verb == Finish:
		return k.finish()
	case mine && k.c.Verb == Abandon:
		k.r.Tx().Delete(k.key)
		k.forgetDeadline()
		return Answer{State: Free}, nil
	case mine:
		return Answer{State: Run}, nil
	case k.c.Verb == Abandon:
		return Answer{State: Free}, nil
	case k.row.holder.ID == k.by.ID && k.row.holder.Fence > k.by.Fence:
		return Answer{}, k.takenOver()
	case k.live():
		return k.held(), nil
	}
	return k.take()
}

// live reports whether the claim that holds the key may still hold its task.
func (k *lookup) live() bool {
	h := &k.row.holder
	switch {
	case h.ID == k.by.ID: // a later claim of the same task: the earlier one has ended
		return false
	case k.row.far:
		return !h.same(k.c.Ended)
	}
	return stillHeld(k.r, k.c.Hold.Namespace, &k.row)
}

func (k *lookup) held() Answer {
	a := Answer{State: Held, Holder: k.row.holder, Far: k.row.far, RetryAfter: onceRest}
	if x, err := k.r.Exec(k.c.Hold.Namespace, a.Holder.ID); err == nil && !a.Far {
		a.RetryAfter = min(max(x.Claim.Until.Sub(k.r.Now()), minOnceRest), onceRest)
	}
	return a
}

// take makes the caller the holder of the key.
func (k *lookup) take() (Answer, error) {
	row := row{holder: k.by, far: k.c.By != nil, until: k.r.Now().Add(farHold)}
	if !row.far {
		x := schema.Must(k.r.Exec(k.c.Hold.Namespace, k.by.ID))
		row.until = max(x.Claim.RunUntil, k.r.Now().Add(engine.LeaderGrace))
	}
	k.set(row)
	return Answer{State: Run}, nil
}

func (k *lookup) finish() (Answer, error) {
	row := row{done: true, holder: k.row.holder, result: k.c.Result, until: k.r.Now().Add(k.c.TTL)}
	k.set(row)
	return Answer{State: Done, Result: row.result, Until: row.until}, nil
}

func (k *lookup) set(row row) {
	k.forgetDeadline()
	k.r.Tx().Set(k.key, row.encode())
	k.r.SetDeadline(row.until, schema.OnOnce, k.c.Hold.Namespace, k.rest())
}

// forgetDeadline removes the deadline of the row that was read, if any.
func (k *lookup) forgetDeadline() {
	if k.row.until != 0 {
		k.r.Tx().Delete(schema.DeadlineKey(k.row.until, schema.OnOnce, k.c.Hold.Namespace, k.rest()))
	}
}

// rest returns the part of the deadline's key that names the row.
func (k *lookup) rest() []byte { return k.key[len(k.c.Hold.Namespace)+2:] }

func (k *lookup) notHeld(why string) error {
	return &task.Error{Code: task.CodeWrongState, Field: "key",
		Message: fmt.Sprintf("%s %q of task %q at fence %d: %s", k.c.Verb, k.c.Key, k.c.Hold.ID, k.c.Hold.Token.Fence, why)}
}

// takenOver returns the error for a claim when another one has the key. A claim of this shard that still holds its task
// never had the key; one of another shard may have ended and lost it.
func (k *lookup) takenOver() error {
	h := &k.row.holder
	how := "is held by"
	if k.row.done {
		how = "was finished by"
	}
	why := fmt.Sprintf("it %s task %q at fence %d", how, h.ID, h.Fence)
	if k.c.By == nil {
		return k.notHeld(why)
	}
	return &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleReclaimed, Holder: h.Worker,
		Message: fmt.Sprintf("%s %q of task %q at fence %d: %s", k.c.Verb, k.c.Key, k.c.Hold.ID, k.c.Hold.Token.Fence, why)}
}

// ends deletes an expired row. A hold whose claim still holds its task is kept: the shard had no leader when the run
// should have ended, and the claim was extended.
func ends(r *engine.Round, d schema.Deadline) {
	key := append(schema.Table(d.Namespace, schema.TableOnce), d.Rest...)
	value, ok := r.Tx().Get(key)
	if !ok {
		return
	}
	row := schema.Must(decodeRow(value))
	switch {
	case row.until > d.At:
	case stillHeld(r, d.Namespace, &row):
		row.until = r.Now().Add(engine.LeaderGrace)
		r.Tx().Set(key, row.encode())
		r.SetDeadline(row.until, schema.OnOnce, d.Namespace, d.Rest)
	default:
		r.Tx().Delete(key)
	}
}

// LastEnd returns when the last of a queue's once keys in some slots expires, of those with a row here; 0: there is none.
func LastEnd(from store.Reader, ns, name string, slots task.SlotSet) (last store.Time, err error) {
	prefix := schema.QueueKey(ns, schema.TableOnce, name)
	from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		if !slots.Has(task.OnceSlot(string(k[len(prefix):]))) {
			return true
		}
		var row row
		row, err = decodeRow(v)
		last = max(last, row.until)
		return err == nil
	})
	return last, err
}

// row is the stored state of a once key.
type row struct {
	done   bool
	holder Holder     // the claim that holds the key, or that performed the effect
	far    bool       // the holder is in another shard
	result []byte     // if done
	until  store.Time // when the row is forgotten
}

func (o row) encode() []byte { return schema.Encode(80+len(o.result), &o, (*row).fields) }

func decodeRow(b []byte) (o row, err error) {
	err = schema.Decode(b, &o, (*row).fields)
	return o, err
}

func (o *row) fields(f *schema.Fields) {
	f.Flag(1, &o.done)
	f.ID(2, &o.holder.ID)
	schema.Num(f, 3, &o.holder.Fence)
	schema.Num(f, 4, &o.holder.Nonce)
	f.Text(5, &o.holder.Worker)
	f.Flag(6, &o.far)
	f.Bytes(7, &o.result)
	schema.Num(f, 8, &o.until)
}

// valid reports whether the row is consistent: it has a holder, and a result only if it is done.
func (o row) valid() bool {
	return o.holder.ID != task.ID{} && (len(o.result) == 0 || o.done && !o.far)
}

// check checks that each row is valid and has a deadline.
func check(c engine.Checker) {
	c.Scan(schema.TableOnce, func(k, v []byte) {
		if o, err := decodeRow(v); err != nil || !o.valid() {
			c.Find("once key %q: %+v (%v)", k, o, err)
		} else {
			c.ExpectRow(schema.DeadlineKey(o.until, schema.OnOnce, c.Namespace(), k[len(c.Namespace())+2:]), nil)
		}
	})
}
