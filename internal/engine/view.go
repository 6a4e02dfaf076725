package engine

import (
	"encoding/binary"

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

// Page is what a list answers: it may be empty although there is more.
type Page struct {
	Tasks []*View
	Reach // Next is where the next page begins
}

// pageBytes bounds what is read for one page or step, payloads included: each task of a page is held in memory whole.
const pageBytes = 8 << 20

// listEffort bounds the search for one page. Within it the first page of a filter by state or type is found among a million tasks.
var listEffort = effortOf(10_000, 200_000)

// List reads a page of up to limit tasks, newest first. Cursor is Next of the page before, or nil.
//
// A page ends early, and Next goes on from there, once it has a task and about 8 MiB were read, of payloads, results and
// attempts too; the last task may go beyond. It also ends, with the tasks that it has by then or none, when its search has read as many rows
// as listEffort allows, or 64 MiB of payloads: Rows says how many rows it read.
//
// A cursor of another form than List gives is refused with task.ErrInvalidArgument.
func List(from store.Reader, ns string, f Filter, cursor []byte, limit int) (Page, error) {
	return readPage(from, ns, f, cursor, limit, listEffort)
}

func readPage(from store.Reader, ns string, f Filter, cursor []byte, limit int, most effort) (p Page, err error) {
	m := &meter{Reader: from}
	p.Reach, err = f.walk(from, ns, cursor, most, func(id task.ID, x *Exec) bool {
		p.Tasks = append(p.Tasks, show(m, ns, id, x))
		return len(p.Tasks) < limit && m.bytes < pageBytes
	})
	return p, err
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

func (m *meter) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	m.Reader.GetEach(keys, func(i int, v []byte) {
		m.bytes += len(v)
		fn(i, v)
	})
}

func (m *meter) counting(fn func(key, value []byte) bool) func(key, value []byte) bool {
	return func(k, v []byte) bool {
		m.bytes += len(v)
		return fn(k, v)
	}
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
