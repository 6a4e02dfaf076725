package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/pawlq/pawl"
)

func benchEnqueue(ctx context.Context, r *run) (*result, error) {
	return r.produce(ctx, 1, 1, "one Enqueue call", func() error {
		_, err := r.enqueue(ctx, r.task())
		return err
	})
}

func benchEnqueueParallel(ctx context.Context, r *run) (*result, error) {
	return r.produce(ctx, r.producers, 1, "one Enqueue call", func() error {
		_, err := r.enqueue(ctx, r.task())
		return err
	})
}

func benchEnqueueBatch(ctx context.Context, r *run) (*result, error) {
	items := r.items(r.batch)
	return r.produce(ctx, r.producers, r.batch, fmt.Sprintf("one batch of %d", r.batch), func() error { return r.enqueueItems(ctx, items) })
}

// enqueue enqueues a task. An interrupt does not end the call: the server could run it once the case has tidied up.
func (r *run) enqueue(ctx context.Context, task pawl.RawTask) (*pawl.Ref, error) {
	return r.client.Enqueue(context.WithoutCancel(ctx), task, r.options()...)
}

// produce has producers repeat a call that enqueues n tasks until the duration is over.
func (r *run) produce(ctx context.Context, producers, n int, of string, enqueue func() error) (*result, error) {
	var all sync.WaitGroup
	hists, errs := make([]histogram, producers), make([]error, producers)
	meter := r.startMeter()
	for i := range producers {
		all.Go(func() {
			for now := meter.began; now.Sub(meter.began) < r.duration; {
				if errs[i] = errors.Join(ctx.Err(), enqueue()); errs[i] != nil {
					return
				}
				next := time.Now()
				hists[i].record(next.Sub(now))
				now = next
			}
		})
	}
	all.Wait()
	s := meter.stop()
	var h histogram
	for i := range hists {
		h.add(&hists[i])
	}
	setting := "1 producer"
	if producers > 1 {
		setting = fmt.Sprintf("%d producers over one connection", producers)
	}
	return finish("tasks/s", of, setting, h.n*int64(n), s, &h), errors.Join(errs...)
}

func (r *run) items(n int) []pawl.Item {
	items := make([]pawl.Item, n)
	for i := range items {
		items[i] = pawl.Item{Args: r.task(), Options: r.options()}
	}
	return items
}

// spreadKeys gives the tasks random keys, if the case has keys.
func (r *run) spreadKeys(items []pawl.Item) {
	if r.keys == 0 {
		return
	}
	for i := range items {
		items[i].Options = append(r.options(), pawl.Key(strconv.Itoa(rand.IntN(r.keys))))
	}
}

func (r *run) enqueueItems(ctx context.Context, items []pawl.Item) error {
	answers, err := r.client.EnqueueBatch(context.WithoutCancel(ctx), items)
	for _, e := range answers {
		if err == nil {
			err = e.Err
		}
	}
	return err
}

// fill enqueues n tasks into the case's queue.
func (r *run) fill(ctx context.Context, n int) error {
	const producers, batch = 2, 1000
	bar := r.app.Progress("filling", n)
	defer bar.Done()
	var mu sync.Mutex
	taken, put := 0, 0
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		k := min(batch, n-taken)
		taken += k
		return k
	}
	errs := make([]error, producers)
	var all sync.WaitGroup
	for i := range producers {
		all.Go(func() {
			items := r.items(min(batch, n))
			for k := take(); k > 0 && errs[i] == nil; k = take() {
				r.spreadKeys(items[:k])
				errs[i] = errors.Join(ctx.Err(), r.enqueueItems(ctx, items[:k]))
				mu.Lock()
				put += k
				bar.Set(put)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
