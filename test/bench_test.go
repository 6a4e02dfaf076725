package test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/node"
)

// The benchmarks run client and server in one process, over TCP and a real disk, so that one profile covers both. What
// users can expect is what pawl bench prints, with a server in a separate process.

func benchClient(b *testing.B) *pawl.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	n, err := node.Start(context.Background(), node.Config{Dir: b.TempDir(), Listener: l})
	if err != nil {
		b.Fatal(err)
	}
	client, err := pawl.Dial(addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = client.Close()
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return client
}

// benchTask returns a task with an incompressible payload.
func benchTask() pawl.RawTask {
	payload := make([]byte, 1024)
	_, _ = rand.Read(payload) // never fails
	return pawl.RawTask{Type: "job", Payload: payload, ContentType: "application/octet-stream"}
}

func BenchmarkEnqueue(b *testing.B) {
	client := benchClient(b)
	job := benchTask()
	for b.Loop() {
		if _, err := client.Enqueue(context.Background(), job); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkEnqueue64Producers(b *testing.B) {
	client := benchClient(b)
	job := benchTask()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Enqueue(context.Background(), job); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func enqueueBatch(b *testing.B, client *pawl.Client, n int) {
	items := slices.Repeat([]pawl.Item{{Args: benchTask()}}, n)
	if _, err := client.EnqueueBatch(context.Background(), items); err != nil {
		b.Error(err)
	}
}

func BenchmarkEnqueueBatch1000(b *testing.B) {
	client := benchClient(b)
	b.SetParallelism(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			enqueueBatch(b, client, 1000)
		}
	})
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkWork runs one worker with 100 slots on a full queue, with a handler that does nothing.
func BenchmarkWork(b *testing.B) {
	client := benchClient(b)
	for done := 0; done < b.N; done += 1000 {
		enqueueBatch(b, client, 1000)
	}
	ctx, stop := context.WithCancel(context.Background())
	var ran atomic.Int64
	mux := pawl.NewMux()
	mux.HandleFunc("job", func(context.Context, *pawl.Claim) error {
		if ran.Add(1) == int64(b.N) {
			stop()
		}
		return nil
	})
	b.ResetTimer()
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 100, Logger: slog.New(slog.DiscardHandler)}).Run(ctx); err !=
			nil {
			b.Error(err)
		}
	})
	worker.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	stop()
}
