package workers

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

// Name identifies a worker by namespace and id.
type Name struct {
	Namespace string
	ID        string
}

// Quiet is a worker that takes no new tasks, by an operator's request.
type Quiet struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Name      string `json:"name"` // as it called itself
	By        string `json:"by"`   // "": unknown
	Reason    string `json:"reason"`
	// At and Until are wall clock times. From Until on the row is void.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Version is the index of the round that wrote the row, so it only grows.
	Version uint64 `json:"version"`
}

// WorkerName returns the worker of the row.
func (q Quiet) WorkerName() Name { return Name{q.Namespace, q.ID} }

const (
	// QuietFor is how long a worker is quiet by default, unless it is resumed. A given time must be between MinQuiet and MaxQuiet, since
	// rows of workers that are gone must not stay for good.
	QuietFor = 24 * time.Hour
	MinQuiet = time.Minute
	MaxQuiet = 30 * 24 * time.Hour
	// MaxQuietWorkers bounds the rows of all namespaces together.
	MaxQuietWorkers = 10_000
)

// changed names the worker in the log of changes.
func (w Name) changed() system.Name { return system.Name{Namespace: w.Namespace, Name: w.ID} }

// Named is the inverse of changed.
func Named(n system.Name) Name { return Name{n.Namespace, n.Name} }

// Workers reads and changes which workers are quiet.
type Workers struct{ shard *system.Shard }

// New returns the workers in a system shard.
func New(shard *system.Shard) *Workers { return &Workers{shard} }

func quietKey(w Name) []byte {
	return system.Key(system.QuietTable, w.Namespace, w.ID)
}

// Get returns a worker's row, if it has one.
func Get(r store.Reader, name Name) (row Quiet, quiet bool, err error) {
	return system.GetRow[Quiet](r, quietKey(name))
}

// quietFacts is what the audit log records of a quiet worker.
type quietFacts struct {
	Quiet  bool   `json:"quiet"`
	Name   string `json:"name"`
	Reason string `json:"quiet_reason"`
}

// QuietWorker has a worker take no new tasks for a span from now. For a worker that is already quiet for the same reason, only the end
// changes.
func (s *Workers) QuietWorker(ctx context.Context, by task.Author, name Name, called string, span time.Duration) (Quiet, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Quiet, error) {
		old, quiet, err := Get(tx, name)
		if err != nil {
			return Quiet{}, err
		}
		var void []Quiet
		if !quiet {
			if void, err = roomForQuiet(tx, name); err != nil {
				return Quiet{}, err
			}
		}
		now := tx.Now().Time()
		row := Quiet{Namespace: name.Namespace, ID: name.ID, Name: called, By: by.Name, Reason: by.Reason, At: now, Until: now.Add(span),
			Version: tx.Index()}
		var before any
		if quiet && now.Before(old.Until) {
			before = &quietFacts{true, old.Name, old.Reason}
			if old.Reason == row.Reason {
				row.By, row.At = old.By, old.At
			}
		}
		if err := onWorker(tx, by, task.WorkerQuieted, name, before, &quietFacts{true, row.Name, row.Reason}); err != nil {
			return Quiet{}, err
		}
		for _, v := range void {
			tx.Delete(quietKey(v.WorkerName()))
			s.shard.Note(tx, system.Change{Kind: system.WorkerChanged, Name: v.WorkerName().changed()})
		}
		if !quiet {
			countQuiet(tx, 1-len(void))
		}
		tx.Set(quietKey(name), system.EncodeRow(row))
		s.shard.Note(tx, system.Change{Kind: system.WorkerChanged, Name: name.changed()})
		return row, nil
	})
}

// ResumeWorker lets a worker take tasks again, and reports whether it was quiet. The nodes are told even if it was not: its SDK may
// remember a request that no longer has a row.
func (s *Workers) ResumeWorker(ctx context.Context, by task.Author, name Name) (was bool, err error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (bool, error) {
		old, quiet, err := Get(tx, name)
		if err == nil && quiet {
			err = onWorker(tx, by, task.WorkerResumed, name, &quietFacts{true, old.Name, old.Reason}, nil)
		}
		if err != nil {
			return false, err
		}
		s.shard.Note(tx, system.Change{Kind: system.WorkerChanged, Name: name.changed()})
		if quiet {
			tx.Delete(quietKey(name))
			countQuiet(tx, -1)
		}
		return quiet, nil
	})
}

// Forget removes the rows of a removed namespace: a worker of a later one of its name is not quiet.
func (s *Workers) Forget(tx *store.Tx, ns string) {
	var names []Name
	prefix := system.Key(system.QuietTable, ns, "")
	tx.Scan(prefix, system.PrefixEnd(prefix), func(k, _ []byte) bool {
		names = append(names, Name{ns, string(k[len(prefix):])})
		return true
	})
	for _, name := range names {
		tx.Delete(quietKey(name))
		s.shard.Note(tx, system.Change{Kind: system.WorkerChanged, Name: name.changed()})
	}
	if len(names) > 0 {
		countQuiet(tx, -len(names))
	}
}

// roomForQuiet returns the rows that are void and have to be deleted to make room for one more, or an error if there is no room.
func roomForQuiet(tx *store.Tx, name Name) (void []Quiet, err error) {
	if system.GetNumber(tx, system.QuietsKey) < MaxQuietWorkers {
		return nil, nil
	}
	rows, err := system.ScanRows[Quiet](tx, system.QuietTable)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if !tx.Now().Time().Before(row.Until) {
			void = append(void, row)
		}
	}
	if len(void) == 0 {
		return nil, system.WrongState("worker %q: %d workers are quiet, the maximum: resume some first", name.ID, len(rows))
	}
	return void, nil
}

// countQuiet adds n to the number of rows.
func countQuiet(tx *store.Tx, n int) {
	tx.Set(system.QuietsKey, system.EncodeNumber(uint64(max(int(system.GetNumber(tx, system.QuietsKey))+n,
		0)))) // #nosec G115 -- at most MaxQuietWorkers
}

func onWorker(tx *store.Tx, by task.Author, action task.Action, name Name, before, after any) error {
	return auditlog.Record(tx, audit.Entry{By: by, Action: action, Namespace: name.Namespace, Target: task.Target{Kind: task.OnWorker,
		Name: name.ID}}, before, after)
}
