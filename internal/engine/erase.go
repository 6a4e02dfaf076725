package engine

import (
	"bytes"
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A namespace that is removed leaves ended tasks, keys, groups and operations behind, with deadlines that would remove them in time.
// Who makes a namespace of its name before would see them, so they are erased.

// mustBeEmpty are the tables in which nothing may be left of a namespace that is erased, and what that would be.
var mustBeEmpty = []struct {
	tab  byte
	what string
}{{schema.TableQueue, "queues"}, {schema.TablePlan, "schedules"}, {schema.TableOutbox, "tasks on their way to other shards"}, {schema.TableArchive, "dead letters on their way to the archive"}}

// erasable are the tables that may have rows of a namespace without queues.
var erasable = []byte{schema.TableEnvelope, schema.TableExec, schema.TableListed, schema.TableResult, schema.TableCheckpoint, schema.TableAttempt, schema.TableKey, schema.TableRequest, schema.TableUnique, schema.TableClaimKey, schema.TableClaimed, schema.TableOnce,
	schema.TableUse, schema.TableCounts, schema.TableBreaker, schema.TableCourse, schema.TableTick, schema.TableGone, schema.TableFollow, schema.TableGroup, schema.TableMember, schema.TableOperation, schema.TableStep, schema.TableShare, schema.TableWatch, schema.TableNews, schema.TableZone}

// maxPassed bounds the deadlines that DeadlinesOf looks at in a call: they lie in the order of time, those of all namespaces together.
const maxPassed = 100_000

// DeadlinesOf finds up to limit deadlines of a namespace behind one, and where to look on; nil: there are no more.
func DeadlinesOf(from store.Reader, ns string, behind []byte, limit int) (keys [][]byte, next []byte) {
	passed := 0
	for _, tab := range schema.Timelines {
		lo, hi := []byte{tab}, []byte{tab + 1}
		if bytes.Compare(behind, lo) >= 0 {
			lo = append(bytes.Clone(behind), 0)
		}
		if next != nil || bytes.Compare(lo, hi) >= 0 {
			continue
		}
		from.Scan(lo, hi, func(k, v []byte) bool {
			d := schema.ReadDeadline(k, v)
			if d.Namespace == ns && d.Kind != schema.OnAudit {
				keys = append(keys, bytes.Clone(k))
			}
			if passed++; passed == maxPassed || len(keys) == limit {
				next = bytes.Clone(k)
			}
			return next == nil
		})
	}
	return keys, next
}

// Erase removes deadlines, which DeadlinesOf has found, and up to limit other rows of a namespace, and says whether there may be more.
//
// Errors: wrong_state if it has queues, schedules, or tasks on their way.
func Erase(r *Round, ns string, deadlines [][]byte, limit int) (more bool, err error) {
	for _, t := range mustBeEmpty {
		lo, hi := schema.TableBounds(ns, t.tab)
		found := false
		r.tx.Scan(lo, hi, func(_, _ []byte) bool {
			found = true
			return false
		})
		if found {
			return false, &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("namespace %q is not empty: it has %s", ns, t.what)}
		}
	}
	for _, k := range deadlines {
		r.tx.Delete(k)
	}
	left := limit
	for _, tab := range erasable {
		lo, hi := schema.TableBounds(ns, tab)
		var keys [][]byte
		r.tx.Scan(lo, hi, func(k, _ []byte) bool {
			keys = append(keys, bytes.Clone(k))
			left--
			return left > 0
		})
		for _, k := range keys {
			r.tx.Delete(k)
		}
		if left <= 0 {
			break
		}
	}
	r.l.forgetNamespace(ns)
	return left <= 0, nil
}

// forgetNamespace throws away what memory has of a namespace.
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
