package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/pawltype"
)

// noisyResult holds the rates of the other namespace's offered and accepted tasks, and the latency of refusals.
type noisyResult struct {
	Quota    int          `json:"quota_per_s"`
	Offered  float64      `json:"offered_per_s"`
	Accepted float64      `json:"accepted_per_s"`
	Refusal  *percentiles `json:"refusal_ms"`
}

// benchNoisy measures the latency of tasks by themselves, and then while another namespace offers many times what its quota admits.
func benchNoisy(ctx context.Context, r *run) (line *result, err error) {
	for name, n := range map[string]int{"quota": r.quota, "times": r.times} {
		if n == 0 {
			return nil, cli.Usage("--%s 0: must be at least 1", name)
		}
	}
	calm, _, err := r.latency(ctx, r.duration)
	if err != nil {
		return nil, err
	}
	noisy, err := r.noisy(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, noisy.drop(context.WithoutCancel(ctx))) }()
	loud, hush := context.WithCancel(ctx)
	var noise *noisyResult
	ended := make(chan error, 1)
	go func() {
		var err error
		noise, err = noisy.makeNoise(loud)
		ended <- err
	}()
	busy, s, err := r.latency(ctx, r.duration)
	hush()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	line = finish("tasks/s", "beside the noise, from the begin of Enqueue to the start of the handler",
		fmt.Sprintf("%d/s offered, while another namespace offers %d times its quota of %d/s", r.rate, r.times, r.quota), busy.n, s, busy)
	line.Calm, line.Noise = calm.percentiles(), noise
	return line, nil
}

// noisy returns a run in a namespace of its own, bounded by a quota.
func (r *run) noisy(ctx context.Context) (*run, error) {
	client, err := r.app.Dial(pawl.DialOptions{RetryFor: -1, Namespace: r.queue}) // refusals are measured, not retried
	if err != nil {
		return nil, err
	}
	quota := int64(r.quota)
	if _, err := r.app.Admin(r.client).Namespaces().Create(ctx, r.queue, admin.QuotaChange{MaxRequestsPerSecond: &quota}); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	other := *r
	other.client = client
	return &other, nil
}

// drop removes the namespace with everything in it.
func (r *run) drop(ctx context.Context) error {
	var free int64
	_, err := r.app.Admin(r.client).Namespaces().SetQuotas(ctx, r.queue, admin.QuotaChange{MaxRequestsPerSecond: &free})
	if err == nil {
		r.tidy(ctx)
		_, err = r.app.Admin(r.client).Namespaces().Delete(ctx, r.queue)
	}
	return errors.Join(err, r.client.Close())
}

// makeNoise offers tasks until ctx is done.
func (r *run) makeNoise(ctx context.Context) (*noisyResult, error) {
	var offered, accepted atomic.Int64
	var refusals histogram
	start := time.Now()
	err := offer(ctx, r.quota*r.times, 1<<40, func() error {
		offered.Add(1)
		begun := time.Now()
		_, err := r.enqueue(ctx, r.task())
		switch {
		case err == nil:
			accepted.Add(1)
		case errors.Is(err, pawltype.ErrRateLimited):
			refusals.record(time.Since(begun))
		default:
			return err
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	took := time.Since(start).Seconds()
	return &noisyResult{r.quota, round3(float64(offered.Load()) / took), round3(float64(accepted.Load()) / took), refusals.percentiles()},
		err
}
