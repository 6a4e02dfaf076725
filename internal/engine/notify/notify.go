package notify

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy gathers what webhooks are to be told of.
var Policy = engine.Policy{
	Seal: seal, Erased: erased, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnNews: due},
}

// What webhooks are to be told of is gathered here, in the very entry that makes it happen: a row for each kind and queue that has
// something to tell, however many tasks die. When its time comes, what it holds becomes a message for the system shard, and the row rests
// for a while before it has the next. Where no webhook wants to hear of it, there is neither a row nor a look for one.

const (
	// settleTime is how long the first of something waits for others to be told with.
	settleTime = 5 * time.Second
	// interval is how often a kind and queue is told of at most.
	interval = time.Minute
	// retryAfter is the pause while what was told last is still on its way.
	retryAfter = 10 * time.Second
)

// subject names what is gathered together.
type subject struct {
	ns    string
	kind  task.NotificationKind
	queue string
}

func (n subject) rest() []byte { return append(append([]byte(n.kind), 0), n.queue...) }
func (n subject) key() []byte {
	return append(append(schema.Table(n.ns, schema.TableNews), n.rest()...), 0)
}

// tally is what was gathered; with a count of 0 it rests.
type tally struct {
	subject
	closes      store.Time // has a deadline
	sent        task.ID    // the message before; zero: none
	count       int64
	first, last store.Time
	fingerprint uint64
	samples     []task.NotificationSample
	dirty       bool
}

func (t *tally) encode() []byte {
	r := schema.NewRow(64)
	r.Num(1, uint64(t.closes))
	r.ID(2, t.sent)
	r.Num(3, uint64(t.count)) // #nosec G115 -- not negative
	r.Num(4, uint64(t.first))
	r.Num(5, uint64(t.last))
	r.Num(6, t.fingerprint)
	for i := range t.samples {
		b, err := json.Marshal(&t.samples[i])
		if err != nil {
			panic(err) // texts, numbers and times always have a form
		}
		r.Bytes(7, b)
	}
	return r
}

func decodeTally(name subject, row []byte) (*tally, error) {
	t := &tally{subject: name}
	var bad error
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			t.closes = store.Time(v)
		case 3:
			t.count = int64(v)
		case 4:
			t.first = store.Time(v)
		case 5:
			t.last = store.Time(v)
		case 6:
			t.fingerprint = v
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 2:
			copy(t.sent[:], b)
		case 7:
			var s task.NotificationSample
			if err := json.Unmarshal(b, &s); err != nil {
				bad = err
			}
			t.samples = append(t.samples, s)
		}
	})
	if err == nil {
		err = bad
	}
	return t, err
}

// memory is a leader's memory of what is gathered.
type memory struct {
	watches map[string]*watch // by namespace; one without rules: nobody wants to hear of anything
	tallies map[subject]*tally
}

func memoryOf(r *engine.Round) *memory { return engine.Memory[memory](r.Leader()) }

// dirtyTallies are those that a round has changed.
type dirtyTallies []*tally

// erased forgets what a namespace has gathered.
func erased(l *engine.Leader, ns string) {
	m := engine.Memory[memory](l)
	delete(m.watches, ns)
	maps.DeleteFunc(m.tallies, func(n subject, _ *tally) bool { return n.ns == ns })
}

// watch is the copy of what a namespace's webhooks want to hear of.
type watch struct {
	task.Watch
	wanted map[subject]bool // what was asked before
}

// maxWanted bounds the answers that a watch remembers: as many as there may be queues.
const maxWanted = 50_000

func (w *watch) wants(n subject) bool {
	if len(w.Rules) == 0 {
		return false
	}
	is, known := w.wanted[n]
	if !known {
		is = w.Wants(n.kind, n.queue)
		if len(w.wanted) >= maxWanted {
			clear(w.wanted)
		}
		w.wanted[n] = is
	}
	return is
}

func watchKey(ns string) []byte { return schema.Table(ns, schema.TableWatch) }

