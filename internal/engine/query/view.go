package query

import (
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// View is a task with all that belongs to it.
type View struct {
	*schema.Envelope
	Exec       *schema.Exec
	Result     schema.Result
	Checkpoint []byte
	Attempts   []*schema.Attempt // those that have ended, oldest first
	Settings   task.Settings
	WaitsFor   task.ID           // the claimed holder of its unique key, or the first task of its key; zero: none
	Then       []schema.Follower // its follow-ups
}

// MaxAttempts returns the number of the last possible attempt.
func (v *View) MaxAttempts() int {
	if v.Exec.MaxAttempts > 0 {
		return v.Exec.Exhausted + v.Exec.MaxAttempts
	}
	return v.Exec.Exhausted + v.Settings.MaxAttempts
}

// LastFailure returns the failure of the last failed attempt.
func (v *View) LastFailure() schema.Failure {
	return schema.LastFailure(v.Attempts)
}

// ETag returns the tag of what engine.Update can change.
func (v *View) ETag() string { return schema.EditedOf(v.Exec, v.Payload).ETag() }

// Show reads a task with all that belongs to it.
func Show(from store.Reader, ns string, id task.ID) (*View, error) {
	x, err := schema.ReadExec(from, ns, id)
	if err != nil {
		return nil, err
	}
	return ShowFrom(from, ns, id, x), nil
}

// ShowFrom is Show for a task whose state has been read.
func ShowFrom(from store.Reader, ns string, id task.ID, x *schema.Exec) *View {
	v := &View{Envelope: schema.ReadEnvelope(from, ns, id), Exec: x, Settings: schema.ReadSettings(from, ns, x.Queue),
		Attempts: schema.ReadAttempts(from, ns, id)}
	if x.State == task.Succeeded {
		v.Attempts = append(v.Attempts, x.Success())
		if x.HasResult {
			row, _ := from.Get(schema.IDKey(ns, schema.TableResult, id))
			v.Result = schema.Must(schema.DecodeResult(row))
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

// Page is a page of a list. It may be empty although there is more.
type Page struct {
	Tasks []*View
	Reach // Next is where the next page begins
}

// listBudget bounds the search for one page. Within it the first page of a filter by state or type is found among a million tasks.
var listBudget = BudgetOf(10_000, 200_000)

// List reads a page of up to limit tasks, newest first. Cursor is Next of the page before, or nil.
//
// A page ends early, and Next continues from there, once it has a task and roughly 8 MiB were read, including payloads,
// results and attempts; the last task may exceed that. It also ends, possibly empty, when its search has read as many
// rows as listBudget allows, or 64 MiB of payloads: Rows is how many rows it read.
//
// A malformed cursor is refused with task.ErrInvalidArgument.
func List(from store.Reader, ns string, f Filter, cursor []byte, limit int) (Page, error) {
	return ReadPage(from, ns, f, cursor, limit, listBudget)
}

// ReadPage is List with the caller's budget.
func ReadPage(from store.Reader, ns string, f Filter, cursor []byte, limit int, most Budget) (p Page, err error) {
	m := schema.Count(from)
	p.Reach, err = f.Walk(from, ns, cursor, most, func(id task.ID, x *schema.Exec) bool {
		p.Tasks = append(p.Tasks, ShowFrom(m, ns, id, x))
		return len(p.Tasks) < limit && !m.Full()
	})
	return p, err
}

// ToArchive reads dead letters whose retention is over, up to limit, or roughly 8 MiB.
func ToArchive(from store.Reader, ns string, limit int) (views []*View) {
	lo, hi := schema.TableBounds(ns, schema.TableArchive)
	m := schema.Count(from)
	m.Scan(lo, hi, func(k, _ []byte) bool {
		schema.Blame(k, func() {
			if v, err := Show(m, ns, schema.IDAt(k)); err == nil {
				views = append(views, v)
			}
		})
		return len(views) < limit && !m.Full()
	})
	return views
}

// printOf returns the fingerprint of a dead task.
func printOf(v *View) uint64 {
	return fingerprint.Of(v.Exec.Type, fingerprint.Normalize(v.LastFailure().Message))
}
