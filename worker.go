package pawl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/work"
	"github.com/pawlq/pawl/internal/version"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// WorkerConfig configures a Worker. Only Queues is usually set; zero fields have defaults.
type WorkerConfig struct {
	Queues       Queues        // Weighted or Strict; default Strict{"default"}
	Concurrency  int           // handlers to run at once, at most 10,000; default 10
	Lease        time.Duration // 1 s to 12 h, extended while the handler runs; default: the queue's
	DrainTimeout time.Duration // for handlers to finish once Run's context has ended; default 25 s, negative: none
	MaxBytes     int64         // of tasks in one push; default 4 MiB
	Name         string        // shown in attempt logs and in lists of workers; default host/pid
	Logger       *slog.Logger  // default: the client's

	// OnError is called for each run that has failed, with the error as it was logged, for example to send it to an error
	// tracker. Runs that were stopped, because the worker drains, the task was cancelled or the lease was lost, have not
	// failed; nor have those that discard or snooze their tasks. OnError runs before the slot takes another task, and a
	// worker that drains waits for it as for a handler. Its context has the handler's values, and has not ended.
	OnError func(ctx context.Context, c *Claim, err error)
	// OnPanic is called instead of OnError for a run that has panicked. nil: OnError is called, with a *PanicError.
	OnPanic func(ctx context.Context, c *Claim, panicked *PanicError)
}

const (
	defaultConcurrency  = 10
	maxConcurrency      = 10_000
	defaultDrainTimeout = 25 * time.Second // systemd and Kubernetes kill after 30 s or more
	minLease            = time.Second
	maxLease            = 12 * time.Hour
)

// Worker claims tasks over one long-lived stream and runs their handlers, up to Concurrency at a time.
type Worker struct {
	client *Client
	mux    *Mux
	cfg    WorkerConfig

	mu   sync.Mutex
	run  *work.Run // the latest, nil before the first
	runs bool
}

// NewWorker returns a worker. Run starts it, and returns an error if cfg is invalid.
func NewWorker(client *Client, mux *Mux, cfg WorkerConfig) *Worker {
	if cfg.Queues == nil {
		cfg.Queues = Strict{"default"}
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = defaultConcurrency
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = defaultDrainTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = client.core.Log
	}
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = convert.CutText(fmt.Sprintf("%s/%d", host, os.Getpid()), 256)
	}
	return &Worker{client: client, mux: mux, cfg: cfg}
}

// Run claims and runs tasks until ctx ends, and then drains: it takes no more tasks, lets handlers finish for
// DrainTimeout, ends the remaining contexts with ErrDraining, releases those tasks so that no attempt is used, and
// returns nil. A handler that is still running a second later is left behind. The contexts of handlers have the values
// of ctx, but don't end with it.
//
// If the connection breaks, the worker reconnects for as long as it takes. Handlers keep running meanwhile, and their
// outcomes are reported afterwards. Run returns an error if the configuration is invalid, if the broker refuses the
// worker when it first connects, if it later rejects the worker's credentials for a minute (ErrUnauthenticated,
// ErrPermissionDenied: the token was revoked or has expired), if the client was closed (ErrClosed), or if, at the end,
// the outcomes of some tasks could not be reported: those run again after their leases expire. The program should then
// exit, so that its supervisor notices.
func (w *Worker) Run(ctx context.Context) error {
	hello, err := w.hello()
	if err != nil {
		return fmt.Errorf("worker %q: %w", w.cfg.Name, err)
	}
	w.mu.Lock()
	if w.runs {
		w.mu.Unlock()
		return fmt.Errorf("worker %q: already running", w.cfg.Name)
	}
	run := w.newRun(ctx, hello)
	w.run, w.runs = run, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.runs = false
		w.mu.Unlock()
	}()
	if err := run.Do(ctx); err != nil {
		return fmt.Errorf("worker %q: %w", w.cfg.Name, err)
	}
	return nil
}

