package engine

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// View is everything known of a task.
type View struct {
	*Envelope
	Exec       *Exec
	Result     Result
	Checkpoint []byte
	Attempts   []*Attempt // those that have ended, the oldest first
	Settings   task.Settings
	WaitsFor   task.ID    // the task that holds its unique key and is claimed; zero: none
	Then       []Follower // what follows it
}

// MaxAttempts is the number of the attempt that would be the last one.
func (v *View) MaxAttempts() int {
	if v.Exec.MaxAttempts > 0 {
		return v.Exec.Exhausted + v.Exec.MaxAttempts
	}
	return v.Exec.Exhausted + v.Settings.MaxAttempts
}

// LastFailure is what the last failed attempt said.
func (v *View) LastFailure() Failure {
	for i := len(v.Attempts) - 1; i >= 0; i-- {
		if f := v.Attempts[i].Failure; f != (Failure{}) {
			return f
		}
	}
	return Failure{}
}

// Show reads a task with all that belongs to it.
func Show(from store.Reader, ns string, id task.ID) (*View, error) {
	x, err := readExec(from, ns, id)
	if err != nil {
		return nil, err
	}
	return show(from, ns, id, x), nil
}

func show(from store.Reader, ns string, id task.ID, x *Exec) *View {
	v := &View{Envelope: readEnvelope(from, ns, id), Exec: x, Settings: readSettings(from, ns, x.Queue), Attempts: readAttempts(from, ns, id)}
	if x.State == task.Succeeded {
		v.Attempts = append(v.Attempts, x.success())
		if row, ok := from.Get(idKey(ns, tabResult, id)); ok {
			var err error
			v.Result, err = decodeResult(row)
			corrupt(err)
		}
	}
	if x.Role == Next {
		u, _ := readUnique(from, ns, x.Queue, x.Unique.Key)
		v.WaitsFor = u.holder
	}
	if x.Ties != nil && x.Ties.Followed {
		v.Then = followersOf(from, ns, id, x)
	}
	if x.Checkpointed {
		v.Checkpoint, _ = from.Get(idKey(ns, tabCheckpoint, id))
	}
	return v
}

func readAttempts(from store.Reader, ns string, id task.ID) (log []*Attempt) {
	prefix := idKey(ns, tabAttempt, id)
	from.Scan(prefix, after(prefix), func(k, v []byte) bool {
		a, err := decodeAttempt(binary.BigEndian.Uint64(k[len(k)-8:]), v)
		corrupt(err)
		log = append(log, a)
		return true
	})
	return log
}

// readSettings are the queue's, or the defaults for a queue that is gone.
func readSettings(from store.Reader, ns, queue string) task.Settings {
	row, ok := from.Get(queueKey(ns, tabQueue, queue))
	if !ok {
		return task.DefaultSettings()
	}
	c, err := task.DecodeQueueConfig(row)
	corrupt(err)
	return c.Settings
}

// Filter selects tasks: what is set must match.
type Filter struct {
	Queue         string
	States        []task.State // any of them
	Type          string
	Tag           string
	Key           string
	Worker        string
	Error         string // part of the last failure's message
	Fingerprint   string `json:",omitempty"` // of a Group, by PrintText
	CreatedAfter  store.Time
	CreatedBefore store.Time
	Text          string // part of the payload
	Not           string // a queue whose tasks are not selected
	// Within are patterns of the queues that the caller is limited to; nil: all.
	Within []string `json:",omitempty"`
}

// Page is what a list answers: it may be empty although there is more.
type Page struct {
	Tasks []*View
	Next  []byte // where the next page begins; nil at the end
}

// Bounds of one page of a list, beside its number of tasks. A page that has no task yet is ended by scanLimit only.
const (
	scanLimit = 10_000  // rows looked at
	pageBytes = 8 << 20 // of rows read, payloads included: each task of a page is held in memory whole
)

// List reads a page of up to limit tasks, newest first. Cursor is Next of the page before, or nil.
//
// A page ends early, and Next goes on from there, once it has a task and about 8 MiB were read, of payloads, results and
// attempts too; the last task may go beyond. So a page is empty while there is more only where 10,000 rows held no match.
// A cursor of another form than List gives is refused with task.ErrInvalidArgument.
func List(from store.Reader, ns string, f Filter, cursor []byte, limit int) (Page, error) {
	m := &meter{Reader: from}
	var p Page
	next, err := f.walk(m, ns, cursor, scanLimit, func(id task.ID, x *Exec) bool {
		if f.matches(m, ns, id, x) {
			p.Tasks = append(p.Tasks, show(m, ns, id, x))
		}
		return len(p.Tasks) < limit && (len(p.Tasks) == 0 || m.bytes < pageBytes)
	})
	p.Next = next
	return p, err
}

