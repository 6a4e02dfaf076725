package engine_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// An edit based on a version in which any field was different is refused and changes nothing, unless the task already is as it asks.
func TestEditsOfSeenTasks(t *testing.T) {
	edits := map[string][2]func(w *engine.World, e *engine.Edit){} // by field, as in the API: two values
	set := func(field string, of func(w *engine.World, e *engine.Edit, n int)) {
		for n := range 2 {
			values := edits[field]
			values[n] = func(w *engine.World, e *engine.Edit) { of(w, e, n) }
			edits[field] = values
		}
	}
	set("run_at", func(w *engine.World, e *engine.Edit, n int) {
		e.RunAt = new(engine.Dawn.Add(time.Duration(n+1) * time.Hour).Time())
	})
	set("priority", func(_ *engine.World, e *engine.Edit, n int) { e.Priority = []task.Priority{task.High, task.Low}[n] })
	set("payload", func(_ *engine.World, e *engine.Edit, n int) { e.Payload = new([]byte{'1' + byte(n)}) })
	set("max_attempts", func(_ *engine.World, e *engine.Edit, n int) { e.MaxAttempts = 7 + n })
	if fields := reflect.TypeFor[engine.Edit]().NumField() - 1; fields != len(edits) {
		t.Fatalf("an edit has %d fields besides its etag, and the test changes %d", fields, len(edits))
	}
	for changed, first := range edits {
		for field, second := range edits {
			w := engine.NewWorld(t)
			a, err := w.Enqueue(task.Spec{Type: "job", Delay: time.Minute, Payload: []byte("0")})
			if err != nil {
				t.Fatal(err)
			}
			etag := func() string {
				x, err := schema.ReadExec(w.Store, "default", a.ID)
				if err != nil {
					t.Fatal(err)
				}
				v := query.View{Envelope: schema.ReadEnvelope(w.Store, "default", a.ID), Exec: x}
				return v.ETag()
			}
			edit := func(of func(*engine.World, *engine.Edit), etag string) error {
				e := engine.Edit{IfETag: etag}
				of(w, &e)
				_, err := engine.Run(w, func(r *engine.Round) (struct{}, error) { return struct{}{}, engine.Update(r, "default", a.ID, e) })
				return err
			}
			seen := etag()
			if err := edit(first[0], seen); err != nil {
				t.Errorf("%s, as seen: %v", changed, err)
			}
			now := etag()
			if err := edit(second[1], seen); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(), changed+" has changed") ||
				etag() != now {
				t.Errorf("%s, after %s was changed: %v, want a conflict", field, changed, err)
			}
			if err := edit(first[0], seen); err != nil {
				t.Errorf("%s, repeated: %v", changed, err)
			}
			if err := edit(second[1], now); err != nil || etag() == now {
				t.Errorf("%s, after %s was changed and seen: %v", field, changed, err)
			}
		}
	}
}
