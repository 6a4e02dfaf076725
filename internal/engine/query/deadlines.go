package query

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// maxScanned bounds the deadlines that one call of Deadlines looks at: deadlines are ordered by time, and those of all
// namespaces are mixed.
const maxScanned = 100_000

// Deadlines returns up to limit deadlines of a namespace after the key behind, and where to continue; nil: there are no more.
func Deadlines(from store.Reader, ns string, behind []byte, limit int) (keys [][]byte, next []byte) {
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
			if passed++; passed == maxScanned || len(keys) == limit {
				next = bytes.Clone(k)
			}
			return next == nil
		})
	}
	return keys, next
}

// Copies returns the names of the queues of a namespace that the shard has copies of.
func Copies(from store.Reader, ns string) (queues []string) {
	lo, hi := schema.TableBounds(ns, schema.TableQueue)
	from.Scan(lo, hi, func(k, _ []byte) bool {
		queues = append(queues, string(k[len(lo):len(k)-1]))
		return true
	})
	return queues
}