// hello checks the configuration and returns the first frame of the stream.
func (w *Worker) hello() (*pawlv1.WorkHello, error) {
	shares, order, err := convert.QueueShares(w.cfg.Queues)
	if err != nil {
		return nil, err
	}
	types := w.mux.Types()
	switch c := w.cfg; {
	case len(types) == 0 || len(types) > convert.MaxClaimTypes:
		return nil, convert.Invalid("types", "the mux has handlers for %d types, want 1 to %d", len(types), convert.MaxClaimTypes)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return nil, convert.Invalid("concurrency", "is %d, want 1 to %d", c.Concurrency, maxConcurrency)
	case c.Lease != 0 && (c.Lease < minLease || c.Lease > maxLease):
		return nil, convert.Invalid("lease", "is %s, want %s to %s", c.Lease, minLease, maxLease)
	case c.MaxBytes < 0:
		return nil, convert.Invalid("max_bytes", "is %d", c.MaxBytes)
	case len(c.Name) > 256 || !utf8.ValidString(c.Name):
		return nil, convert.Invalid("worker", "%q is not at most 256 bytes of UTF-8", c.Name)
	}
	host, _ := os.Hostname()
	return &pawlv1.WorkHello{
		Queues: shares, Order: order, Types: types, Lease: convert.Duration(w.cfg.Lease), Worker: w.cfg.Name,
		MaxBytes: w.cfg.MaxBytes, Host: convert.CutText(host, 256), Pid: convert.Int32(os.Getpid()), Version: version.Version,
		Slots: convert.Int32(w.cfg.Concurrency), Instance: rand.Text(),
	}, nil
}

// Stats returns the statistics of the latest Run.
func (w *Worker) Stats() pawltype.WorkerStats {
	w.mu.Lock()
	run := w.run
	w.mu.Unlock()
	if run == nil {
		return pawltype.WorkerStats{}
	}
	return run.Stats()
}

// disconnectedTooLong is how long a worker can be disconnected before it reports itself as unhealthy.
const disconnectedTooLong = 30 * time.Second

// Health returns nil while the worker is running and has not been disconnected for more than 30 s; for liveness probes.
func (w *Worker) Health() error {
	w.mu.Lock()
	runs, run := w.runs, w.run
	w.mu.Unlock()
	if !runs {
		return errors.New("pawl: worker is not running")
	}
	if gone := run.Disconnected(time.Now()); gone > disconnectedTooLong {
		return fmt.Errorf("pawl: worker has no connection for %s: %w", gone.Round(time.Second), pawltype.ErrUnavailable)
	}
	return nil
}

// newRun returns the loop that claims tasks and settles them.
func (w *Worker) newRun(ctx context.Context, hello *pawlv1.WorkHello) *work.Run {
	c, handle := w.client, w.mux.Handler()
	var router work.Router
	if c.core.Router != nil {
		router = c.core.Router
	}
	return work.NewRun(ctx, work.Config{Caller: c.core.Caller, Worker: pawlv1.NewWorkerServiceClient(c.core),
		Calls: lease.NewCalls(c.core.Caller, c.core.Telemetry), Router: router, Telemetry: c.core.Telemetry,
		Log: w.cfg.Logger, Hello: hello, Name: w.cfg.Name, Concurrency: w.cfg.Concurrency, DrainTimeout: w.cfg.DrainTimeout,
		NewJob: func(p *pawlv1.ClaimedTask,
			h lease.Holder) work.Job {
			j := &job{worker: w, handle: handle}
			unreadable := outcome.OpenClaimed(c.core.Conn, p) // changes p
			j.claim.set(p, h, unreadable)
			return j
		}})
}

// job is a task and its handler.
type job struct {
	worker *Worker
	claim  Claim
	handle Handler
}

// Run implements work.Job.
func (j *job) Run(ctx context.Context) error {
	if j.claim.unreadable != nil {
		return j.claim.unreadable
	}
	return j.handle(ctx, &j.claim)
}

// Result implements work.Job.
func (j *job) Result() (data []byte, contentType string) { return j.claim.result, j.claim.resultType }

// Failed implements work.Job.
func (j *job) Failed(ctx context.Context, err error) {
	cfg := &j.worker.cfg
	defer func() {
		if v := recover(); v != nil {
			cfg.Logger.Error("OnError or OnPanic panicked", "task_id", j.claim.ID, "panic", v)
		}
	}()
	ctx = context.WithoutCancel(ctx)
	panicked, ok := errors.AsType[*PanicError](err)
	switch {
	case ok && cfg.OnPanic != nil:
		cfg.OnPanic(ctx, &j.claim, panicked)
	case cfg.OnError != nil:
		cfg.OnError(ctx, &j.claim, err)
	}
}
