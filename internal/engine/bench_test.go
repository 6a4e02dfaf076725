package engine

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The benchmarks run rounds without Raft and fsync, to measure the engine itself. Figures are per task.

const benchBatch = 100

// benchPayload is 1 KiB that compresses about as well as JSON does, by half.
func benchPayload() []byte {
	p := make([]byte, 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(p)/2; i++ {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func BenchWorld(b *testing.B) *World {
	s, err := store.Open(store.Config{Dir: b.TempDir(), FS: vfs.Default})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	w := &World{T: b, Store: s, Now: Dawn, inPlace: true}
	w.BecomeLeader()
	w.PutQueue("default", task.DefaultSettings(), false)
	return w
}

func (w *World) EnqueueMany(n int, payload []byte) { w.enqueueInto("default", n, payload) }

func (w *World) enqueueInto(queue string, n int, payload []byte) {
	w.Round(func(r *Round) {
		for range n {
			_, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: queue,
				Priority: task.Normal, Payload: payload}})
			if err != nil {
				w.T.Fatal(err)
			}
		}
	})
}

func BenchmarkEnqueue(b *testing.B) {
	w := BenchWorld(b)
	payload := benchPayload()
	cpu := cpuTime()
	for b.Loop() {
		w.Now += 1000
		w.EnqueueMany(benchBatch, payload)
	}
	reportPerTask(b, cpu)
}

// reportPerTask reports the time per task, and the CPU time of the whole process including flushes and compactions.
func reportPerTask(b *testing.B, before time.Duration) {
	tasks := float64(b.N) * benchBatch
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/tasks, "ns/task")
	b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/tasks, "cpu-ns/task")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Size returns the size of a benchmark: n, or a twentieth of it with -short, which only checks that it runs.
func Size(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

// BenchmarkLife takes tasks through enqueue, claim and ack, each in a round of its own, over a backlog.
func BenchmarkLife(b *testing.B) {
	for _, backlog := range []int{0, 1_000, 1_000_000} {
		if backlog == 1_000_000 && testing.Short() {
			continue // it takes 15 s to set up
		}
		b.Run(name(backlog), func(b *testing.B) {
			w := BenchWorld(b)
			payload := benchPayload()
			for range backlog / 1000 {
				w.Now += 1000
				w.EnqueueMany(1000, payload)
			}
			cpu := cpuTime()
			for b.Loop() {
				w.Now += 1000
				w.EnqueueMany(benchBatch, payload)
				w.claimAndAck(benchBatch)
			}
			reportPerTask(b, cpu)
		})
	}
}

func (w *World) claimAndAck(n int) {
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: n})
	w.Round(func(r *Round) {
		for _, t := range got {
			if _, err := Ack(r, Hold{Namespace: "default", ID: t.ID, Token: t.Token}, schema.Result{}); err != nil {
				w.T.Fatal(err)
			}
		}
	})
}

// BenchmarkForget is BenchmarkLife with a thousand tasks a second that are forgotten a quarter of an hour after their
// acks: the difference is the cost of forgetting. Mixed: every tenth task stays. Soon: after a minute, so that each
// leaves a row for repeated requests. Keyed: with idempotency keys that expire with them.
func BenchmarkForget(b *testing.B) {
	for _, c := range []struct {
		name  string
		keep  time.Duration
		mixed bool
		keyed bool
	}{{"alike", 15 * time.Minute, false, false}, {"mixed", 15 * time.Minute, true, false}, {"soon", time.Minute, false, false},
		{"keyed", 15 * time.Minute, false, true}} {
		b.Run(c.name, func(b *testing.B) {
			w := BenchWorld(b)
			s := task.DefaultSettings()
			s.Retention.Succeeded = c.keep
			w.PutQueue("default", s, false)
			payload, long := benchPayload(), 1000*time.Hour
			n := 0
			life := func() {
				w.Now = w.Now.Add(time.Second / 10)
				w.Round(func(r *Round) {
					for range benchBatch {
						t := NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default",
							Priority: task.Normal, Payload: payload}}
						if n++; c.mixed && n%10 == 0 {
							t.Spec.Retention = &long
						}
						if c.keyed {
							t.Spec.IdempotencyKey, t.Spec.IdempotencyTTL = strconv.FormatUint(task.Mix(uint64(n)), 36), 15*time.Minute
						}
						if _, err := Enqueue(r, &t); err != nil {
							b.Fatal(err)
						}
					}
				})
				w.claimAndAck(benchBatch)
				w.Round(Tick)
			}
			for range Size(9100) {
				life()
			}
			cpu := cpuTime()
			for b.Loop() {
				life()
			}
			reportPerTask(b, cpu)
		})
	}
}

