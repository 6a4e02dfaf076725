package gateway

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// idle is a broker that does nothing, so that benchmarks measure the gateway alone.
type idle struct{ *fake }

func (idle) Enqueue(_ context.Context, shard uint32, _ string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	out := make([]broker.Enqueued, len(specs))
	for i := range out {
		out[i].Accepted = broker.Accepted{ID: task.NewID(shard, 1, uint64(i)), State: task.Ready, CreatedAt: 1}
	}
	return out, broker.Stamp{Shard: shard, Index: 1, Time: 1}, nil
}

func (idle) Settle(_ context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	out := make([]broker.Settled, len(calls))
	for i := range out {
		out[i].State = task.Succeeded
	}
	return out, broker.Stamp{Shard: shard, Index: 1, Time: 1}, nil
}

type idleCluster struct{ fakeCluster }

func (idleCluster) Place(_ context.Context, _, name string) (queues.Queue, error) {
	return queues.Queue{Name: name, Shard: 1}, nil
}
func (idleCluster) Queue(_ context.Context, _, name string) (queues.Queue, bool, error) {
	return queues.Queue{Name: name, Shard: 1}, true, nil
}

func newIdle() *Gateway {
	f := newFake()
	cfg := f.config()
	cfg.Broker, cfg.Cluster = idle{f}, idleCluster{fakeCluster{f}}
	return New(cfg)
}

func batchOf(n int) *pawlv1.EnqueueBatchRequest {
	payload := append(append([]byte(`{"to":"`), make1K()...), `"}`...)
	r := &pawlv1.EnqueueBatchRequest{}
	for range n {
		r.Tasks = append(r.Tasks, &pawlv1.TaskSpec{Type: "mail", Queue: new("default"), Payload: payload,
			RequestId: new("0199a0e4-0f4c-7001-8000-000000000001")})
	}
	return r
}

func make1K() []byte {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// A thousand tasks of 1 KiB are decoded, checked, answered and encoded, without a network or a broker.
func BenchmarkEnqueueBatch(b *testing.B) {
	g := newIdle()
	wire, _ := proto.Marshal(batchOf(1000))
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	b.ReportAllocs()
	for b.Loop() {
		r := &pawlv1.EnqueueBatchRequest{}
		if err := proto.Unmarshal(wire, r); err != nil {
			b.Fatal(err)
		}
		got, err := g.services.producer.EnqueueBatch(ctx, r)
		if err != nil || got.Results[999].Task == nil {
			b.Fatal(got, err)
		}
		if _, err := proto.Marshal(got); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}

// The same without protobuf measures the cost of the gateway itself.
func BenchmarkEnqueueBatchService(b *testing.B) {
	g := newIdle()
	r := batchOf(1000)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (g.services.producer).EnqueueBatch(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkSettle(b *testing.B) {
	g := newIdle()
	r := &pawlv1.SettleRequest{}
	for range 100 {
		r.Acks = append(r.Acks, &pawlv1.AckRequest{TaskId: "0199a0e4-0f4c-7001-8000-000000000001",
			ClaimToken: task.Token{Epoch: 1, Fence: 1,
				Nonce: 7}.String()})
	}
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (g.services.worker).Settle(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "acks/s")
}

// Sequential and concurrent calls, over the listener and loopback.
func BenchmarkEnqueueOverTCP(b *testing.B) {
	g := newIdle()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Shutdown(ctx)
	})
	p := pawlv1.NewProducerServiceClient(conn)
	one := &pawlv1.EnqueueRequest{Task: batchOf(1).Tasks[0]}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Enqueue(b.Context(), one); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := p.Enqueue(b.Context(), one); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	many := batchOf(1000)
	b.Run("batch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.EnqueueBatch(b.Context(), many); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
	})
}

// REST without network and broker: one task, and a batch of a hundred of 1 KiB.
func BenchmarkREST(b *testing.B) {
	h := newIdle().Handler()
	one := `{"type":"mail.welcome","queue":"mail","payload":{"to":"` + string(make1K()) + `"}}`
	for name, c := range map[string]struct{ path, body string }{
		"enqueue": {"/api/v1/tasks", one},
		"batch":   {"/api/v1/tasks/batch", `{"tasks":[` + strings.Repeat(one+",", 99) + one + `]}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", ours+c.path, strings.NewReader(c.body)))
				if w.Code >= 300 {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
