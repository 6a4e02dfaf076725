package send

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// Calls that read only may be made again, and no others.
func TestCallsThatReadOnly(t *testing.T) {
	for call, want := range map[string]reading{"ProducerService/ListTasks": true, "ProducerService/GetTask": true, "OperatorService/ListArchive": true,
		"ProducerService/EnqueueBatch": false, "WorkerService/Claim": false, "OperatorService/RestoreArchive": false, "Health/Check": false} {
		if got := readingOf(call); got != want {
			t.Errorf("%s reads only: %v, want %v", call, got, want)
		}
	}
}

// An answer that finds no memory is read again when there is some; one of a call that changes something is kept. Small ones need none.
func TestAnswersWaitForMemory(t *testing.T) {
	payload := make([]byte, 2<<20)
	for _, c := range []struct {
		what  string
		call  reading
		bytes int
		want  int // how often the call is made
		after time.Duration
	}{
		{"a call that reads", true, len(payload), 2, time.Second},
		{"a call that changes something", false, len(payload), 1, time.Second},
		{"a small answer", true, 1000, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory()
			pool := m.others
			if c.call {
				pool = m.reads
			}
			other, err := pool.ReserveFor(t.Context(), "default", "", pool.PerCaller())
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, other.Release)
			ctx, a := m.Begin(t.Context())
			ctx, _ = callinfo.Begin(ctx, task.InterfaceGRPC, "test")
			calls, began := 0, time.Now()
			got, err := c.call.unary(func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var r pawlv1.GetTaskRequest
				calls++
				if err := dec(&r); err != nil || r.GetTaskId() != "x" {
					t.Errorf("%s: call %d has the request %v, %v", c.what, calls, &r, err)
				}
				return &pawlv1.Task{Payload: payload[:c.bytes]}, nil
			})(nil, ctx, func(into any) error { into.(*pawlv1.GetTaskRequest).TaskId = "x"; return nil }, nil)
			if took := time.Since(began); err != nil || calls != c.want || took != c.after || len(got.(*pawlv1.Task).GetPayload()) != c.bytes {
				t.Errorf("%s: %d calls in %v, %v, want %d in %v", c.what, calls, took, err, c.want, c.after)
			}
			if held := a.size(); (held >= int64(2*c.bytes)) != (c.after > 0) {
				t.Errorf("%s: %d bytes are held for an answer of %d", c.what, held, c.bytes)
			}
			a.Release()
			synctest.Wait()
			if now, _, _ := m.InUse(); now != 0 && c.after > 0 {
				t.Errorf("%s: %d bytes are in use in the end", c.what, now)
			}
			time.Sleep(time.Second)
		})
	}
}
