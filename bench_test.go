package pawl_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// startTCP runs a fake that keeps no records on a loopback port. With synced, each answer waits until a write is synced: one write
// after the other, each for all that are waiting.
func startTCP(b *testing.B, synced bool, opts ...pawl.DialOptions) (*fake, *pawl.Client) {
	f := newFake()
	b.Cleanup(f.stop)
	f.lean = true
	if synced {
		rounds := newRounds(b)
		f.before = func(string) error { rounds.wait(); return nil }
		f.commit = rounds.wait
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go f.server.Serve(l)
	client, err := pawl.Dial(l.Addr().String(), append(opts, pawl.DialOptions{Logger: slog.New(slog.DiscardHandler)})...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return f, client
}

// rounds runs group commits.
type rounds struct {
	mu    sync.Mutex
	next  chan struct{} // closed when the next round has ended
	begin chan struct{}
}

func newRounds(b *testing.B) *rounds {
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	r := &rounds{next: make(chan struct{}), begin: make(chan struct{}, 1)}
	block := make([]byte, 32<<10)
	go func() {
		defer file.Close()
		for {
			select {
			case <-r.begin:
			case <-b.Context().Done():
				return
			}
			r.mu.Lock()
			done := r.next
			r.next = make(chan struct{})
			r.mu.Unlock()
			file.WriteAt(block, 0)
			if err := file.Sync(); err != nil {
				b.Error(err)
			}
			close(done)
		}
	}()
	return r
}

func (r *rounds) wait() {
	r.mu.Lock()
	done := r.next
	r.mu.Unlock()
	select {
	case r.begin <- struct{}{}:
	default:
	}
	<-done
}

var kilobyte = pawl.RawTask{Type: "mail.welcome", Payload: []byte(`{"to":"` + strings.Repeat("x", 1000) + `"}`)}

// BenchmarkBareCall is an empty gRPC call, the baseline for the others.
func BenchmarkBareCall(b *testing.B) {
	_, client := startTCP(b, false)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := admin.New(client).Cluster().Server(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnqueue is one producer that waits for each answer.
func BenchmarkEnqueue(b *testing.B) {
	for _, synced := range []bool{false, true} {
		b.Run(fmt.Sprintf("synced=%v", synced), func(b *testing.B) {
			_, client := startTCP(b, synced)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Enqueue(b.Context(), kilobyte); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// BenchmarkEnqueueParallel is 64 producers that wait for each answer.
func BenchmarkEnqueueParallel(b *testing.B) {
	for _, synced := range []bool{false, true} {
		b.Run(fmt.Sprintf("synced=%v", synced), func(b *testing.B) {
			f, client := startTCP(b, synced)
			b.ReportAllocs()
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var producers sync.WaitGroup
			for range 64 {
				producers.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := client.Enqueue(b.Context(), kilobyte); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			producers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64(b.N)/float64(f.requestCount.Load()), "tasks/request")
		})
	}
}

// BenchmarkEnqueueBatch is one producer with batches of 1,000.
func BenchmarkEnqueueBatch(b *testing.B) {
	_, client := startTCP(b, false)
	items := make([]pawl.Item, 1000)
	for i := range items {
		items[i].Args = kilobyte
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.EnqueueBatch(b.Context(), items); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkWorker is one worker with 100 slots and a handler that does nothing, on a full queue.
func BenchmarkWorker(b *testing.B) {
	for _, synced := range []bool{false, true} {
		b.Run(fmt.Sprintf("synced=%v", synced), func(b *testing.B) {
			f, client := startTCP(b, synced)
			f.fill(b.N, kilobyte)
			var left atomic.Int64
			left.Store(int64(b.N))
			ctx, stop := context.WithCancel(b.Context())
			mux := pawl.NewMux()
			mux.HandleFunc("mail.welcome", func(context.Context, *pawl.Claim) error {
				if left.Add(-1) == 0 {
					stop()
				}
				return nil
			})
			b.ReportAllocs()
			b.ResetTimer()
			if err := pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 100}).Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64(b.N)/float64(f.requestCount.Load()), "tasks/frame")
		})
	}
}
