package broker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The benchmarks run the whole write path on a real disk with its syncs, but without the network. BenchmarkBareSync of
// package shard shows what the disk allows.

func benchBroker(b *testing.B) *Broker {
	dir := b.TempDir()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	logs, err := raftlog.Open(raftlog.Config{Dir: dir + "/log"})
	must(err)
	state, err := store.Open(store.Config{Dir: dir + "/state", Identity: store.Identity{Shard: one}})
	must(err)
	dead, err := archive.Open(archive.Config{Dir: dir + "/archive"})
	must(err)
	var group *shard.Shard
	br := New(Config{Limits: task.DefaultLimits(), Archive: dead, Stats: stats.New(time.Now()), Namespaces: func() []string { return nil }})
	must(br.Add(one, func(h shard.Hooks) (*shard.Shard, error) {
		group, err = shard.Start(shard.Config{ID: one, Replica: 1, Voters: []uint64{1}, Log: logs, State: state, Hooks: h})
		return group, err
	}))
	br.Start()
	b.Cleanup(func() {
		br.Stop()
		group.Stop()
		_, _, _ = state.Close(), logs.Close(), dead.Close()
	})
	must(copyQueues(context.Background(), br, one, map[string]task.QueueConfig{"q": {Version: 1, Settings: task.DefaultSettings()}}))
	return br
}

func benchSpecs(n int) []task.Spec {
	specs := make([]task.Spec, n)
	for i := range specs {
		specs[i] = task.Spec{Type: "job", Queue: "q", Payload: make([]byte, 1024)}
		specs[i].Fill()
	}
	return specs
}

func benchmarkEnqueue(b *testing.B, br *Broker, batch int) {
	b.ReportAllocs()
	b.SetBytes(int64(batch) * 1024)
	b.RunParallel(func(pb *testing.PB) {
		specs := benchSpecs(batch)
		for pb.Next() {
			if _, _, err := br.Enqueue(context.Background(), one, ns, specs); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkEnqueueOne(b *testing.B) {
	br := benchBroker(b)
	b.SetParallelism(1)
	specs := benchSpecs(1)
	for b.Loop() {
		if _, _, err := br.Enqueue(context.Background(), one, ns, specs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkEnqueue64Callers(b *testing.B) {
	br := benchBroker(b)
	b.SetParallelism(32)
	benchmarkEnqueue(b, br, 1)
}

func BenchmarkEnqueueBatch1000(b *testing.B) {
	br := benchBroker(b)
	b.SetParallelism(2)
	benchmarkEnqueue(b, br, 1000)
}

// BenchmarkClaimAck drains a full queue, 100 tasks at a time, with four callers.
func BenchmarkClaimAck(b *testing.B) {
	br := benchBroker(b)
	const batch = 100
	for range max(b.N*batch/1000, 1) + 1 {
		if _, _, err := br.Enqueue(context.Background(), one, ns, benchSpecs(1000)); err != nil {
			b.Fatal(err)
		}
	}
	var done atomic.Int64
	b.SetParallelism(2)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			got, _, err := br.Claim(context.Background(), one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "q"}}, Max: batch,
				MaxBytes: 4 << 20}, 0)
			if err != nil {
				b.Error(err)
			}
			acks := make([]Settle, len(got))
			for i, t := range got {
				acks[i] = Settle{Verb: Ack, Hold: hold(t)}
			}
			if _, _, err := br.Settle(context.Background(), one, acks); err != nil {
				b.Error(err)
			}
			done.Add(int64(len(got)))
		}
	})
	b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkLook checks 100 claims that their holders still have.
func BenchmarkLook(b *testing.B) {
	br := benchBroker(b)
	if _, _, err := br.Enqueue(context.Background(), one, ns, benchSpecs(1000)); err != nil {
		b.Fatal(err)
	}
	got, _, err := br.Claim(context.Background(), one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "q"}}, Max: 100, MaxBytes: 4 << 20},
		0)
	if err != nil || len(got) != 100 {
		b.Fatal(len(got), err)
	}
	watch := br.WatchClaims(func(l Lost) { b.Errorf("the claim %v was reported as lost", l) }, func([]Hold) {})
	r, err := br.replica(one)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, t := range got {
			watch.Add(hold(t))
		}
		r.checkWatched(context.Background())
	}
}

// BenchmarkQueueStatuses reads the status of 10,000 queues, of which 1,000 have ready tasks.
func BenchmarkQueueStatuses(b *testing.B) {
	br := benchBroker(b)
	configs := map[string]task.QueueConfig{}
	for i := range 10_000 {
		configs[fmt.Sprintf("queue-%d", i)] = task.QueueConfig{Version: 1, Settings: task.DefaultSettings()}
	}
	if err := copyQueues(context.Background(), br, one, configs); err != nil {
		b.Fatal(err)
	}
	specs := benchSpecs(len(configs))
	for i := range specs {
		specs[i].Queue = fmt.Sprintf("queue-%d", i)
		if i >= 1000 {
			specs[i].Delay = time.Hour
		}
	}
	if _, _, err := br.Enqueue(context.Background(), one, ns, specs); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		parts, err := br.statusesOf(context.Background(), []uint32{one})
		if err != nil || len(parts[0].all) != 10_001 { // and one that is shared by all benchmarks
			b.Fatalf("got %d shards, %v", len(parts), err)
		}
	}
}

// BenchmarkOutboxPass goes through the messages for a shard that does not answer.
func BenchmarkOutboxPass(b *testing.B) {
	const messages, batch = 20_000, 1000
	br := benchBroker(b)
	br.cfg.SendOutbox = func(_ context.Context, _ string, messages []*OutboxMessage) []Enqueued {
		out := make([]Enqueued, len(messages))
		for i := range out {
			out[i].Err = task.ErrUnavailable
		}
		return out
	}
	br.cfg.ShardOf = func(string, string, int) uint32 { return two }
	r, err := br.replica(one)
	if err != nil {
		b.Fatal(err)
	}
	spec := benchSpecs(1)[0]
	for first := range messages / batch {
		_, _, err := change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
			for i := range batch {
				m := OutboxMessage{Request: task.NewID(one, 1, uint64(first*batch+i)), Spec: spec}
				m.Put(round.Tx(), ns) // which does not wake the shard's own sender
			}
			return struct{}{}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	s := &outboxSender{r: r, wake: make(chan struct{}, 1)}
	for b.Loop() {
		pass := outboxPass{s: s}
		if err := pass.run(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*messages), "ns/message")
}

// BenchmarkRoundOfLargePayloads measures how long a round with ten JSON payloads of 1 MiB holds the shard.
func BenchmarkRoundOfLargePayloads(b *testing.B) {
	br := benchBroker(b)
	specs := benchSpecs(10)
	for i := range specs {
		specs[i].Payload = []byte(`{"rows":[` + strings.Repeat(`{"b":1.50,"a":"x"},`, 55_000) + `0]}`)
	}
	r, err := br.replica(one)
	if err != nil {
		b.Fatal(err)
	}
	var held time.Duration
	for b.Loop() {
		tasks, _ := r.newTasks(ns, specs)
		_, _, err := changeOf(context.Background(), r, ns, func(round *engine.Round) (any, error) {
			began := time.Now()
			defer func() { held += time.Since(began) }()
			for i := range tasks {
				if _, err := engine.Enqueue(round, &tasks[i]); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(held.Milliseconds())/float64(b.N), "ms-held/op")
}