// walk goes through the tasks that the filter may select, newest first: dead letters of one queue by their ends, others by their
// ids. It begins behind a cursor, nil: with the newest, and ends when take says so or that many rows were looked at. Next is where
// it would go on; nil at the end.
func (f *Filter) walk(from store.Reader, ns string, cursor []byte, rows int, take func(id task.ID, x *Exec) (more bool)) (next []byte, err error) {
	prefix := table(ns, tabExec, 0)
	if f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned) {
		prefix = statePrefix(ns, tabDead, f.Queue, f.States[0])
	}
	hi := after(prefix)
	if cursor != nil {
		if len(cursor) != 16 && len(cursor) != 24 {
			return nil, task.Invalid("cursor", "is not one that a list gave")
		}
		hi = append(prefix[:len(prefix):len(prefix)], cursor...)
	}
	var last []byte
	more := true
	from.ScanBack(prefix, hi, func(k, row []byte) bool {
		if !more || rows == 0 {
			next = last
			return false
		}
		rows--
		last = append(last[:0], k[len(prefix):]...)
		id := idAt(k)
		var x *Exec
		var err error
		if len(row) > 0 {
			x, err = decodeExec(row)
		} else {
			x, err = readExec(from, ns, id)
		}
		corrupt(err)
		more = take(id, x)
		return true
	})
	return next, nil
}

// meter counts the bytes of the values that are read through it.
type meter struct {
	store.Reader
	bytes int
}

func (m *meter) Get(key []byte) ([]byte, bool) {
	v, ok := m.Reader.Get(key)
	m.bytes += len(v)
	return v, ok
}

func (m *meter) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	m.Reader.Scan(lo, hi, m.counting(fn))
}

func (m *meter) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	m.Reader.ScanBack(lo, hi, m.counting(fn))
}

func (m *meter) counting(fn func(key, value []byte) bool) func(key, value []byte) bool {
	return func(k, v []byte) bool {
		m.bytes += len(v)
		return fn(k, v)
	}
}

// matches says whether the filter selects a task. What is cheap to know is asked first.
func (f *Filter) matches(from store.Reader, ns string, id task.ID, x *Exec) bool {
	switch {
	case f.Queue != "" && x.Queue != f.Queue,
		f.Not != "" && x.Queue == f.Not,
		f.Within != nil && !task.Scope{Queues: f.Within}.Sees(x.Queue),
		f.Type != "" && x.Type != f.Type,
		f.Key != "" && x.Key != f.Key,
		f.Worker != "" && x.Claim.Worker != f.Worker,
		f.CreatedAfter != 0 && x.CreatedAt <= f.CreatedAfter,
		f.CreatedBefore != 0 && x.CreatedAt >= f.CreatedBefore,
		len(f.States) > 0 && !hasState(f.States, x.State):
		return false
	}
	if f.Tag != "" || f.Text != "" {
		e := readEnvelope(from, ns, id)
		if f.Tag != "" && !hasTag(e.Tags, f.Tag) || f.Text != "" && !bytes.Contains(e.Payload, []byte(f.Text)) {
			return false
		}
	}
	if f.Error != "" || f.Fingerprint != "" {
		v := View{Exec: x, Attempts: readAttempts(from, ns, id)}
		message := v.LastFailure().Message
		return strings.Contains(message, f.Error) && (f.Fingerprint == "" || PrintText(fingerprintOf(x.Type, Normalise(message))) == f.Fingerprint)
	}
	return true
}

func hasState(states []task.State, s task.State) bool {
	for _, have := range states {
		if have == s {
			return true
		}
	}
	return false
}

func hasTag(tags []string, tag string) bool {
	for _, have := range tags {
		if have == tag {
			return true
		}
	}
	return false
}

// ToArchive reads dead letters whose retention is over, up to limit, or about 8 MiB.
func ToArchive(from store.Reader, ns string, limit int) (views []*View) {
	lo, hi := tableBounds(ns, tabArchive)
	m := &meter{Reader: from}
	m.Scan(lo, hi, func(k, _ []byte) bool {
		if v, err := Show(m, ns, idAt(k)); err == nil {
			views = append(views, v)
		}
		return len(views) < limit && m.bytes < pageBytes
	})
	return views
}

// ShowIn reads a task as it will be after the round.
func ShowIn(r *Round, ns string, id task.ID) (*View, error) { return Show(r.tx, ns, id) }
