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

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// WorkerConfig configures a Worker. Only Queues is usually set; zero fields have defaults.
type WorkerConfig struct {
	Queues       Queues        // Weighted or Strict; default Strict{"default"}
	Concurrency  int           // handlers that run at once, at most 10,000; default 10
	Lease        time.Duration // 1 s to 12 h, extended while the handler runs; default: the queue's
	DrainTimeout time.Duration // for handlers to finish once Run's context has ended; default 25 s, negative: none
	MaxBytes     int64         // of tasks in one push; default 4 MiB
	Name         string        // who claims, in attempt logs and lists of workers; default host/pid
	Logger       *slog.Logger  // default: the client's
}

const (
	defaultConcurrency  = 10
	maxConcurrency      = 10_000
	defaultDrainTimeout = 25 * time.Second // systemd and Kubernetes kill after 30 s or more
	minLease            = time.Second
	maxLease            = 12 * time.Hour
	defaultLease        = 30 * time.Second // if a claim doesn't say
)

// Worker claims tasks and runs their handlers: as many at once as it has slots, over one stream that it keeps open.
type Worker struct {
	client *Client
	mux    *Mux
	cfg    WorkerConfig

	mu    sync.Mutex
	shift *shift // the newest Run, nil before the first
	runs  bool
}

// NewWorker makes a worker; Run starts it, and tells what is wrong with cfg.
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
		cfg.Logger = client.log
	}
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = cutText(fmt.Sprintf("%s/%d", host, os.Getpid()), 256)
	}
	return &Worker{client: client, mux: mux, cfg: cfg}
}

// Run claims and runs tasks until ctx ends, and then drains: it takes no more tasks, lets handlers finish for DrainTimeout, ends the
// contexts of the rest with ErrDraining, releases their tasks so that no attempt is used, and returns nil. A handler that
// still runs a second later is left behind. The contexts of handlers have the values of ctx, but don't end with it.
//
// A connection that breaks is made anew for ever; meanwhile handlers go on, and what they end with is told afterwards. Run returns an error if
// the configuration is wrong, if the broker refuses the worker when it first comes, if for a minute it does not let it in any more
// (ErrUnauthenticated, ErrPermissionDenied: its token was revoked, or has expired), or if, at the end, it could not be told how some
// tasks ended: those run again after their lease. A program should end then, so that what runs it tells somebody.
func (w *Worker) Run(ctx context.Context) error {
	hello, err := w.hello()
	if err != nil {
		return fmt.Errorf("worker %q: %w", w.cfg.Name, err)
	}
	w.mu.Lock()
	if w.runs {
		w.mu.Unlock()
		return fmt.Errorf("worker %q: runs already", w.cfg.Name)
	}
	s := newShift(ctx, w, hello)
	w.shift, w.runs = s, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.runs = false
		w.mu.Unlock()
	}()
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("worker %q: %w", w.cfg.Name, err)
	}
	return nil
}

// hello checks the configuration and puts it into the first frame of the stream.
func (w *Worker) hello() (*pawlv1.WorkHello, error) {
	shares, order := w.cfg.Queues.shares()
	if err := checkQueues(shares, order); err != nil {
		return nil, err
	}
	types := w.mux.Types()
	switch c := w.cfg; {
	case len(types) == 0 || len(types) > maxClaimTypes:
		return nil, invalid("types", "the mux has handlers for %d types, want 1 to %d", len(types), maxClaimTypes)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return nil, invalid("concurrency", "is %d, want 1 to %d", c.Concurrency, maxConcurrency)
	case c.Lease != 0 && (c.Lease < minLease || c.Lease > maxLease):
		return nil, invalid("lease", "is %s, want %s to %s", c.Lease, minLease, maxLease)
	case c.MaxBytes < 0:
		return nil, invalid("max_bytes", "is %d", c.MaxBytes)
	case len(c.Name) > 256 || !utf8.ValidString(c.Name):
		return nil, invalid("worker", "%q is not at most 256 bytes of UTF-8", c.Name)
	}
	host, _ := os.Hostname()
	return &pawlv1.WorkHello{
		Queues: shares, Order: order, Types: types, Lease: durationOrNil(w.cfg.Lease), Worker: w.cfg.Name,
		MaxBytes: w.cfg.MaxBytes, Host: cutText(host, 256), Pid: clampInt32(os.Getpid()), Version: Version, Slots: clampInt32(w.cfg.Concurrency), Instance: rand.Text(),
	}, nil
}

// WorkerStats is what a worker does right now, and did since Run began.
type WorkerStats struct {
	Connected   bool
	Quiet       bool      // an operator has it take no new tasks
	LastContact time.Time // the last word from the broker; zero: none yet
	Reconnects  int       // streams after the first
	Running     int       // handlers
	Unsettled   int       // tasks that have ended, whose end the broker has not confirmed
	Succeeded   int64     // handlers that returned nil
	Failed      int64     // handlers that failed, or steered otherwise than by Snooze; not those that were cancelled, or lost their leases
	LeasesLost  int64
}

// Stats gives the figures of the newest Run.
func (w *Worker) Stats() WorkerStats {
	w.mu.Lock()
	s := w.shift
	w.mu.Unlock()
	if s == nil {
		return WorkerStats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Running = s.slots.busy
	out.Unsettled = max(0, len(s.claims)-s.slots.busy)
	return out
}

// disconnectedTooLong is when a worker that can't reach the broker reports itself as unhealthy.
const disconnectedTooLong = 30 * time.Second

// Health is nil while the worker runs and has been in touch with the broker within the last 30 s; for liveness probes.
func (w *Worker) Health() error {
	w.mu.Lock()
	runs, s := w.runs, w.shift
	w.mu.Unlock()
	if !runs {
		return errors.New("pawl: worker does not run")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if gone := now.Sub(s.contact.lost); gone > disconnectedTooLong && !(s.stats.Connected && s.contact.solid(now)) {
		return fmt.Errorf("pawl: worker has no connection for %s: %w", gone.Round(time.Second), ErrUnavailable)
	}
	return nil
}