func watchOf(r *engine.Round, ns string) *watch {
	if w := memoryOf(r).watches[ns]; w != nil {
		return w
	}
	w := &watch{wanted: map[subject]bool{}}
	if row, ok := r.Tx().Get(watchKey(ns)); ok {
		schema.Must(decodeWatch(row, &w.Watch))
	}
	if memoryOf(r).watches == nil {
		*memoryOf(r) = memory{map[string]*watch{}, map[subject]*tally{}}
	}
	memoryOf(r).watches[ns] = w
	return w
}

func decodeWatch(row []byte, w *task.Watch) error {
	if len(row) == 0 || row[0] != schema.RowVersion {
		return fmt.Errorf("watch of %d bytes: unknown form", len(row))
	}
	return json.Unmarshal(row[1:], w)
}

// PutWatch makes the shard's copy of what a namespace's webhooks want to hear of at least as new as this.
func PutWatch(r *engine.Round, ns string, to task.Watch) {
	if watchOf(r, ns).Version >= to.Version {
		return
	}
	row, err := json.Marshal(to)
	if err != nil {
		panic(err) // texts and numbers always have a form
	}
	r.Tx().Set(watchKey(ns), append([]byte{schema.RowVersion}, row...))
	memoryOf(r).watches[ns] = &watch{Watch: to, wanted: map[subject]bool{}}
}

// seal gathers what the round has brought about, when all of it is known. Where nothing happened of what webhooks may want to hear
// of, it costs nothing.
func seal(r *engine.Round) {
	if r.Deaths() > 0 {
		gatherDeaths(r)
	}
	for i := range r.Breakers {
		c := &r.Breakers[i]
		s := task.NotificationSample{Type: c.Type, Error: task.FirstLine(c.Error)}
		kind := task.NotifyBreakerOpened
		if c.Closed != "" {
			kind, s.Reason = task.NotifyBreakerClosed, string(c.Closed)
		} else {
			s.Reason = c.Reason()
		}
		gather(r, subject{c.Namespace, kind, c.Queue}, 1, s)
	}
	for i := range r.Happened {
		if h := &r.Happened[i]; h.What == string(task.NotifyScheduleMissed) {
			gather(r, subject{h.Namespace, task.NotifyScheduleMissed, h.Queue}, int64(h.Count),
				task.NotificationSample{Schedule: h.Name, Type: h.Type, Reason: h.Reason, Count: h.Count})
		}
	}
	if changed := engine.HasRoundMemory[dirtyTallies](r); changed != nil {
		for _, t := range *changed {
			t.dirty = false
			r.Tx().Set(t.key(), t.encode())
		}
	}
}

// gatherDeaths counts the dead letters and poisoned tasks of the round. Only the last of each kind and queue are looked at closely.
func gatherDeaths(r *engine.Round) {
	var newest map[*tally][]*engine.Transition
	var name subject
	var gathered *tally // of that name; nil: nobody wants to hear of it
	for i := range r.Transitions {
		t := &r.Transitions[i]
		if !t.Dies() {
			continue
		}
		of := subject{t.Namespace, task.NotifyDead, t.To.Queue}
		if t.To.State == task.Poisoned {
			of.kind = task.NotifyPoisoned
		}
		if of != name {
			name, gathered = of, tallyOf(r, of)
		}
		if gathered == nil {
			continue
		}
		add(r, gathered, 1)
		if newest == nil {
			newest = map[*tally][]*engine.Transition{}
		}
		some := append(newest[gathered], t)
		newest[gathered] = some[max(0, len(some)-task.NotificationSamples):]
	}
	for gathered, some := range newest {
		for _, t := range some {
			gathered.samples = append(gathered.samples, task.NotificationSample{At: r.Now().Time(), Task: t.ID.String(), Type: t.To.Type, Reason: t.To.Reason,
				Error: task.FirstLine(t.Failure.Message), Attempt: t.Attempt()})
		}
		gathered.samples = task.LastSamples(gathered.samples)
		last := some[len(some)-1]
		gathered.fingerprint = fingerprint.Of(last.To.Type, fingerprint.Normalise(last.Failure.Message))
	}
}

