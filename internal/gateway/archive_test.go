package gateway

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// Many large dead letters are restored in calls that a shard takes. One that can't be restored moves no other's result.
func TestDeadLettersAreRestoredInPieces(t *testing.T) {
	f := newFake()
	var places []string
	for i := range 16 { // each is just over 2 MiB: its payload, and the result that it was given
		a := fakeArchived()
		a.ID, a.Payload, a.ContentType, a.IdempotencyTTL = task.NewID(1, 5, uint64(i)).String(), make([]byte, 1<<20), "text/plain", 0
		a.Parent.Result = make([]byte, 1<<20)
		if i == 1 {
			a.Namespace = "other"
		}
		f.archive, places = append(f.archive, a), append(places, fmt.Sprintf("a:%d", i+1))
	}
	var calls []int
	f.enqueues = func(_ context.Context, specs []task.Spec) { calls = append(calls, len(specs)) }
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	got, err := newGateway(f).services.operator.RestoreArchive(ctx, &pawlv1.RestoreArchiveRequest{Places: places})
	if want := []int{7, 7, 1}; err != nil || len(got.Results) != len(places) || !slices.Equal(calls, want) {
		t.Fatalf("RestoreArchive enqueued calls of %v, %v, want %v; it answered %v", calls, err, want, got)
	}
	for i, r := range got.Results {
		if refused := i == 1; (r.Error != nil) != refused || (r.TaskId == "") != refused || r.Place != places[i] {
			t.Errorf("result %d is %v", i, r)
		}
	}
}

// A restored task takes over all that is known of what it followed.
func TestOriginsOfRestoredTasks(t *testing.T) {
	id := task.NewID(1, 2, 3)
	a := &broker.ArchivedTask{ID: id.String(), EndedAt: time.Unix(1e9, 0)}
	a.Parent = &broker.ArchivedParent{TaskID: id.String(), GroupID: id.String(), Result: []byte("1"), ContentType: "x/y", Omitted: true}
	got, err := archivedOrigin(a)
	want := origin{id: id, ended: a.EndedAt, parent: &task.Parent{ID: id, Group: id, Result: []byte("1"), ContentType: "x/y", Omitted: true}}
	if err != nil || !reflect.DeepEqual(got, want) || got.bytes() != 1 {
		t.Errorf("the origin of %+v is %+v, %d bytes, %v", a, got, got.bytes(), err)
	}
	for i := range reflect.ValueOf(*want.parent).NumField() {
		if reflect.ValueOf(*want.parent).Field(i).IsZero() {
			t.Errorf("the test has no value for %s", reflect.TypeFor[task.Parent]().Field(i).Name)
		}
	}
}
