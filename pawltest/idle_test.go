package pawltest_test

import (
	"context"
	"math"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltest"
)

// wakeUps estimates how often goroutines of this process have started to run: the runtime samples how long one in eight
// had waited for that. The estimate is about the same on a busy machine.
func wakeUps() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, c := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * c
	}
	return n
}

// A day of fake time costs almost nothing while there is nothing to do. A loop that checks something every second would
// wake up 86,400 times. At some
// 1.5 µs each the day takes 0.04 s of CPU without a worker, and 0.1 s with one.
func TestIdleDayCostsNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		worker bool
		most   uint64
	}{{"alone", false, 50_000}, {"with a worker", true, 130_000}} {
		synctest.Test(t, func(t *testing.T) {
			client := pawltest.New(t).Client(t)
			ran := make(chan bool, 1)
			handle := func(context.Context, *pawl.Task[resize]) error { ran <- true; return nil }
			if c.worker {
				mux := pawl.NewMux()
				pawl.Handle(mux, handle)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 10}).Run(ctx) }()
				defer func() {
					if stop(); <-done != nil {
						t.Errorf("%s: the worker ended with an error", c.name)
					}
				}()
				enqueue(t, client, resize{1})
				<-ran
			}
			time.Sleep(time.Minute)
			least := uint64(math.MaxUint64) // of three days: a busy machine wakes up more than the broker does
			for range 3 {
				before := wakeUps()
				time.Sleep(24 * time.Hour)
				least = min(least, wakeUps()-before)
			}
			if least > c.most {
				t.Errorf("%s: %d wake-ups in an idle day, want at most %d", c.name, least, c.most)
			}
			if !c.worker {
				return
			}
			began := time.Now()
			enqueue(t, client, resize{2}, pawl.In(24*time.Hour))
			if <-ran; time.Since(began).Round(time.Second) != 24*time.Hour {
				t.Errorf("%s: a task that was due in a day ran after %s", c.name, time.Since(began))
			}
		})
	}
}
