package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
)

const (
	defaultLease  = 10 * time.Second
	defaultPoll   = time.Second
	defaultListen = 5 * time.Second // the poll besides notifications
	defaultBatch  = 2000
	maxBatch      = 10_000
	// firstPoll is the pause after rows were found; it doubles up to RelayConfig.Poll.
	firstPoll = 10 * time.Millisecond
	// firstPause and maxPause bound the pauses while Pawl or the database is unavailable.
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
	// releaseTime bounds the release of the lease when a relay stops.
	releaseTime = 2 * time.Second
	// pruneEach is how often the active relay deletes expired rows of effects.
	pruneEach = time.Minute
	// warnEach is the shortest time between two warnings of one outage.
	warnEach = time.Minute
)

// RelayConfig configures a Relay. Zero fields have defaults.
type RelayConfig struct {
	// Listen calls wake, on any goroutine, once it can hear of committed rows, and then for each notification. When it
	// fails, the relay calls it again; when ctx ends, it must return. pgxoutbox.Listen does so with PostgreSQL's
	// notifications. nil: the relay polls, often after it has found rows and less often while there are none.
	Listen func(ctx context.Context, wake func()) error
	// Poll is the longest pause between two reads of the table, from 10 ms to an hour. Default: 1 s, or 5 s with Listen.
	Poll time.Duration
	// Lease is how long after the death of the active relay another one takes over, from 1 s to an hour. Default: 10 s.
	Lease time.Duration
	// Batch is how many rows are read at a time, at most 10,000. A read ends once its rows reach 8 MiB. Default: 2,000.
	Batch int
	// Logger is the relay's logger. Default: slog.Default.
	Logger *slog.Logger
}

func (c *RelayConfig) setDefaults() error {
	if c.Poll == 0 {
		c.Poll = defaultPoll
		if c.Listen != nil {
			c.Poll = defaultListen
		}
	}
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Batch == 0 {
		c.Batch = defaultBatch
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Poll < firstPoll || c.Poll > time.Hour:
		return convert.Invalid("Poll", "%s is not between %s and 1h", c.Poll, firstPoll)
	case c.Lease < time.Second || c.Lease > time.Hour:
		return convert.Invalid("Lease", "%s is not between 1s and 1h", c.Lease)
	case c.Batch < 1 || c.Batch > maxBatch:
		return convert.Invalid("Batch", "%d is not between 1 and %d", c.Batch, maxBatch)
	}
	return nil
}

// Relay enqueues committed rows as tasks of Pawl. Any number of relays can run: one of them is active, and another
// takes over when it stops or dies.
type Relay struct {
	box    *Outbox
	client producer
	cfg    RelayConfig
	wake   chan struct{} // holds a value if there may be rows

	listening atomic.Bool
	active    atomic.Bool
	enqueued  atomic.Int64
	repeated  atomic.Int64
	dead      atomic.Int64
}

// producer is the part of a client that a relay needs.
type producer interface {
	EnqueueBatch(ctx context.Context, items []pawl.Item) ([]pawl.Enqueued, error)
}

// NewRelay returns a relay for the rows of an outbox. Run runs it.
func NewRelay(box *Outbox, client *pawl.Client, cfg RelayConfig) (*Relay, error) {
	return newRelay(box, client, cfg)
}

func newRelay(box *Outbox, client producer, cfg RelayConfig) (*Relay, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("outbox: relay: %w", err)
	}
	return &Relay{box: box, client: client, cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// RelayStats are a relay's counts since it was created.
type RelayStats struct {
	Active   bool  // it holds the lease
	Enqueued int64 // rows that became tasks
	Repeated int64 // rows whose task already existed
	Dead     int64 // rows that were refused for good
}

// Stats returns the counts.
func (r *Relay) Stats() RelayStats {
	return RelayStats{Active: r.active.Load(), Enqueued: r.enqueued.Load(), Repeated: r.repeated.Load(), Dead: r.dead.Load()}
}

// count counts a row that was accepted.
func (r *Relay) count(ref *pawl.Ref) {
	if ref.Duplicate {
		r.repeated.Add(1)
	} else {
		r.enqueued.Add(1)
	}
}

// Wake makes the relay read the table now. Call it after a commit in the same process if the database does not notify.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run runs the relay until ctx ends, and then returns nil. Errors meanwhile are logged, at most once a minute while
// they recur, and the relay retries, even if it can't reach the database at its start. It returns ErrSchema if the
// tables don't fit.
func (r *Relay) Run(ctx context.Context) error {
	pause := backoff{first: firstPause, max: maxPause}
	var down outage
	for {
		err := checkSchema(ctx, r.box.db, r.box.dialect)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrSchema):
			return err
		case err == nil:
			r.run(ctx)
			return nil
		}
		down.warn(r.cfg.Logger, "outbox: the relay can't reach the database and keeps trying", err)
		sleep(ctx, pause.next())
	}
}

