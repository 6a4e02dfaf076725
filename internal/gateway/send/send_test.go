package send

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// What a call is expected to read follows from its limit, and from whether its answer has payloads. What changes something, or waits, reserves
// nothing before.
func TestExpectedAnswers(t *testing.T) {
	for _, c := range []struct {
		call    string
		request proto.Message
		want    int64
	}{
		{"ProducerService/ListTasks", &pawlv1.ListTasksRequest{}, contract.DefaultPage * itemBytes},
		{"ProducerService/ListTasks", &pawlv1.ListTasksRequest{Limit: 1000}, 1000 * itemBytes},
		{"ProducerService/ListTasks", &pawlv1.ListTasksRequest{Limit: 1 << 30}, contract.MaxPage * itemBytes},
		{"ProducerService/ListTasks", &pawlv1.ListTasksRequest{Limit: 3, WithPayload: true}, 3 * contentBytes},
		{"ProducerService/ListTasks", &pawlv1.ListTasksRequest{WithPayload: true}, pageBytes},
		{"OperatorService/ListArchive", &pawlv1.ListArchiveRequest{}, pageBytes},
		{"OperatorService/ListDead", &pawlv1.ListDeadRequest{Limit: -1}, pageBytes},
		{"ProducerService/GetTask", &pawlv1.GetTaskRequest{}, 0},
		{"ProducerService/EnqueueBatch", &pawlv1.EnqueueBatchRequest{}, 0},
		{"WorkerService/Claim", &pawlv1.ClaimRequest{Max: 1000}, 0},
	} {
		if contract.Calls()[c.call] == nil {
			t.Errorf("there is no call %s", c.call)
		}
		if got := readingOf(c.call).expects(c.request.ProtoReflect()); got != c.want {
			t.Errorf("%s with %v expects %d bytes, want %d", c.call, c.request, got, c.want)
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
		{"a call that reads", reading{repeats: true}, len(payload), 2, time.Second},
		{"a call that changes something", reading{}, len(payload), 1, time.Second},
		{"a small answer", reading{repeats: true}, 1000, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory()
			pool := m.others
			if c.call.repeats {
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
