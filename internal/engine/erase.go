package engine

import (
	"bytes"
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A removed namespace leaves ended tasks, keys, groups and operations behind, with deadlines that would remove them in
// time. A new namespace of the same name would show them until then, so they are erased.

// mustBeEmpty lists the tables in which an erased namespace must have no rows, with the word for what they hold.
var mustBeEmpty = []struct {
	tab  byte
	what string
}{{schema.TableQueue, "queues"}, {schema.TablePlan, "schedules"}, {schema.TableOutbox, "tasks on their way to other shards"},
	{schema.TableArchive, "dead letters on their way to the archive"}}

// erasable lists the tables that may have rows of a namespace without queues.
var erasable = []byte{
	schema.TableEnvelope, schema.TableExec, schema.TableListed, schema.TableResult, schema.TableCheckpoint, schema.TableAttempt,
	schema.TableKey, schema.TableRequest, schema.TableUnique, schema.TableClaimKey, schema.TableClaimed, schema.TableOnce,
	schema.TableUse, schema.TableCounts, schema.TableBreaker, schema.TableProgress, schema.TableTick, schema.TableDeletion,
	schema.TableFollow, schema.TableGroup, schema.TableMember, schema.TableOperation, schema.TableStep, schema.TableShare,
	schema.TableWatch, schema.TableNotification, schema.TableZone, schema.TableApart,
}

// Erase removes deadlines that query.Deadlines has found and up to limit other rows of a namespace that was removed in a version of the
// system shard. It reports whether there may be more.
//
// Errors: wrong_state if the namespace has queues, schedules, or tasks on their way, or is newer than the removal: see Begin.
func Erase(r *Round, ns string, removed uint64, deadlines [][]byte, limit int) (more bool, err error) {
	if r.spaceOf(ns).Info().Share.Version > removed {
		return false, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("namespace %q is newer than its removal", ns)}
	}
	for _, t := range mustBeEmpty {
		if lo, hi := schema.TableBounds(ns, t.tab); len(keysIn(r, lo, hi, 1)) > 0 {
			return false, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("namespace %q is not empty: it has %s", ns, t.what)}
		}
	}
	for _, k := range deadlines {
		r.tx.Delete(k)
	}
	left := limit
	for _, tab := range erasable {
		lo, hi := schema.TableBounds(ns, tab)
		keys := keysIn(r, lo, hi, left)
		deleteRun(r, keys)
		if left -= len(keys); left == 0 {
			break
		}
	}
	r.l.forgetNamespace(ns)
	return left == 0, nil
}

// keysIn returns the keys of the first rows of a range.
func keysIn(r *Round, lo, hi []byte, limit int) (keys [][]byte) {
	r.tx.Scan(lo, hi, func(k, _ []byte) bool {
		keys = append(keys, bytes.Clone(k))
		return len(keys) < limit
	})
	return keys
}

// forgetNamespace drops what the leader remembers of a namespace.
func (l *Leader) forgetNamespace(ns string) {
	l.hot.DropNamespace(ns)
	delete(l.ids, ns)
	delete(l.spaces, ns)
	delete(l.zones, ns)
	delete(l.leases, ns)
	for _, erased := range l.points.erased {
		erased(l, ns)
	}
}
