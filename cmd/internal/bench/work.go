package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/cmd/internal/cli"
)

// benchWork measures everything after the enqueue, until the server has confirmed the last ack.
func benchWork(ctx context.Context, r *run) (*result, error) {
	if r.tasks == 0 {
		return nil, cli.Usage("--tasks is 0")
	}
	setting := fmt.Sprintf("1 worker, %d slots, from the first claim to the last confirmed ack", r.slots)
	if r.keys > 0 {
		setting += fmt.Sprintf("; %d keys with max_running and a rate", r.keys)
		limits := admin.QueueLimits{MaxRunning: r.slots, Rate: admin.RateLimit{Limit: 1_000_000, Period: time.Second}}
		if _, err := r.app.Admin(r.client).Queues().Put(ctx, r.queue, admin.QueueSettings{PerKey: limits}); err != nil {
			return nil, err
		}
	}
	if err := r.fill(ctx, r.tasks); err != nil {
		return nil, err
	}
	return r.workOff(ctx, setting)
}

// workOff runs a worker until all tasks of the case have run.
func (r *run) workOff(ctx context.Context, setting string) (*result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var left atomic.Int64
	left.Store(int64(r.tasks))
	bar := r.app.Progress("working", r.tasks)
	mux := pawl.NewMux()
	mux.HandleFunc(taskType, func(context.Context, *pawl.Claim) error {
		if n := left.Add(-1); n == 0 {
			stop()
		} else if n&0xfff == 0 {
			bar.Set(r.tasks - int(n))
		}
		return nil
	})
	worker := pawl.NewWorker(r.client, mux, pawl.WorkerConfig{Queues: pawl.Strict{r.queue}, Concurrency: r.slots})
	meter := r.startMeter()
	err := worker.Run(ctx)
	s := meter.stop()
	bar.Done()
	if n := left.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d tasks did not run", n)
	}
	return finish("tasks/s", "", setting, int64(r.tasks), s, nil), err
}

// benchLatency offers tasks at a steady rate, without waiting for earlier ones, and measures the time until their
// handlers start. The payload carries the time at which the call began: producer and worker share a process, and so a
// clock.
func benchLatency(ctx context.Context, r *run) (*result, error) {
	h, s, err := r.latency(ctx, r.duration)
	if err != nil {
		return nil, err
	}
	return finish("tasks/s", "from the begin of Enqueue to the start of the handler",
		fmt.Sprintf("%d/s offered, 1 producer, 1 worker with %d slots", r.rate, r.slots), h.n, s, h), nil
}

// latency offers tasks for d, and waits until the last one has started.
func (r *run) latency(ctx context.Context, d time.Duration) (*histogram, spent, error) {
	if r.rate == 0 {
		return nil, spent{}, cli.Usage("--rate is 0")
	}
	total := int64(d.Seconds() * float64(r.rate))
	epoch := time.Now()
	h := &histogram{}
	var started atomic.Int64
	work, stop := context.WithCancel(ctx)
	defer stop()
	mux := pawl.NewMux()
	mux.HandleFunc(taskType, func(_ context.Context, c *pawl.Claim) error {
		begun := time.Duration(binary.LittleEndian.Uint64(c.Payload))
		if begun > 0 { // call 0 only warms up
			h.record(time.Since(epoch) - begun)
			if started.Add(1) == total {
				stop()
			}
		}
		return nil
	})
	worker := pawl.NewWorker(r.client, mux, pawl.WorkerConfig{Queues: pawl.Strict{r.queue}, Concurrency: r.slots})
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(work) }()
	if err := r.warmUp(ctx); err != nil {
		stop()
		return nil, spent{}, errors.Join(err, <-ran)
	}
	meter := r.startMeter()
	err := offer(ctx, r.rate, total, func() error { return r.enqueueStamped(ctx, epoch) })
	if err != nil {
		stop()
	}
	err = errors.Join(err, <-ran)
	return h, meter.stop(), err
}

