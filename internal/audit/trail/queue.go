package trail

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxQueued bounds the records that wait to be sent. Those that strangers caused may take half of it.
	maxQueued = 4096
	// maxSent bounds the records that are sent together, and gatherFor is how long the first waits for others.
	maxSent   = 512
	gatherFor = time.Second
	// sendTimeout bounds an attempt to send, retryAfter is the pause before the next, and flushFor bounds all those at the end.
	sendTimeout = 30 * time.Second
	retryAfter  = 5 * time.Second
	flushFor    = 3 * time.Second
)

// queue holds the records that wait to be sent.
type queue struct {
	log     *slog.Logger
	export  func(context.Context, []slog.Record) (rejected int, err error) // nil: nothing is queued
	records chan slog.Record
	lost    atomic.Uint64
	sending sync.Mutex // export is called by one goroutine at a time
}

func (q *queue) init(cfg Config) {
	q.log, q.export, q.records = cfg.Log, cfg.Export, make(chan slog.Record, maxQueued)
}

// add queues a record, or counts it as lost.
func (q *queue) add(r slog.Record, stranger bool) {
	if q.export == nil {
		return
	}
	if stranger && len(q.records) >= maxQueued/2 {
		q.lost.Add(1)
		return
	}
	select {
	case q.records <- r:
	default:
		q.lost.Add(1)
	}
}

// run sends records until ctx ends. It keeps those that can't be sent, and tries again.
func (q *queue) run(ctx context.Context) {
	if q.export == nil {
		return
	}
	var batch []slog.Record
	for ctx.Err() == nil {
		if batch = q.gather(ctx, batch); len(batch) == 0 || ctx.Err() != nil {
			continue
		}
		if q.send(ctx, batch) == nil {
			batch = batch[:0]
			continue
		}
		pause(ctx, retryAfter)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
	defer cancel()
	for {
		batch = q.take(batch)
		if len(batch) == 0 {
			return
		}
		if err := q.send(ctx, batch); err != nil {
			left := len(batch) + len(q.records)
			q.lost.Add(uint64(left)) // #nosec G115 -- not negative
			q.log.Warn("the last audit events were not exported", "events", left, "error", err)
			return
		}
		batch = batch[:0]
	}
}

// gather waits for a record, and for those that come soon after it.
func (q *queue) gather(ctx context.Context, batch []slog.Record) []slog.Record {
	if len(batch) > 0 { // to be sent again
		return q.take(batch)
	}
	select {
	case <-ctx.Done():
		return batch
	case r := <-q.records:
		batch = append(batch, r)
	}
	if len(q.records) < maxSent {
		pause(ctx, gatherFor)
	}
	return q.take(batch)
}

// take adds records that are waiting to a batch.
func (q *queue) take(batch []slog.Record) []slog.Record {
	for len(batch) < maxSent {
		select {
		case r := <-q.records:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

func (q *queue) send(ctx context.Context, batch []slog.Record) error {
	rejected, err := q.sendOnce(ctx, batch)
	q.lost.Add(uint64(rejected)) // #nosec G115 -- not negative
	return err
}

func (q *queue) sendOnce(ctx context.Context, batch []slog.Record) (rejected int, err error) {
	q.sending.Lock()
	defer q.sending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return q.export(ctx, batch)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
