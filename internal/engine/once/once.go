package once

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy lets effects happen once.
var Policy = engine.Policy{
	Check: check,
	Due:   map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnOnce: ends},
}

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

// Verb is what a claim does with a once key.
type Verb uint8

// The verbs. Each may be repeated: it gets the same answer.
const (
	Begin   Verb = 1 + iota // hold the key, unless the effect is there, or another holds it
	Finish                  // the effect is there
	Abandon                 // it is not, and somebody else may try
)

// Call is a verb on a once key. The key, result and times are checked.
type Call struct {
	Verb   Verb
	Hold   engine.Hold
	Key    string
	Result []byte        // of OnceFinish: a JSON value
	TTL    time.Duration // of OnceFinish: how long the result is kept

	// Routed is the version of the queue by which this shard was chosen for the key. 0: it was not, the shard is the task's, and
	// answers OnceAway if the key may lie elsewhere.
	Routed uint64
	// By is the claim as its own shard has just confirmed it, which is another one. nil: it lies in this shard, which looks.
	By    *Holder
	Queue string // with By
	// Ended is a claim of another shard that holds no more, by that shard's word.
	Ended *Holder
}

// Holder is a claim that holds a once key.
type Holder struct {
	ID     task.ID
	Fence  uint64
	Nonce  uint64
	Worker string
}

// same says whether two are one claim.
func (h Holder) same(o *Holder) bool {
	return o != nil && h.ID == o.ID && h.Fence == o.Fence && h.Nonce == o.Nonce
}

// State is how a once key stands after a call.
type State uint8

const (
	Free State = 1 + iota // nobody holds it: after OnceAbandon
	Run                   // the caller holds it: it is to bring the effect about
	Done                  // the effect is there
	Held                  // another claim holds it
	Away                  // the claim holds its task, and the key is to be looked for by the queue's slots
)

// Answer tells how a once key stands.
type Answer struct {
	State      State
	Result     []byte        // of OnceDone
	Until      store.Time    // of OnceDone: when the result is forgotten
	Holder     Holder        // of OnceHeld; of OnceAway: the caller's claim
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

// Do runs a verb on a once key.
//
// Errors: those of a stale claim; wrong_state for a finish of what the claim does not hold; ErrSlotMoved if the key has no row
// here and its slot lies in another shard; ErrUnknownQueue.
func Do(r *engine.Round, c *Call) (Answer, error) {
	by, q, err := caller(r, c)
	if err != nil {
		return Answer{}, err
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

// caller is the claim that calls, and the queue of its task.
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

// String is the verb as it stands in a refusal.
func (v Verb) String() string {
	switch v {
	case Begin:
		return "begin once"
	case Finish:
		return "finish once"
	}
	return "abandon once"
}

// lookup is a verb on one key.
type lookup struct {
	r   *engine.Round
	c   *Call
	key []byte
	row row // as it was read
	by  Holder
}

// read finds the key's row, unless its time is over. A hold of a claim that lies in this shard lasts as long as the claim.
func (k *lookup) read() bool {
	value, ok := k.r.Tx().Get(k.key)
	if !ok {
		return false
	}
	var err error
	k.row, err = decodeRow(value)
	schema.Must(err)
	return k.row.until > k.r.Now() || stillHeld(k.r, k.c.Hold.Namespace, &k.row)
}

// stillHeld says whether a row is a hold by a claim of this shard that still holds.
func stillHeld(r *engine.Round, ns string, o *row) bool {
	if o.done || o.far {
		return false
	}
	x, err := r.Exec(ns, o.holder.ID)
	return err == nil && x.ClaimedWith(o.holder.Fence, o.holder.Nonce)
}

// ClaimHolds says whether a claim of this shard still holds its task. What is no more stays so.
func ClaimHolds(from store.Reader, ns string, h Holder) bool {
	x, err := schema.ReadExec(from, ns, h.ID)
	return err == nil && x.ClaimedWith(h.Fence, h.Nonce)
}

// absent answers if there is nothing to know of the key.
func (k *lookup) absent() (Answer, error) {
	switch k.c.Verb {
	case Begin:
		return k.take()
	case Finish:
		return Answer{}, k.notHeld("nobody holds it: begin it first")
	}
	return Answer{State: Free}, nil
}

// present answers by the key's row.
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

// live says whether the claim that holds the key may still hold its task.
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

// take makes the caller the holder.
func (k *lookup) take() (Answer, error) {
	row := row{holder: k.by, far: k.c.By != nil, until: k.r.Now().Add(farHold)}
	if !row.far {
		x, err := k.r.Exec(k.c.Hold.Namespace, k.by.ID)
		schema.Must(err)
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

// forgetDeadline removes the deadline of the row as it was read, if it was.
func (k *lookup) forgetDeadline() {
	if k.row.until != 0 {
		k.r.Tx().Delete(schema.DeadlineKey(k.row.until, schema.OnOnce, k.c.Hold.Namespace, k.rest()))
	}
}

// rest names the row in its deadline.
func (k *lookup) rest() []byte { return k.key[len(k.c.Hold.Namespace)+2:] }

func (k *lookup) notHeld(why string) error {
	return &task.Error{Code: task.CodeWrongState, Field: "key",
		Message: fmt.Sprintf("%s %q of task %q at fence %d: %s", k.c.Verb, k.c.Key, k.c.Hold.ID, k.c.Hold.Token.Fence, why)}
}

// takenOver refuses a claim because another one has the key. One of this shard that still holds its task never had it; one of
// another shard may have lost it after its end.
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

// ends forgets a row whose time is over. A hold whose claim still holds its task is kept on: the shard had no leader when
// the run was to end, and the claim got a last stretch.
func ends(r *engine.Round, d schema.Deadline) {
	key := append(schema.Table(d.Namespace, schema.TableOnce), d.Rest...)
	value, ok := r.Tx().Get(key)
	if !ok {
		return
	}
	row, err := decodeRow(value)
	schema.Must(err)
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

// LastEnd is when the last of a queue's once keys in some slots ends that has a row here; 0: there is none.
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

// row is what is known of a once key.
type row struct {
	done   bool
	holder Holder     // the claim that holds the key, or that brought the effect about
	far    bool       // the holder lies in another shard
	result []byte     // if done
	until  store.Time // when the row is forgotten
}

func (o row) encode() []byte {
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

func decodeRow(row []byte) (o row, err error) {
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

// sound says whether the parts of a row fit together: somebody holds the key, or did, and only the end brings a result.
func (o row) sound() bool {
	return o.holder.ID != task.ID{} && (len(o.result) == 0 || o.done && !o.far)
}

// check: a row says who holds the key or what came of it, and has a deadline.
func check(c engine.Checker) {
	c.Scan(schema.TableOnce, func(k, v []byte) {
		if o, err := decodeRow(v); err != nil || !o.sound() {
			c.Find("once key %q: %+v (%v)", k, o, err)
		} else {
			c.ExpectRow(schema.DeadlineKey(o.until, schema.OnOnce, c.Namespace(), k[len(c.Namespace())+2:]), nil)
		}
	})
}