// run requests the lease, works while it holds it, and requests it again, until ctx ends.
func (r *Relay) run(ctx context.Context) {
	l := newLease(r.box, r.cfg.Lease)
	var listener sync.WaitGroup
	defer listener.Wait()
	if r.cfg.Listen != nil {
		listener.Go(func() { r.listen(ctx) })
	}
	pause := backoff{first: firstPause, max: maxPause}
	var down outage
	for ctx.Err() == nil {
		held, err := l.acquire(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			down.warn(r.cfg.Logger, "outbox: the relay can't request its lease", err)
			sleep(ctx, pause.next())
		case !held:
			pause.reset()
			down.end()
			sleep(ctx, min(time.Second, r.cfg.Lease/3))
		default:
			pause.reset()
			down.end()
			r.lead(ctx, l)
		}
	}
}

// lead works while the relay holds the lease.
func (r *Relay) lead(ctx context.Context, l *lease) {
	r.cfg.Logger.Info("outbox: the relay is active", "holder", l.holder)
	r.active.Store(true)
	ctx, lose := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { lose(l.renew(ctx)) })
	keeper.Go(func() { r.prune(ctx) })
	r.work(ctx, l)
	keeper.Wait()
	r.active.Store(false)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		r.cfg.Logger.Warn("outbox: the relay is no longer active", "error", err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := l.release(last); err != nil {
		r.cfg.Logger.Warn("outbox: the relay could not release its lease, which will expire", "error", err)
	}
}

// prune deletes expired rows of effects until ctx ends.
func (r *Relay) prune(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := r.box.DeleteExpired(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("outbox: expired effects could not be deleted", "error", err)
		}
		sleep(ctx, pruneEach)
	}
}

// work enqueues rows until ctx ends.
func (r *Relay) work(ctx context.Context, l *lease) {
	c := newSession(r, l)
	defer c.lanes.run.Wait()
	pause := backoff{first: firstPause, max: maxPause}
	poll := backoff{first: firstPoll, max: r.cfg.Poll}
	var down outage
	for ctx.Err() == nil {
		began := time.Now()
		more, err := c.pass(ctx)
		if err == nil {
			var on bool
			on, err = c.notifications.after(ctx, more, began)
			more = more || on
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			down.warn(r.cfg.Logger, "outbox: no row can be enqueued; the relay keeps trying", err)
			sleep(ctx, pause.next())
		case more:
			if down.end() {
				r.cfg.Logger.Info("outbox: rows can be enqueued again")
			}
			pause.reset()
			poll.reset()
		default:
			pause.reset()
			if r.listening.Load() {
				r.idle(ctx, c.notifications.pause())
			} else {
				r.idle(ctx, poll.next())
			}
		}
	}
}

// idle waits until there may be rows.
func (r *Relay) idle(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-timer.C:
	}
}

// listen keeps the listener running.
func (r *Relay) listen(ctx context.Context) {
	pause := backoff{first: firstPause, max: maxPause}
	var down outage // never ends: a listener that keeps failing soon after it begins would be logged each time
	for ctx.Err() == nil {
		err := r.cfg.Listen(ctx, func() {
			r.listening.Store(true)
			r.Wake()
		})
		if r.listening.Swap(false) {
			pause.reset()
		}
		r.Wake() // to poll more often
		if ctx.Err() == nil {
			down.warn(r.cfg.Logger, "outbox: the relay gets no notifications and polls instead", err)
			sleep(ctx, pause.next())
		}
	}
}

// outage is a failure that recurs until what failed works again. It is logged when it begins and then at most every warnEach.
type outage struct{ warned time.Time }

// warn reports whether it logged.
func (o *outage) warn(log *slog.Logger, msg string, err error) bool {
	now := time.Now()
	if now.Sub(o.warned) < warnEach {
		return false
	}
	o.warned = now
	log.Warn(msg, "error", err)
	return true
}

// end reports whether there was an outage.
func (o *outage) end() bool {
	was := !o.warned.IsZero()
	o.warned = time.Time{}
	return was
}

// backoff produces growing pauses.
type backoff struct {
	first, max time.Duration
	last       time.Duration
}

func (r *backoff) reset() { r.last = 0 }

// next returns the next pause, with jitter: up to a fifth less.
func (r *backoff) next() time.Duration {
	r.last = min(max(2*r.last, r.first), r.max)
	return r.last - rand.N(r.last/5+1)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
