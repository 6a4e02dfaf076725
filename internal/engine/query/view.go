package query

import (
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// View is everything known of a task.
type View struct {
	*schema.Envelope
	Exec       *schema.Exec
	Result     schema.Result
	Checkpoint []byte
	Attempts   []*schema.Attempt // those that have ended, the oldest first
	Settings   task.Settings
	WaitsFor   task.ID           // the task that holds its unique key and is claimed; zero: none
	Then       []schema.Follower // what follows it
}

// MaxAttempts is the number of the attempt that would be the last one.
func (v *View) MaxAttempts() int {
	if v.Exec.MaxAttempts > 0 {
		return v.Exec.Exhausted + v.Exec.MaxAttempts
	}
	return v.Exec.Exhausted + v.Settings.MaxAttempts
}

// LastFailure is what the last failed attempt said.
func (v *View) LastFailure() schema.Failure {
	return schema.LastFailure(v.Attempts)
}

// ETag is the tag of what engine.Update can change of the task.
func (v *View) ETag() string { return schema.EditedOf(v.Exec, v.Payload).ETag() }

// Show reads a task with all that belongs to it.
func Show(from store.Reader, ns string, id task.ID) (*View, error) {
	x, err := schema.ReadExec(from, ns, id)
	if err != nil {
		return nil, err
	}
	return ShowFrom(from, ns, id, x), nil
}

// ShowFrom is Show of a task whose state has been read.
func ShowFrom(from store.Reader, ns string, id task.ID, x *schema.Exec) *View {
	v := &View{Envelope: schema.ReadEnvelope(from, ns, id), Exec: x, Settings: schema.ReadSettings(from, ns, x.Queue), Attempts: schema.ReadAttempts(from, ns, id)}
	if x.State == task.Succeeded {
		v.Attempts = append(v.Attempts, x.Success())
		if x.HasResult {
			row, _ := from.Get(schema.IDKey(ns, schema.TableResult, id))
			var err error
			v.Result, err = schema.DecodeResult(row)
			schema.Must(err)
		}
	}
	if x.Role == schema.RoleNext {
		u, _ := schema.ReadUnique(from, ns, x.Queue, x.Unique.Key)
		v.WaitsFor = u.Holder
	} else if x.Behind {
		first, _ := schema.ReadFirst(from, ns, x.Queue, x.Key)
		v.WaitsFor = first.ID
	}
	if x.Links != nil && x.Links.Followed {
		v.Then = schema.FollowersOf(from, ns, id, x)
	}
	if x.Checkpointed {
		v.Checkpoint, _ = from.Get(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	return v
}

// Page is what a list answers: it may be empty although there is more.
type Page struct {
	Tasks []*View
	Reach // Next is where the next page begins
}

// listEffort bounds the search for one page. Within it the first page of a filter by state or type is found among a million tasks.
var listEffort = EffortOf(10_000, 200_000)

// List reads a page of up to limit tasks, newest first. Cursor is Next of the page before, or nil.
//
// A page ends early, and Next goes on from there, once it has a task and about 8 MiB were read, of payloads, results and
// attempts too; the last task may go beyond. It also ends, with the tasks that it has by then or none, when its search has read as many rows
// as listEffort allows, or 64 MiB of payloads: Rows says how many rows it read.
//
// A cursor of another form than List gives is refused with task.ErrInvalidArgument.
func List(from store.Reader, ns string, f Filter, cursor []byte, limit int) (Page, error) {
	return ReadPage(from, ns, f, cursor, limit, listEffort)
}

// ReadPage is List with an effort of the caller's.
func ReadPage(from store.Reader, ns string, f Filter, cursor []byte, limit int, most Effort) (p Page, err error) {
	m := &schema.Counted{Reader: from}
	p.Reach, err = f.Walk(from, ns, cursor, most, func(id task.ID, x *schema.Exec) bool {
		p.Tasks = append(p.Tasks, ShowFrom(m, ns, id, x))
		return len(p.Tasks) < limit && m.Bytes < schema.PageBytes
	})
	return p, err
}

// ToArchive reads dead letters whose retention is over, up to limit, or about 8 MiB.
func ToArchive(from store.Reader, ns string, limit int) (views []*View) {
	lo, hi := schema.TableBounds(ns, schema.TableArchive)
	m := &schema.Counted{Reader: from}
	m.Scan(lo, hi, func(k, _ []byte) bool {
		if v, err := Show(m, ns, schema.IDAt(k)); err == nil {
			views = append(views, v)
		}
		return len(views) < limit && m.Bytes < schema.PageBytes
	})
	return views
}

// printOf is the fingerprint of a task that has died.
func printOf(v *View) uint64 {
	return fingerprint.Of(v.Exec.Type, fingerprint.Normalise(v.LastFailure().Message))
}
