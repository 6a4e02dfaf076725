package engine

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A once key stands for an effect that the tasks of a queue want to have only once, whichever of them brings it about. Its row
// says either who holds it, while the effect is under way, or what came of it, until its time is over.
//
// A hold has no lease of its own: it is worth what the claim is that made it. Whoever asks looks whether that claim still
// holds, so that nothing needs to be given back, extended or cleaned up in time, and a hold can't outlive a crash.
//
//	begin ─▶ held by the claim ──finish──▶ done ──its time is over──▶ no row
//	            │         ▲
//	            │         └─ begin by another claim, once this one has ended
//	            └─ abandon ─▶ no row
//
// Where the task and the key lie in one shard, all of that is decided in one entry. If they don't, the router has the task's
// shard confirm the claim first, and asks the holder's shard whether a hold is worth anything: that a claim has ended stays
// true for ever.

// OnceVerb is what a claim does with a once key.
type OnceVerb uint8

// The verbs. Each may be repeated: it gets the same answer.
const (
	OnceBegin   OnceVerb = 1 + iota // hold the key, unless the effect is there, or another holds it
	OnceFinish                      // the effect is there
	OnceAbandon                     // it is not, and somebody else may try
)

// OnceCall is a verb on a once key. The key, result and times are checked.
type OnceCall struct {
	Verb   OnceVerb
	Hold   Hold
	Key    string
	Result []byte        // of OnceFinish: a JSON value
	TTL    time.Duration // of OnceFinish: how long the result is kept

	// Routed is the version of the queue by which this shard was chosen for the key. 0: it was not, the shard is the task's, and
	// answers OnceAway if the key may lie elsewhere.
	Routed uint64
	// By is the claim as its own shard has just confirmed it, which is another one. nil: it lies in this shard, which looks.
	By    *OnceHolder
	Queue string // with By
	// Ended is a claim of another shard that holds no more, by that shard's word.
	Ended *OnceHolder
}

// OnceHolder is a claim that holds a once key.
type OnceHolder struct {
	ID     task.ID
	Fence  uint64
	Nonce  uint64
	Worker string
}

// same says whether two are one claim.
func (h OnceHolder) same(o *OnceHolder) bool {
	return o != nil && h.ID == o.ID && h.Fence == o.Fence && h.Nonce == o.Nonce
}

// OnceState is how a once key stands after a call.
type OnceState uint8

const (
	OnceFree OnceState = 1 + iota // nobody holds it: after OnceAbandon
	OnceRun                       // the caller holds it: it is to bring the effect about
	OnceDone                      // the effect is there
	OnceHeld                      // another claim holds it
	OnceAway                      // the claim holds its task, and the key is to be looked for by the queue's slots
)

// OnceAnswer tells how a once key stands.
type OnceAnswer struct {
	State      OnceState
	Result     []byte        // of OnceDone
	Until      store.Time    // of OnceDone: when the result is forgotten
	Holder     OnceHolder    // of OnceHeld; of OnceAway: the caller's claim
	Far        bool          // of OnceHeld: the holder lies in another shard, which may know that it holds no more
	RetryAfter time.Duration // of OnceHeld
	Queue      string        // of OnceAway
}

const (
	// farHold is how long a hold by a claim of another shard is kept: longer than any run, so that the claim has ended by then.
	farHold = 2 * task.MaxRun
	// A key that is held is worth asking for again when the holder's lease ends, but not more seldom than after onceRest.
	minOnceRest = 50 * time.Millisecond
	onceRest    = time.Second
)

// Once runs a verb on a once key.
//
// Errors: those of a stale claim; wrong_state for a finish of what the claim does not hold; ErrSlotMoved if the key has no row
// here and its slot lies in another shard; ErrUnknownQueue.
func Once(r *Round, c *OnceCall) (OnceAnswer, error) {
	by, q, err := r.onceCaller(c)
	if err != nil {
		return OnceAnswer{}, err
	}
	if c.Routed == 0 && (q.config.Closed != 0 || q.config.Moved != 0) {
		return OnceAnswer{State: OnceAway, Holder: *by, Queue: q.name}, nil
	}
	k := &onceKey{r: r, c: c, key: schema.OnceRowKey(c.Hold.Namespace, q.name, c.Key), by: *by}
	if !k.read() {
		if c.Routed != 0 && (q.config.Closed.Has(task.OnceSlot(c.Key)) || c.Routed < q.config.Moved) {
			return OnceAnswer{}, ErrSlotMoved
		}
		return k.absent()
	}
	return k.present()
}

