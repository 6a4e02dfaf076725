package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Which workers are to take no tasks is a row for each here, so that it outlives the node that a worker is connected to and holds at
// whichever it comes to next. Nodes hear of it with the rest of their copies; the rows know nothing of who is connected.

// WorkerName is a worker of a namespace, by its id.
type WorkerName struct {
	Namespace string
	ID        string
}

// QuietWorker is a worker that takes no new tasks, by an operator's word.
type QuietWorker struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Name      string `json:"name"` // as it called itself
	By        string `json:"by"`   // "": nobody said
	Reason    string `json:"reason"`
	// At and Until are of the wall clock. From Until on the row means nothing.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Version only grows: it is the index of the round that wrote the row.
	Version uint64 `json:"version"`
}

// WorkerName is whose row it is.
func (q QuietWorker) WorkerName() WorkerName { return WorkerName{q.Namespace, q.ID} }

const (
	// QuietFor is how long a worker is quiet if nobody has it resume and nobody said how long: from MinQuiet to MaxQuiet, since rows of
	// workers that are gone must not stay for ever.
	QuietFor = 24 * time.Hour
	MinQuiet = time.Minute
	MaxQuiet = 30 * 24 * time.Hour
	// maxQuiet bounds the rows of all namespaces together.
	maxQuiet = 10_000
)

func quietKey(w WorkerName) []byte {
	return append(append(append([]byte{quietTable}, w.Namespace...), 0), w.ID...)
}

// quietFacts is what an operator says of a worker.
type quietFacts struct {
	Quiet  bool   `json:"quiet"`
	Name   string `json:"name"`
	Reason string `json:"quiet_reason"`
}

// QuietWorker has a worker take no new tasks for a span from now. Of one that is quiet already, with the same reason, only the end
// moves.
func (c *Control) QuietWorker(ctx context.Context, by task.Author, name WorkerName, called string, span time.Duration) (QuietWorker, error) {
	return update(ctx, c, func(tx *store.Tx) (QuietWorker, error) {
		settings, _, err := getRow[Settings](tx, settingsKey)
		if err == nil && settings.Level < PoliciesLevel {
			err = wrongState("worker %q: to make workers quiet the cluster must work at feature level %d, and it is at %d: see `pawl cluster raise-level`",
				name.ID, PoliciesLevel, settings.Level)
		}
		if err != nil {
			return QuietWorker{}, err
		}
		old, quiet, err := getRow[QuietWorker](tx, quietKey(name))
		if err == nil && !quiet {
			err = c.roomForQuiet(tx, name)
		}
		if err != nil {
			return QuietWorker{}, err
		}
		now := tx.Now().Time()
		row := QuietWorker{Namespace: name.Namespace, ID: name.ID, Name: called, By: by.Name, Reason: by.Reason, At: now, Until: now.Add(span), Version: tx.Index()}
		var before any
		if quiet && now.Before(old.Until) {
			before = &quietFacts{true, old.Name, old.Reason}
			if old.Reason == row.Reason {
				row.By, row.At = old.By, old.At
			}
		}
		tx.Set(quietKey(name), encodeRow(row))
		c.note(tx, change{worker: name})
		return row, onWorker(tx, by, task.WorkerQuieted, name, before, &quietFacts{true, row.Name, row.Reason})
	})
}

// ResumeWorker lets a worker take tasks again, and says whether it was quiet. Of one that was not the nodes are told as well: its SDK
// may remember what no row says any more.
func (c *Control) ResumeWorker(ctx context.Context, by task.Author, name WorkerName) (was bool, err error) {
	return update(ctx, c, func(tx *store.Tx) (bool, error) {
		old, quiet, err := getRow[QuietWorker](tx, quietKey(name))
		if err != nil {
			return false, err
		}
		c.note(tx, change{worker: name})
		if !quiet {
			return false, nil
		}
		tx.Delete(quietKey(name))
		c.countQuiet(tx, -1)
		return true, onWorker(tx, by, task.WorkerResumed, name, &quietFacts{true, old.Name, old.Reason}, nil)
	})
}

// roomForQuiet counts one row more, unless that is too many. Those that mean nothing any more go first.
func (c *Control) roomForQuiet(tx *store.Tx, name WorkerName) error {
	if getNumber(tx, quietsKey) < maxQuiet {
		c.countQuiet(tx, +1)
		return nil
	}
	rows, err := scanRows[QuietWorker](tx, quietTable)
	if err != nil {
		return err
	}
	gone := 0
	for _, row := range rows {
		if !tx.Now().Time().Before(row.Until) {
			tx.Delete(quietKey(row.WorkerName()))
			c.note(tx, change{worker: row.WorkerName()})
			gone++
		}
	}
	if gone == 0 {
		return wrongState("worker %q: %d workers are quiet, which is the most there can be: have some resume", name.ID, len(rows))
	}
	c.countQuiet(tx, 1-gone)
	return nil
}

// countQuiet keeps the number of rows.
func (c *Control) countQuiet(tx *store.Tx, n int) {
	tx.Set(quietsKey, encodeNumber(uint64(max(int(getNumber(tx, quietsKey))+n, 0)))) // #nosec G115 -- at most maxQuiet
}

func onWorker(tx *store.Tx, by task.Author, action task.Action, name WorkerName, before, after any) error {
	return record(tx, audit.Entry{By: by, Action: action, Namespace: name.Namespace, Target: task.Target{Kind: task.OnWorker, Name: name.ID}}, before, after)
}
