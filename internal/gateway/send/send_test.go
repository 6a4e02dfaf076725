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
	for call, want := range map[string]reading{"ProducerService/ListTasks": true, "ProducerService/GetTask": true,
		"OperatorService/ListQueues": true, "ProducerService/EnqueueBatch": false, "WorkerService/Claim": false,
		"OperatorService/PurgeQueue": false, "Health/Check": false} {
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
			if took := time.Since(began); err != nil || calls != c.want || took != c.after ||
				len(got.(*pawlv1.Task).GetPayload()) != c.bytes {
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

// What a call reads is counted while it reads, and ends when there is no memory for more. Its answer takes over what
// was taken; what is read too late is not counted. A call that is made again has what its first answer lacked.
func TestReadsEndWithoutMemory(t *testing.T) {
	const step = 64 << 10
	for _, c := range []struct {
		what  string
		free  int64 // of what a caller may have
		reads int   // steps that a call wants to read
		want  int   // steps of its answer
		calls int
	}{
		{"a small page", 32 << 20, 2, 2, 1},
		{"a large page", 32 << 20, 100, 100, 1},
		{"a page that ends early", 10 * copiesOfGRPC * step, 100, 10, 1},
		{"a page without memory for its first item", 0, 100, 1, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory()
			other, err := m.reads.ReserveFor(t.Context(), "default", "", m.reads.PerCaller()-c.free)
			if err != nil {
				t.Fatal(err)
			}
			others := other.Size() // until it is released
			time.AfterFunc(time.Second, other.Release)
			ctx, a := m.Begin(t.Context())
			ctx, _ = callinfo.Begin(ctx, task.InterfaceGRPC, "test")
			calls, late := 0, func(int) bool { return true }
			got, err := reading(true).unary(func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any,
				error) {
				calls++
				n := 1
				late = task.RoomOf(ctx)
				for room := late(step); room && n < c.reads; {
					if now, _, _ := m.InUse(); calls == 1 && now != others+int64(n*step*copiesOfGRPC) {
						t.Errorf("%s: %d bytes are in use when %d were read", c.what, now, n*step)
					}
					if room = late(step); room {
						n++
					}
				}
				if calls == 1 && n > c.want {
					t.Errorf("%s: it reads %d steps, want %d", c.what, n, c.want)
				}
				return &pawlv1.Task{Payload: make([]byte, n*step-100)}, dec(&pawlv1.GetTaskRequest{})
			})(nil, ctx, func(any) error { return nil }, nil)
			n := (len(got.(*pawlv1.Task).GetPayload()) + 100) / step
			if err != nil || calls != c.calls || calls == 1 && n != c.want || n < c.want {
				t.Errorf("%s: %d steps by %d calls, %v, want %d by %d", c.what, n, calls, err, c.want, c.calls)
			}
			if held := a.size(); held < int64(n*step*copiesOfGRPC-1000) || held > int64(n*step*copiesOfGRPC) {
				t.Errorf("%s: the answer holds %d bytes, want those of %d steps", c.what, held, n)
			}
			if late(step) {
				t.Errorf("%s: a read goes on after the call", c.what)
			}
			a.Release()
			time.Sleep(2 * time.Second)
			if now, _, _ := m.InUse(); now != 0 {
				t.Errorf("%s: %d bytes are in use in the end", c.what, now)
			}
		})
	}
}

// What a call has read is given back although it panics.
func TestReadsThatPanic(t *testing.T) {
	m := NewMemory()
	ctx, a := m.Begin(t.Context())
	ctx, _ = callinfo.Begin(ctx, task.InterfaceGRPC, "test")
	func() {
		defer func() { _ = recover() }()
		_, _ = reading(true).unary(func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			task.RoomOf(ctx)(1 << 20)
			if now, _, _ := m.InUse(); now == 0 {
				t.Error("nothing is held while the call reads")
			}
			panic("in a handler")
		})(nil, ctx, func(any) error { return nil }, nil)
	}()
	a.Release()
	if now, _, _ := m.InUse(); now != 0 {
		t.Errorf("%d bytes are in use in the end", now)
	}
}