// onceCaller is the claim that calls, and the queue of its task.
func (r *Round) onceCaller(c *OnceCall) (*OnceHolder, *queue, error) {
	if c.By != nil {
		q := r.queue(c.Hold.Namespace, c.Queue)
		if q == nil {
			return nil, nil, ErrUnknownQueue
		}
		return c.By, q, nil
	}
	x, _, err := r.held(c.Verb.String(), c.Hold)
	if err != nil {
		return nil, nil, err
	}
	return &OnceHolder{ID: c.Hold.ID, Fence: x.Fence, Nonce: x.Claim.Nonce, Worker: x.Claim.Worker}, r.queueOf(c.Hold.Namespace, x), nil
}

// String is the verb as it stands in a refusal.
func (v OnceVerb) String() string {
	switch v {
	case OnceBegin:
		return "begin once"
	case OnceFinish:
		return "finish once"
	}
	return "abandon once"
}

// onceKey is a verb on one key.
type onceKey struct {
	r   *Round
	c   *OnceCall
	key []byte
	row onceRow // as it was read
	by  OnceHolder
}

// read finds the key's row, unless its time is over. A hold of a claim that lies in this shard lasts as long as the claim.
func (k *onceKey) read() bool {
	value, ok := k.r.tx.Get(k.key)
	if !ok {
		return false
	}
	var err error
	k.row, err = decodeOnce(value)
	schema.Must(err)
	return k.row.until > k.r.now || k.r.onceHolds(k.c.Hold.Namespace, &k.row)
}

// onceHolds says whether a row is a hold by a claim of this shard that still holds.
func (r *Round) onceHolds(ns string, o *onceRow) bool {
	if o.done || o.far {
		return false
	}
	x, err := r.exec(ns, o.holder.ID)
	return err == nil && holds(x, &o.holder)
}

func holds(x *schema.Exec, h *OnceHolder) bool {
	return x.State == task.Claimed && x.Fence == h.Fence && x.Claim.Nonce == h.Nonce
}

// OnceHolds says whether a claim of this shard still holds its task. What is no more stays so.
func OnceHolds(from store.Reader, ns string, h OnceHolder) bool {
	x, err := schema.ReadExec(from, ns, h.ID)
	return err == nil && holds(x, &h)
}

// absent answers if there is nothing to know of the key.
func (k *onceKey) absent() (OnceAnswer, error) {
	switch k.c.Verb {
	case OnceBegin:
		return k.take()
	case OnceFinish:
		return OnceAnswer{}, k.notHeld("nobody holds it: begin it first")
	}
	return OnceAnswer{State: OnceFree}, nil
}

// present answers by the key's row.
func (k *onceKey) present() (OnceAnswer, error) {
	mine := k.row.holder.same(&k.by)
	switch {
	case k.c.Verb == OnceFinish && !mine:
		return OnceAnswer{}, k.takenOver()
	case k.row.done:
		return OnceAnswer{State: OnceDone, Result: k.row.result, Until: k.row.until}, nil
	case mine && k.c.Verb == OnceFinish:
		return k.finish()
	case mine && k.c.Verb == OnceAbandon:
		k.r.tx.Delete(k.key)
		k.forgetDeadline()
		return OnceAnswer{State: OnceFree}, nil
	case mine:
		return OnceAnswer{State: OnceRun}, nil
	case k.c.Verb == OnceAbandon:
		return OnceAnswer{State: OnceFree}, nil
	case k.row.holder.ID == k.by.ID && k.row.holder.Fence > k.by.Fence:
		return OnceAnswer{}, k.takenOver()
	case k.live():
		return k.held(), nil
	}
	return k.take()
}

// live says whether the claim that holds the key may still hold its task.
func (k *onceKey) live() bool {
	h := &k.row.holder
	switch {
	case h.ID == k.by.ID: // a later claim of the same task: the earlier one has ended
		return false
	case k.row.far:
		return !h.same(k.c.Ended)
	}
	return k.r.onceHolds(k.c.Hold.Namespace, &k.row)
}

func (k *onceKey) held() OnceAnswer {
	a := OnceAnswer{State: OnceHeld, Holder: k.row.holder, Far: k.row.far, RetryAfter: onceRest}
	if x, err := k.r.exec(k.c.Hold.Namespace, a.Holder.ID); err == nil && !a.Far {
		a.RetryAfter = min(max(x.Claim.Until.Sub(k.r.now), minOnceRest), onceRest)
	}
	return a
}

