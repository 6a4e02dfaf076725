// Package actions records operators' actions in the round that performs them. A call that changes nothing leaves no
// entry, so that a repeated call leaves one. Calls without an author are not recorded. The package knows neither how
// entries are stored and chained, which package audit does, nor how callers are authorized.
package actions

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Policy removes expired entries.
var Policy = engine.Policy{Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnAudit: expire}}

// memory is what a leader remembers for the audit log.
type memory struct {
	keep func() time.Duration // nil: the default
}

// SetRetention sets the function that returns how long entries are kept. Rounds call it when they need it; it must not block.
func SetRetention(l *engine.Leader, fn func() time.Duration) { engine.Memory[memory](l).keep = fn }

func open(r *engine.Round) *audit.Log {
	keep := audit.DefaultKeep
	if fn := engine.Memory[memory](r.Leader()).keep; fn != nil {
		keep = fn()
	}
	return schema.Must(audit.Open(r.Tx(), keep))
}

// Record appends an entry, unless it has no author.
func Record(r *engine.Round, e audit.Entry) {
	if e.By.IsZero() {
		return
	}
	if due := schema.Must(open(r).Append(e)); due != 0 {
		r.SetDeadline(due, schema.OnAudit, "", nil)
	}
}

// expire removes expired entries. The shard has one deadline for all of them.
func expire(r *engine.Round, _ schema.Deadline) {
	log := open(r)
	if until, doubted := r.DeletesFrom(); doubted {
		log.Later(until)
		r.SetDeadline(until, schema.OnAudit, "", nil)
		return
	}
	if due := log.Expire(); due != 0 {
		r.SetDeadline(due, schema.OnAudit, "", nil)
	}
}

// Check checks the shard's audit log, and returns what is wrong with it.
func Check(from store.Reader) []string {
	problems := audit.Check(from)
	due, err := audit.Due(from)
	if err != nil || due == 0 {
		return problems // which include the error
	}
	if _, ok := from.Get(schema.DeadlineKey(due, schema.OnAudit, "", nil)); !ok {
		problems = append(problems, fmt.Sprintf("audit: there is no deadline at %s, when entries must be removed",
			due.Time().Format(time.RFC3339)))
	}
	return problems
}

// OnTask runs an operator's change of a task and records it.
func OnTask(r *engine.Round, by task.Author, action task.Action, ns string, id task.ID, do func() error) error {
	if by.IsZero() {
		return do()
	}
	before, queue := factsOf(r, ns, id, action)
	if err := do(); err != nil {
		return err
	}
	after, _ := factsOf(r, ns, id, action)
	was, is := audit.Changed(before, after)
	if was != nil || is != nil {
		Record(r, audit.Entry{By: by, Action: action, Namespace: ns, Target: task.Target{Kind: task.OnTask, Name: id.String()},
			Queue: queue, Before: was, After: is})
	}
	return nil
}

// taskFacts is the part of a task that an operator may change, for the audit log.
type taskFacts struct {
	State       task.State    `json:"state"`
	Reason      string        `json:"reason"`
	Priority    task.Priority `json:"priority"`
	RunAt       store.Time    `json:"run_at"`
	MaxAttempts int           `json:"max_attempts"`
	Payload     string        `json:"payload"` // a digest
}

// factsOf returns the *taskFacts and the queue of a task, or nil if there is no such task. The payload is included for edits only.
func factsOf(r *engine.Round, ns string, id task.ID, action task.Action) (f any, queue string) {
	x, err := r.Exec(ns, id)
	if err != nil {
		return nil, ""
	}
	out := &taskFacts{State: x.State, Reason: x.Reason, Priority: x.Priority, RunAt: x.RunAt, MaxAttempts: x.MaxAttempts}
	if action == task.TaskEdited {
		out.Payload = audit.Digest(schema.ReadEnvelope(r.Tx(), ns, id).Payload)
	}
	return out, x.Queue
}

// Bulk describes a call on many tasks of a queue.
type Bulk struct {
	By     task.Author
	Action task.Action
	Call   uint64 // distinguishes it from other calls
	Queue  string
}

// Record records that the call has changed n tasks in this round.
func (b *Bulk) Record(r *engine.Round, ns string, n int64) {
	if n == 0 {
		return
	}
	Record(r, audit.Entry{By: b.By, Action: b.Action, Namespace: ns, Target: task.Target{Kind: task.OnQueue, Name: b.Queue}, Queue: b.Queue,
		Tasks: n, Call: b.Call})
}

// CloseBreakers is engine.CloseBreakers with an audit entry.
func CloseBreakers(r *engine.Round, by task.Author, ns, name, typ string) (n int, err error) {
	if n, err = engine.CloseBreakers(r, ns, name, typ); n > 0 {
		_, of := audit.Changed(nil, struct {
			Type   string `json:"type"` // empty: all
			Closed int    `json:"closed"`
		}{typ, n})
		Record(r, audit.Entry{By: by, Action: task.BreakerClosed, Namespace: ns, Target: task.Target{Kind: task.OnQueue, Name: name},
			Queue: name, After: of})
	}
	return n, err
}
