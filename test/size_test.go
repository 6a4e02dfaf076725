package test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
)

// startBudget is the time in which a server with a million tasks must serve again after kill -9.
const startBudget = 5 * time.Second

// TestStartWithManyTasks kills a server with many tasks of 1 KiB on its disk, and measures the time until the next one
// serves, and its memory. PAWL_TASKS sets how many. Like TestIdle it measures, and so runs alone.
func TestStartWithManyTasks(t *testing.T) {
	const batch = 1000
	n := count(t, "PAWL_TASKS", 20_000)
	n -= n % batch
	s := newServer(t)
	s.start()
	began := time.Now()
	enqueueMany(t, s, n, batch)
	t.Logf("%d tasks were enqueued in %s; resident memory %d MiB", n, time.Since(began).Round(time.Millisecond), s.memory("VmRSS"))
	s.kill()
	took := s.start()
	ready := s.memory("VmRSS")
	client := s.dial()
	queue, err := admin.New(client).Queues().Get(t.Context(), "many")
	if err != nil {
		t.Fatal(err)
	}
	if queue.Depth.Ready != int64(n) {
		t.Errorf("%d tasks are ready, but %d were enqueued", queue.Depth.Ready, n)
	}
	claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"many"}, Max: 100})
	if err != nil || len(claimed) != 100 {
		t.Errorf("%d tasks were claimed, %v, want 100", len(claimed), err)
	}
	budget(t, fmt.Sprintf("start with %d tasks after kill -9", n), took, startBudget)
	t.Logf("resident memory was %d MiB when the server was ready, and %d MiB at its peak", ready, s.memory("VmHWM"))
}

// enqueueMany enqueues n tasks of 1 KiB, several batches at a time.
func enqueueMany(t *testing.T, s *server, n, batch int) {
	t.Helper()
	client := s.dial()
	items := make([]pawl.Item, batch)
	for i := range items {
		items[i] = pawl.Item{Args: pawl.RawTask{Type: "job", Payload: payload(i), ContentType: "application/octet-stream"},
			Options: []pawl.Option{pawl.Queue("many")}}
	}
	batches := make(chan struct{}, n/batch)
	for range n / batch {
		batches <- struct{}{}
	}
	close(batches)
	var clients sync.WaitGroup
	for range producers {
		clients.Go(func() {
			for range batches {
				if _, err := client.EnqueueBatch(t.Context(), items); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// payload returns 1 KiB that doesn't compress to nothing.
func payload(n int) []byte {
	b := make([]byte, 1024)
	x := uint32(n)*2_654_435_761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// TestIdle keeps many claims waiting on empty queues: an idle server makes no rounds, and uses next to no CPU time.
// PAWL_IDLE_SECONDS sets the duration.
func TestIdle(t *testing.T) {
	const polls, streams = 50, 50
	window := time.Duration(count(t, "PAWL_IDLE_SECONDS", 3)) * time.Second
	s := newServer(t)
	s.start()
	client := s.dial()
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer func() { stop(); waiting.Wait() }()
	for n := range polls {
		waiting.Go(func() {
			for ctx.Err() == nil {
				_, _ = claims.New(client).Claim(ctx, claims.Request{Queues: pawl.Strict{"polled", "other"}, Wait: time.Minute,
					Worker: fmt.Sprint(n)})
			}
		})
	}
	mux := pawl.NewMux()
	ran := make(chan struct{}, 1)
	mux.HandleFunc("job", func(context.Context, *pawl.Claim) error { ran <- struct{}{}; return nil })
	for range streams {
		waiting.Go(func() {
			_ = pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"pushed"}, Concurrency: 1,
				Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
	}
	// A task that runs shows that the streams are open, and its effects have settled when the index stops changing.
	if _, err := client.Enqueue(ctx, pawl.RawTask{Type: "job"}, pawl.Queue("pushed")); err != nil {
		t.Fatal(err)
	}
	<-ran
	index, since := s.index(client), time.Now()
	eventually(t, "the server comes to rest", startLimit, func() bool {
		if now := s.index(client); now != index {
			index, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})

	cpu, wrote := s.cpu(), s.wrote()
	time.Sleep(window) // the test is that nothing happens
	cpu, wrote = s.cpu()-cpu, s.wrote()-wrote
	if now := s.index(client); now != index {
		t.Errorf("the log grew from entry %d to %d while the server was idle", index, now)
	}
	t.Logf("%d waiting claims and %d streams for %s: %s of CPU (%.2f %% of a core), %d bytes to disk; resident memory %d MiB",
		polls, streams, window, cpu, 100*cpu.Seconds()/window.Seconds(), wrote, s.memory("VmRSS"))
}

// index returns the sum of the last log indexes of all shards.
func (s *server) index(client *pawl.Client) (sum uint64) {
	s.t.Helper()
	info, err := admin.New(client).Cluster().Server(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, shard := range info.Shards {
		sum += shard.Index
	}
	return sum
}

// memory returns a figure of the process in MiB: VmRSS or VmHWM.
func (s *server) memory(figure string) int {
	s.t.Helper()
	return s.figure("status", figure+":") >> 10
}

// wrote returns how many bytes the process has written to disks.
func (s *server) wrote() int {
	s.t.Helper()
	return s.figure("io", "write_bytes:")
}

// figure reads the number after a name in a file in /proc.
func (s *server) figure(file, name string) int {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.pid(), file))
	if err != nil {
		s.t.Fatal(err)
	}
	fields := strings.Fields(string(b))
	for i, f := range fields[:len(fields)-1] {
		if f == name {
			n, err := strconv.Atoi(fields[i+1])
			if err != nil {
				s.t.Fatal(err)
			}
			return n
		}
	}
	s.t.Fatalf("%q is missing in %s", name, b)
	return 0
}

// clockTick is the unit of times in /proc/PID/stat, the same on all Linux architectures.
const clockTick = 10 * time.Millisecond

// cpu returns the CPU time that the process has used.
func (s *server) cpu() time.Duration {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))
	if err != nil {
		s.t.Fatal(err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third on: the second may contain anything
	user, err1 := strconv.Atoi(string(fields[11]))
	system, err2 := strconv.Atoi(string(fields[12]))
	if err1 != nil || err2 != nil {
		s.t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * clockTick
}