// take makes the caller the holder.
func (k *onceKey) take() (OnceAnswer, error) {
	row := onceRow{holder: k.by, far: k.c.By != nil, until: k.r.now.Add(farHold)}
	if !row.far {
		x, err := k.r.exec(k.c.Hold.Namespace, k.by.ID)
		schema.Must(err)
		row.until = max(x.Claim.RunUntil, k.r.now.Add(leaderGrace))
	}
	k.set(row)
	return OnceAnswer{State: OnceRun}, nil
}

func (k *onceKey) finish() (OnceAnswer, error) {
	row := onceRow{done: true, holder: k.row.holder, result: k.c.Result, until: k.r.now.Add(k.c.TTL)}
	k.set(row)
	return OnceAnswer{State: OnceDone, Result: row.result, Until: row.until}, nil
}

func (k *onceKey) set(row onceRow) {
	k.forgetDeadline()
	k.r.tx.Set(k.key, row.encode())
	k.r.remind(row.until, schema.OnOnce, k.c.Hold.Namespace, k.rest())
}

// forgetDeadline removes the deadline of the row as it was read, if it was.
func (k *onceKey) forgetDeadline() {
	if k.row.until != 0 {
		k.r.tx.Delete(schema.DeadlineKey(k.row.until, schema.OnOnce, k.c.Hold.Namespace, k.rest()))
	}
}

// rest names the row in its deadline.
func (k *onceKey) rest() []byte { return k.key[len(k.c.Hold.Namespace)+2:] }

func (k *onceKey) notHeld(why string) error {
	return &task.Error{Code: task.CodeWrongState, Field: "key",
		Message: fmt.Sprintf("%s %q of task %q at fence %d: %s", k.c.Verb, k.c.Key, k.c.Hold.ID, k.c.Hold.Token.Fence, why)}
}

// takenOver refuses a claim because another one has the key. One of this shard that still holds its task never had it; one of
// another shard may have lost it after its end.
func (k *onceKey) takenOver() error {
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

// onceEnds forgets a row whose time is over. A hold whose claim still holds its task is kept on: the shard had no leader when
// the run was to end, and the claim got a last stretch.
func (r *Round) onceEnds(d schema.Deadline) {
	key := append(schema.Table(d.Namespace, schema.TableOnce), d.Rest...)
	value, ok := r.tx.Get(key)
	if !ok {
		return
	}
	row, err := decodeOnce(value)
	schema.Must(err)
	switch {
	case row.until > d.At:
	case r.onceHolds(d.Namespace, &row):
		row.until = r.now.Add(leaderGrace)
		r.tx.Set(key, row.encode())
		r.remind(row.until, schema.OnOnce, d.Namespace, d.Rest)
	default:
		r.tx.Delete(key)
	}
}

// OnceUntil is when the last of a queue's once keys in some slots ends that has a row here; 0: there is none.
func OnceUntil(from store.Reader, ns, name string, slots task.SlotSet) (last store.Time, err error) {
	prefix := schema.QueueKey(ns, schema.TableOnce, name)
	from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		if !slots.Has(task.OnceSlot(string(k[len(prefix):]))) {
			return true
		}
		var row onceRow
		row, err = decodeOnce(v)
		last = max(last, row.until)
		return err == nil
	})
	return last, err
}

// onceRow is what is known of a once key.
type onceRow struct {
	done   bool
	holder OnceHolder // the claim that holds the key, or that brought the effect about
	far    bool       // the holder lies in another shard
	result []byte     // if done
	until  store.Time // when the row is forgotten
}

func (o onceRow) encode() []byte {
	r := schema.NewRow(80 + len(o.result))
	r.Num(1, schema.Flag(o.done))
	r.Bytes(2, o.holder.ID[:])
	r.Num(3, o.holder.Fence)
	r.Num(4, o.holder.Nonce)
	r.Text(5, o.holder.Worker)
	r.Num(6, schema.Flag(o.far))
	r.Bytes(7, o.result)
	r.Num(8, uint64(o.until))
	return r
}

func decodeOnce(row []byte) (o onceRow, err error) {
	err = schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			o.done = v != 0
		case 3:
			o.holder.Fence = v
		case 4:
			o.holder.Nonce = v
		case 6:
			o.far = v != 0
		case 8:
			o.until = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 2:
			copy(o.holder.ID[:], b)
		case 5:
			o.holder.Worker = string(b)
		case 7:
			o.result = b
		}
	})
	return o, err
}
