package engine

import (
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Namespaces with messages are found, even if their names have a common prefix.
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
	if got := schema.MessageNamespaces(w.Store); !slices.Equal(got, []string{"a", "a-b", "default"}) {
		t.Errorf("Namespaces = %q", got)
	}
}

// The outbox is read a few messages at a time if they are large, from where the last page ended.
func TestOutboxPagesEndByBytes(t *testing.T) {
	w := NewWorld(t)
	w.Round(func(r *Round) {
		for i := range uint64(20) {
			r.Send("default", &schema.Message{Request: task.NewID(1, 1, i), Spec: task.Spec{Type: "job", Payload: make([]byte, 1<<20)}})
		}
	})
	var behind task.ID
	for read := 0; read < 20; {
		page := schema.ListMessages(w.Store, "default", behind, 100)
		if n := len(page); n > 9 || n < 5 && read+n < 20 {
			t.Fatalf("after %d messages of 1 MiB: %d more in a page, want about 6, by their stored size", read, n)
		}
		read += len(page)
		behind = page[len(page)-1].Request
	}
	if page := schema.ListMessages(w.Store, "default", behind, 100); len(page) > 0 {
		t.Errorf("%d messages were listed after the last one", len(page))
	}
}