func name(backlog int) string {
	switch {
	case backlog >= 1_000_000:
		return "behind 1M"
	case backlog > 0:
		return "behind 1k"
	}
	return "empty"
}

// BenchmarkKeys is BenchmarkLife with 100,000 waiting keys, which share fairly. limited: each has limits; plain: the
// same tasks without keys.
func BenchmarkKeys(b *testing.B) {
	keys := Size(100_000)
	for _, kind := range []string{"plain", "keyed", "limited"} {
		b.Run(kind, func(b *testing.B) {
			w := BenchWorld(b)
			key := func(int) string { return "" }
			if kind != "plain" {
				key = func(i int) string { return "tenant-" + strconv.Itoa(i%keys) }
			}
			if kind == "limited" {
				s := task.DefaultSettings()
				s.MaxRunning = 10_000
				s.PerKey.Rules = task.Rules{MaxRunning: 2, Rate: task.Rate{Limit: 100, Period: time.Second}}
				w.PutQueue("default", s, false)
			}
			n := 0
			enqueue := func(many int) {
				w.Now += 1000
				w.Round(func(r *Round) {
					Tick(r)
					for range many {
						n++
						_, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default",
							Priority: task.Normal, Payload: []byte("1"), Key: key(n * 7919)}})
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			for range keys / 1000 {
				enqueue(1000)
			}
			cpu := cpuTime()
			for b.Loop() {
				enqueue(benchBatch)
				got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: benchBatch})
				if len(got) != benchBatch {
					b.Fatalf("claimed %d tasks", len(got))
				}
				w.Round(func(r *Round) {
					for _, t := range got {
						if _, err := Ack(r, Hold{Namespace: "default", ID: t.ID, Token: t.Token}, schema.Result{}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			reportPerTask(b, cpu)
		})
	}
}

// BenchmarkUnique is BenchmarkEnqueue with unique keys: of tasks with a key each, of tasks whose key is held, and of debounced tasks.
func BenchmarkUnique(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int // 0: each its own
		mode task.OnConflict
	}{{"plain", 0, 0}, {"free", 0, task.Keep}, {"kept", 1000, task.Keep}, {"replaced", 1000, task.Replace}} {
		b.Run(c.name, func(b *testing.B) {
			w := BenchWorld(b)
			payload := benchPayload()
			n := 0
			cpu := cpuTime()
			for b.Loop() {
				w.Now += 1000
				w.Round(func(r *Round) {
					for range benchBatch {
						n++
						spec := task.Spec{Type: "job", Queue: "default", Priority: task.Normal, Payload: payload}
						switch {
						case c.keys > 0:
							spec.Unique = &task.Unique{Key: "account-" + strconv.Itoa(n*7919%c.keys), States: task.Unfinished,
								OnConflict: c.mode}
						case c.mode != 0:
							spec.Unique = &task.Unique{Key: "account-" + strconv.Itoa(n), States: task.Unfinished, OnConflict: c.mode}
						}
						if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Fresh: true, Spec: spec}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			reportPerTask(b, cpu)
		})
	}
}
