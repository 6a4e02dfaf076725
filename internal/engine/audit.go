package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// What operators do is noted in the round that does it: see package audit. A call that changes nothing leaves no entry, so that
// one that is repeated leaves one. What nobody's calls do is not noted.

// KeepAudit has the leader ask, at each round that needs it, how long entries are kept. Fn does not block.
func (l *Leader) KeepAudit(fn func() time.Duration) { l.auditKept = fn }

func (l *Leader) auditKeep() time.Duration {
	if l.auditKept == nil {
		return audit.DefaultKeep
	}
	return l.auditKept()
}

// Record adds an entry, unless it is nobody's.
func (r *Round) Record(e audit.Entry) {
	if e.By.IsZero() {
		return
	}
	log, err := audit.Open(r.tx, r.l.auditKeep())
	schema.Must(err)
	if due := log.Append(e); due != 0 {
		r.SetDeadline(due, schema.OnAudit, "", nil)
	}
}

// auditEnds removes entries that were kept long enough. The shard has one deadline for all of them.
func (r *Round) auditEnds() {
	log, err := audit.Open(r.tx, r.l.auditKeep())
	schema.Must(err)
	if until, doubted := r.l.term.Doubted(); doubted && r.now < until {
		log.Later(until)
		r.SetDeadline(until, schema.OnAudit, "", nil)
		return
	}
	if due := log.Expire(); due != 0 {
		r.SetDeadline(due, schema.OnAudit, "", nil)
	}
}

// CheckAudit goes over the shard's record of what operators did, and tells what is wrong with it.
func CheckAudit(from store.Reader) []string {
	problems := audit.Check(from)
	due, err := audit.Due(from)
	if err != nil || due == 0 {
		return problems // which say so
	}
	if _, ok := from.Get(schema.DeadlineKey(due, schema.OnAudit, "", nil)); !ok {
		problems = append(problems, fmt.Sprintf("audit: there is no deadline at %s, when entries are to be removed", due.Time().Format(time.RFC3339)))
	}
	return problems
}

// OnTask runs what an operator does to a task, and notes it.
func OnTask(r *Round, by task.Author, action task.Action, ns string, id task.ID, do func() error) error {
	if by.IsZero() {
		return do()
	}
	before, queue := r.taskFacts(ns, id, action)
	if err := do(); err != nil {
		return err
	}
	after, _ := r.taskFacts(ns, id, action)
	was, is := audit.Changed(before, after)
	if was != nil || is != nil {
		r.Record(audit.Entry{By: by, Action: action, Namespace: ns, Target: task.Target{Kind: task.OnTask, Name: id.String()}, Queue: queue, Before: was, After: is})
	}
	return nil
}

// taskFacts is what an operator may change of a task, and what comes of it.
type taskFacts struct {
	State       task.State    `json:"state"`
	Reason      string        `json:"reason"`
	Priority    task.Priority `json:"priority"`
	RunAt       store.Time    `json:"run_at"`
	MaxAttempts int           `json:"max_attempts"`
	Payload     string        `json:"payload"` // not itself
}

// taskFacts reads them; nil if there is no such task. The payload matters to who edits it only.
func (r *Round) taskFacts(ns string, id task.ID, action task.Action) (f any, queue string) {
	x, err := r.Exec(ns, id)
	if err != nil {
		return nil, ""
	}
	out := &taskFacts{State: x.State, Reason: x.Reason, Priority: x.Priority, RunAt: x.RunAt, MaxAttempts: x.MaxAttempts}
	if action == task.TaskEdited {
		out.Payload = audit.Digest(schema.ReadEnvelope(r.tx, ns, id).Payload)
	}
	return out, x.Queue
}

// Bulk is a call on many tasks of a queue.
type Bulk struct {
	By     task.Author
	Action task.Action
	Call   uint64 // tells it from others
	Queue  string
	Of     any // a struct that says which tasks are meant; nil: it needs no saying
}

// Did notes that a call has changed n tasks in this round.
func (b *Bulk) Did(r *Round, ns string, n int64) {
	if n == 0 {
		return
	}
	_, of := audit.Changed(nil, b.Of)
	r.Record(audit.Entry{By: b.By, Action: b.Action, Namespace: ns, Target: task.Target{Kind: task.OnQueue, Name: b.Queue}, Queue: b.Queue,
		After: of, Tasks: n, Call: b.Call})
}

// NoteRestored notes which tasks of an enqueue come from the archive: those that are new.
func NoteRestored(r *Round, ns string, tasks []NewTask, new func(i int) bool) {
	by, made := task.Author{}, map[string]int64{}
	for i := range tasks {
		if of := tasks[i].Restored; of != nil && new(i) {
			by = *of
			made[tasks[i].Queue]++
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(made)) {
		b := Bulk{By: by, Action: task.ArchiveRestored, Queue: queue}
		b.Did(r, ns, made[queue])
	}
}