// gather adds something to what is told of, if any webhook wants to hear of it.
func gather(r *engine.Round, name subject, n int64, s task.NotificationSample) {
	if t := tallyOf(r, name); t != nil {
		s.At = r.Now().Time()
		add(r, t, n)
		t.samples = task.LastSamples(append(t.samples, s))
	}
}

// tallyOf is what is gathered under a name; nil: no webhook wants to hear of it.
func tallyOf(r *engine.Round, name subject) *tally {
	if !watchOf(r, name.ns).wants(name) {
		return nil
	}
	t := readTally(r, name)
	if t == nil {
		t = &tally{subject: name, closes: r.Now().Add(settleTime)}
		memoryOf(r).tallies[name] = t
		r.SetDeadline(t.closes, schema.OnNews, name.ns, name.rest())
	}
	return t
}

// readTally reads what is gathered under a name; nil: there is no row.
func readTally(r *engine.Round, name subject) *tally {
	if t := memoryOf(r).tallies[name]; t != nil {
		return t
	}
	row, ok := r.Tx().Get(name.key())
	if !ok {
		return nil
	}
	t, err := decodeTally(name, row)
	schema.Must(err)
	watchOf(r, name.ns) // has room made for tallies
	memoryOf(r).tallies[name] = t
	return t
}

func add(r *engine.Round, t *tally, n int64) {
	if t.count == 0 {
		t.first = r.Now()
	}
	t.count += n
	t.last = r.Now()
	touchTally(r, t)
}

// touchTally has the row written when the round is sealed: once, however many tasks died.
func touchTally(r *engine.Round, t *tally) {
	if !t.dirty {
		t.dirty = true
		changed := engine.RoundMemory[dirtyTallies](r)
		*changed = append(*changed, t)
	}
}

// due sends what was gathered to the system shard, or forgets a row that has rested. What was sent before must have arrived, so that
// the system shard hears of each in its order, and knows one that comes twice.
func due(r *engine.Round, d schema.Deadline) {
	kind, queue, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Must(schema.ErrDeadline(d.Rest))
	}
	name := subject{d.Namespace, task.NotificationKind(kind), string(queue)}
	t := readTally(r, name)
	if t == nil || t.closes != d.At {
		return
	}
	_, waits := outbox.Read(r.Tx(), name.ns, t.sent)
	switch {
	case waits:
		t.closes = r.Now().Add(retryAfter)
	case t.count == 0:
		delete(memoryOf(r).tallies, name)
		r.Tx().Delete(name.key())
		return
	default:
		t.closes = r.Now().Add(interval)
		t.sent = t.message()
		r.Send(name.ns, &outbox.Message{Request: t.sent, Notification: t.told(int64(r.Now()))})
		t.count, t.first, t.last, t.fingerprint, t.samples = 0, 0, 0, 0, nil
	}
	r.SetDeadline(t.closes, schema.OnNews, name.ns, name.rest())
	touchTally(r, t)
}

// told is what was gathered, as it is told.
func (t *tally) told(seq int64) *task.Notification {
	n := &task.Notification{Kind: t.kind, Namespace: t.ns, Queue: t.queue, Count: t.count, First: t.first.Time(), Last: t.last.Time(),
		Samples: slices.Clone(t.samples), Seq: seq}
	if t.fingerprint != 0 {
		n.Fingerprint = fmt.Sprintf("%016x", t.fingerprint)
	}
	return n
}

// message names what is told as a message: nothing is gathered under a name twice at the same time.
func (t *tally) message() task.ID {
	var name task.ID
	binary.BigEndian.PutUint64(name[8:], xxhash.Sum64(t.key()))
	return engine.RequestOf(name, uint64(t.first))
}
