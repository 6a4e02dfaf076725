package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
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
