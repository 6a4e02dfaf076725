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

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy gathers events for webhooks.
var Policy = engine.Policy{
	Seal: seal, Erased: erased, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnNotification: due},
}

// Events for webhooks are gathered here, in the very log entry that causes them: one row, a tally, for each kind and
// queue with events, however many tasks die. When the tally closes, its contents become a message for the system shard,
// and the row pauses for a while before it sends the next. Without a webhook that subscribes to an event there is
// neither a row nor a read.

const (
	// settleTime is how long the first event waits for others to be sent with it.
	settleTime = 5 * time.Second
	// interval is the minimum time between two notifications of a kind and queue.
	interval = time.Minute
	// retryAfter is the delay while the last notification is still on its way.
	retryAfter = 10 * time.Second
)

// subject identifies a tally.
type subject struct {
	ns    string
	kind  task.NotificationKind
	queue string
}

func (n subject) rest() []byte { return append(append([]byte(n.kind), 0), n.queue...) }
func (n subject) key() []byte {
	return append(append(schema.Table(n.ns, schema.TableNotification), n.rest()...), 0)
}

// tally holds the events gathered of a subject; with a count of 0 it is pausing.
type tally struct {
	subject
	closes      store.Time // its deadline
	sent        task.ID    // the previous message; zero: none
	count       int64
	first, last store.Time
	fingerprint uint64
	samples     []task.NotificationSample
	dirty       bool
}

func (t *tally) encode() []byte { return schema.Encode(64, t, (*tally).fields) }

func decodeTally(name subject, row []byte) (*tally, error) {
	t := &tally{subject: name}
	return t, schema.Decode(row, t, (*tally).fields)
}

func (t *tally) fields(f *schema.Fields) {
	schema.Num(f, 1, &t.closes)
	f.ID(2, &t.sent)
	schema.Num(f, 3, &t.count)
	schema.Num(f, 4, &t.first)
	schema.Num(f, 5, &t.last)
	schema.Num(f, 6, &t.fingerprint)
	schema.JSONs(f, 7, &t.samples)
}

// memory is what a leader remembers of watches and tallies.
type memory struct {
	watches map[string]*watch // by namespace; one without rules subscribes to nothing
	tallies map[subject]*tally
}

func memoryOf(r *engine.Round) *memory { return engine.Memory[memory](r.Leader()) }

// dirtyTallies are the tallies that a round has changed.
type dirtyTallies []*tally

// erased drops the tallies and the watch of a namespace from memory.
func erased(l *engine.Leader, ns string) {
	m := engine.Memory[memory](l)
	delete(m.watches, ns)
	maps.DeleteFunc(m.tallies, func(n subject, _ *tally) bool { return n.ns == ns })
}

// watch is the shard's copy of what a namespace's webhooks subscribe to.
type watch struct {
	task.Watch
	wanted map[subject]bool // answers of Wants
}

// maxWanted bounds the answers that a watch remembers: about one for each possible queue.
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
		watch, err := decodeWatch(row)
		w.Watch = schema.MustRow(watchKey(ns), watch, err)
	}
	if memoryOf(r).watches == nil {
		*memoryOf(r) = memory{map[string]*watch{}, map[subject]*tally{}}
	}
	memoryOf(r).watches[ns] = w
	return w
}

func decodeWatch(row []byte) (w task.Watch, err error) {
	if len(row) == 0 || row[0] != schema.RowVersion {
		return w, fmt.Errorf("watch of %d bytes: unknown format", len(row))
	}
	return w, json.Unmarshal(row[1:], &w)
}

// PutWatch updates the shard's copy of what a namespace's webhooks subscribe to, unless it is as new already.
func PutWatch(r *engine.Round, ns string, to task.Watch) {
	if watchOf(r, ns).Version >= to.Version {
		return
	}
	row, err := json.Marshal(to)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	engine.Begin(r, ns, to.Since)
	r.Tx().Set(watchKey(ns), append([]byte{schema.RowVersion}, row...))
	memoryOf(r).watches[ns] = &watch{Watch: to, wanted: map[subject]bool{}}
}

