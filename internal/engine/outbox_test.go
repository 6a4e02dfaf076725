package engine

import (
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Namespaces are found by what lies in the outbox, whose names may begin alike.
func TestOutboxNamespaces(t *testing.T) {
	w := NewWorld(t)
	w.Round(func(r *Round) {
		for _, ns := range []string{"a", "a-b", "default"} {
			for i := range uint64(2) {
				r.Tx().Set(schema.IDKey(ns, schema.TableOutbox, task.NewID(1, 1, i)), []byte{1})
			}
		}
		r.Tx().Set([]byte{schema.TableOutbox - 1, 'z', 0}, []byte{1})
		r.Tx().Set([]byte{schema.TableOutbox + 1, 'z', 0}, []byte{1})
	})
	if got := outbox.Namespaces(w.Store); !slices.Equal(got, []string{"a", "a-b", "default"}) {
		t.Errorf("got %q", got)
	}
}
