package auditlog

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// Action is an action and its author, who may be nobody.
type Action struct {
	By     task.Author
	Action task.Action
}

// Record adds a change to the audit log: before and after are structs, or nil.
func Record(tx *store.Tx, e audit.Entry, before, after any) error {
	if e.By.IsZero() {
		return nil
	}
	if e.Before, e.After = audit.Changed(before, after); e.Before == nil && e.After == nil {
		return nil
	}
	settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
	if err != nil {
		return err
	}
	log, err := audit.Open(tx, settings.AuditKeep())
	if err == nil {
		_, err = log.Append(e) // nothing needs to be scheduled: see Expire
	}
	return err
}

// RecordOn is Record for an author, an action and a target.
func RecordOn(tx *store.Tx, by task.Author, action task.Action, ns string, to task.Target, before, after any) error {
	return Record(tx, audit.Entry{By: by, Action: action, Namespace: ns, Target: to}, before, after)
}

// OnCluster is RecordOn for the cluster as a whole.
func OnCluster(tx *store.Tx, by task.Author, action task.Action, before, after any) error {
	return RecordOn(tx, by, action, "", task.Target{Kind: task.OnCluster}, before, after)
}

// Moment returns a time as the audit log has it; nil: there is none.
func Moment(t store.Time) *time.Time {
	if t == 0 {
		return nil
	}
	at := t.Time()
	return &at
}

// Log is the audit log of the system shard.
type Log struct{ shard *system.Shard }

// New returns the audit log in a system shard.
func New(shard *system.Shard) *Log { return &Log{shard} }

// Audit returns a page of what operators did to queues and to the cluster, newest first, after a place; nil: from the newest.
func (l *Log) Audit(ctx context.Context, q audit.Query, behind *audit.Place, limit int) (audit.Page, error) {
	return system.View(ctx, l.shard, func(r store.Reader) (audit.Page, error) { return audit.Read(r, 0, q, behind, limit) })
}

// Check returns what is wrong with the audit log of the system shard.
func (l *Log) Check(ctx context.Context) ([]string, error) {
	return system.View(ctx, l.shard, func(r store.Reader) ([]string, error) { return audit.Check(r), nil })
}

// AuditGrace is how long a leader waits before it removes old entries: its clock may be wrong, and the removal can't be undone.
const AuditGrace = time.Hour

// Expire removes entries that have been kept long enough.
func (l *Log) Expire(ctx context.Context) error {
	if term := l.shard.Term(); term == nil || time.Since(term.Began) < AuditGrace {
		return nil
	}
	_, err := system.Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
		if due, err := audit.Due(tx); err != nil || due == 0 || due > tx.Now() {
			return struct{}{}, err
		}
		settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
		if err != nil {
			return struct{}{}, err
		}
		log, err := audit.Open(tx, settings.AuditKeep())
		if err == nil {
			log.Expire()
		}
		return struct{}{}, err
	})
	return err
}