// seal gathers the events of the round, once all of them are known. It costs nothing if there are none.
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
	for i := range r.Events {
		if h := &r.Events[i]; h.Kind == string(task.NotifyScheduleMissed) {
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

// gatherDeaths counts the dead letters and poisoned tasks of the round. Only the last ones of each kind and queue become samples.
func gatherDeaths(r *engine.Round) {
	var newest map[*tally][]*engine.Transition
	var name subject
	var gathered *tally // of that name; nil: no webhook subscribes to it
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
		items := append(newest[gathered], t)
		newest[gathered] = items[max(0, len(items)-task.NotificationSamples):]
	}
	for gathered, items := range newest {
		for _, t := range items {
			gathered.samples = append(gathered.samples, task.NotificationSample{At: r.Now().Time(), Task: t.ID.String(), Type: t.To.Type,
				Reason: t.To.Reason, Error: task.FirstLine(t.Failure.Message), Attempt: t.Attempt()})
		}
		gathered.samples = task.LastSamples(gathered.samples)
		last := items[len(items)-1]
		gathered.fingerprint = fingerprint.Of(last.To.Type, fingerprint.Normalize(last.Failure.Message))
	}
}

// gather adds n events with one sample to a tally, if a webhook subscribes to it.
func gather(r *engine.Round, name subject, n int64, s task.NotificationSample) {
	if t := tallyOf(r, name); t != nil {
		s.At = r.Now().Time()
		add(r, t, n)
		t.samples = task.LastSamples(append(t.samples, s))
	}
}

// tallyOf returns the tally of a subject, creating it if need be; nil: no webhook subscribes to it.
func tallyOf(r *engine.Round, name subject) *tally {
	if !watchOf(r, name.ns).wants(name) {
		return nil
	}
	t := readTally(r, name)
	if t == nil {
		t = &tally{subject: name, closes: r.Now().Add(settleTime)}
		memoryOf(r).tallies[name] = t
		r.SetDeadline(t.closes, schema.OnNotification, name.ns, name.rest())
	}
	return t
}

// readTally reads the tally of a subject; nil: there is none.
func readTally(r *engine.Round, name subject) *tally {
	if t := memoryOf(r).tallies[name]; t != nil {
		return t
	}
	row, ok := r.Tx().Get(name.key())
	if !ok {
		return nil
	}
	t, err := decodeTally(name, row)
	t = schema.MustRow(name.key(), t, err)
	watchOf(r, name.ns) // allocates the map of tallies
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

// touchTally makes seal write the row, once for however many events.
func touchTally(r *engine.Round, t *tally) {
	if !t.dirty {
		t.dirty = true
		changed := engine.RoundMemory[dirtyTallies](r)
		*changed = append(*changed, t)
	}
}

// due sends a tally to the system shard, or deletes one whose pause is over without new events. The previous message
// must have been delivered, so that the system shard gets them in order and can detect repeats.
func due(r *engine.Round, d schema.Deadline) {
	kind, queue, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Damaged(schema.ErrDeadline(d.Rest))
	}
	name := subject{d.Namespace, task.NotificationKind(kind), string(queue)}
	t := readTally(r, name)
	if t == nil || t.closes != d.At {
		return
	}
	_, waits := schema.ReadMessage(r.Tx(), name.ns, t.sent)
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
		r.Send(name.ns, &schema.Message{Request: t.sent, Notification: t.notification(int64(r.Now()))})
		t.count, t.first, t.last, t.fingerprint, t.samples = 0, 0, 0, 0, nil
	}
	r.SetDeadline(t.closes, schema.OnNotification, name.ns, name.rest())
	touchTally(r, t)
}

// notification returns the notification to send.
func (t *tally) notification(seq int64) *task.Notification {
	n := &task.Notification{Kind: t.kind, Namespace: t.ns, Queue: t.queue, Count: t.count, First: t.first.Time(), Last: t.last.Time(),
		Samples: slices.Clone(t.samples), Seq: seq}
	if t.fingerprint != 0 {
		n.Fingerprint = fmt.Sprintf("%016x", t.fingerprint)
	}
	return n
}

// message returns the request id of the message. It is unique because a subject has only one tally that begins at a time.
func (t *tally) message() task.ID {
	var name task.ID
	binary.BigEndian.PutUint64(name[8:], xxhash.Sum64(t.key()))
	return task.RequestOf(name, uint64(t.first))
}
