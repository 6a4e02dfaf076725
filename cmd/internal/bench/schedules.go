package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// putters is the number of concurrent calls that put schedules.
	putters = 64
	// firstPuts is how many schedules are put to estimate how long the others will take.
	firstPuts = 500
	// fireTime bounds the wait for the last run.
	fireTime = 10 * time.Minute
)

// benchSchedules makes many schedules due in the same second, and measures how long it takes until all have fired, and
// how that affects the latency of other tasks.
func benchSchedules(ctx context.Context, r *run) (line *result, err error) {
	calm, _, err := r.latency(ctx, r.duration)
	if err != nil {
		return nil, err
	}
	ticks := r.queue + "-ticks"
	defer func() { err = errors.Join(err, r.dropSchedules(context.WithoutCancel(ctx), ticks)) }()
	due, err := r.putSchedules(ctx, ticks)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(due) - time.Second)
	fired := make(chan time.Duration, 1)
	failed := make(chan error, 1)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		took, err := r.untilFired(ctx, ticks, due)
		fired <- took
		failed <- err
		stop()
	}()
	busy := &histogram{}
	for loaded.Err() == nil { // in pieces, until the last run
		h, _, err := r.latency(ctx, time.Second)
		if err != nil {
			return nil, err
		}
		busy.add(h)
	}
	took := <-fired
	line = finish("ticks/s", "meanwhile, from the begin of Enqueue to the start of the handler",
		fmt.Sprintf("%d schedules due in one second, %d/s tasks beside them", r.tasks, r.rate), int64(r.tasks), spent{took: took}, busy)
	line.Calm = calm.percentiles()
	return line, <-failed
}

// putSchedules creates schedules that are all due in the same second, soon after the last one is created.
func (r *run) putSchedules(ctx context.Context, queue string) (due time.Time, err error) {
	far := time.Now().UTC().AddDate(0, 6, 0)
	began := time.Now()
	first := min(firstPuts, r.tasks)
	if err := r.putSome(ctx, queue, far, 0, first); err != nil {
		return due, err
	}
	left := time.Duration(float64(time.Since(began)) / float64(first) * float64(r.tasks) * 1.5)
	due = time.Now().UTC().Add(left + 3*time.Second).Truncate(time.Second)
	return due, r.putSome(ctx, queue, due, 0, r.tasks)
}

func (r *run) putSome(ctx context.Context, queue string, due time.Time, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	errs := make([]error, putters)
	var all sync.WaitGroup
	for w := range putters {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(to) && errs[w] == nil; i = next.Add(1) - 1 {
				_, errs[w] = r.app.Admin(r.client).Schedules().Put(ctx, admin.ScheduleSpec{Name: scheduleName(queue, i),
					Cron: due.Format("5 4 15 2 1 *"), Task: r.task(), Options: []pawl.Option{pawl.Queue(queue), pawl.Retention(r.keep)}})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func scheduleName(queue string, i int64) string { return fmt.Sprintf("%s-%d", queue, i) }

// untilFired waits until every run has enqueued its task.
func (r *run) untilFired(ctx context.Context, queue string, due time.Time) (time.Duration, error) {
	for {
		q, err := r.app.Admin(r.client).Queues().Get(ctx, queue)
		took := time.Since(due)
		switch {
		case err != nil && !errors.Is(err, pawltype.ErrNotFound):
			return took, err
		case err == nil && q.Depth.Ready >= int64(r.tasks):
			return took, nil
		case took > fireTime:
			return took, fmt.Errorf("%d of %d ticks after %v", q.Depth.Ready, r.tasks, took)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// dropSchedules removes the schedules and their tasks from the server.
func (r *run) dropSchedules(ctx context.Context, queue string) error {
	if r.own {
		return nil
	}
	for i := range int64(r.tasks) {
		if err := r.app.Admin(r.client).Schedules().Delete(ctx, scheduleName(queue, i)); err != nil &&
			!errors.Is(err, pawltype.ErrNotFound) {
			return err
		}
	}
	other := *r
	other.queue = queue
	other.tidy(ctx)
	return nil
}