// warmUp sets up the connection, the stream and the queue, so that they are not measured.
func (r *run) warmUp(ctx context.Context) error {
	task := r.task()
	task.Payload = make([]byte, len(task.Payload))
	for range 100 {
		ref, err := r.enqueue(ctx, task)
		if err != nil {
			return err
		}
		if _, err := ref.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// offer starts a call at each tick of the rate without waiting for earlier ones to return. It stops at the first error.
func offer(ctx context.Context, rate int, total int64, call func() error) error {
	var calls sync.WaitGroup
	var failed atomic.Pointer[error]
	start, step := time.Now(), time.Second/time.Duration(rate)
	for i := range total {
		time.Sleep(time.Until(start.Add(time.Duration(i) * step)))
		if ctx.Err() != nil || failed.Load() != nil {
			break
		}
		calls.Go(func() {
			if err := call(); err != nil {
				failed.Store(&err)
			}
		})
	}
	calls.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// enqueueStamped enqueues a task that carries its time of enqueue.
func (r *run) enqueueStamped(ctx context.Context, epoch time.Time) error {
	task := r.task()
	task.Payload = slices.Clone(task.Payload)
	binary.LittleEndian.PutUint64(task.Payload, uint64(time.Since(epoch)))
	_, err := r.enqueue(ctx, task)
	return err
}

// depthResult compares claims from a deep queue with claims from a queue of 1,000 tasks.
type depthResult struct {
	Tasks       int          `json:"tasks"`
	FillRate    float64      `json:"fill_per_s"`
	Filled      float64      `json:"resident_mb_filled"`
	AtRest      float64      `json:"resident_mb_at_rest"`
	ShallowRate float64      `json:"claims_per_s_at_1000"`
	Shallow     *percentiles `json:"latency_ms_at_1000"`
}

const shallow = 1000

func benchDepth(ctx context.Context, r *run) (*result, error) {
	if r.deep < shallow || r.claimBatch < 1 || r.claimBatch > shallow {
		return nil, cli.Usage("--tasks must be at least %d and --claim 1 to %d", shallow, shallow)
	}
	flat, deep := *r, *r
	flat.queue += "-shallow"
	defer flat.tidy(ctx)
	if err := flat.fill(ctx, shallow); err != nil {
		return nil, err
	}
	low, lowTook, err := flat.claims(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := deep.fill(ctx, r.deep); err != nil {
		return nil, err
	}
	line := &depthResult{Tasks: r.deep, FillRate: round3(float64(r.deep) / time.Since(start).Seconds()), Filled: residentMB(r.pid)}
	if line.AtRest, err = residentAtRest(ctx, r.pid); err != nil {
		return nil, err
	}
	high, took, err := deep.claims(ctx)
	if err != nil {
		return nil, err
	}
	line.Shallow, line.ShallowRate = low.percentiles(), round3(float64(low.n*int64(r.claimBatch))/lowTook.Seconds())
	out := finish("claimed tasks/s", fmt.Sprintf("one claim of %d", r.claimBatch), "", high.n*int64(r.claimBatch), spent{took: took}, high)
	out.Depth, out.MemoryMB = line, residentMB(r.pid)
	return out, nil
}

// claims claims tasks by hand, with many calls at a time, and returns how long the claims alone took. It acks the tasks
// and enqueues as many, so that the queue stays as deep as it is.
func (r *run) claims(ctx context.Context) (*histogram, time.Duration, error) {
	const rounds = 200
	var h histogram
	var sum time.Duration
	items := r.items(r.claimBatch)
	for range rounds {
		begin := time.Now()
		claimed, err := claims.New(r.client).Claim(ctx, claims.Request{Queues: pawl.Strict{r.queue}, Max: r.claimBatch, Worker: "bench"})
		if err != nil {
			return nil, 0, err
		}
		took := time.Since(begin)
		if len(claimed) != r.claimBatch {
			return nil, 0, fmt.Errorf("a claim of %d got %d tasks", r.claimBatch, len(claimed))
		}
		h.record(took)
		sum += took
		done := make([]claims.Settlement, len(claimed))
		for i, c := range claimed {
			done[i].Claim = c
		}
		if _, err := claims.New(r.client).SettleAll(ctx, done); err != nil {
			return nil, 0, err
		}
		if err := r.enqueueItems(ctx, items); err != nil {
			return nil, 0, err
		}
	}
	return &h, sum, nil
}
