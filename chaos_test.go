package pawl_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Connections break, responses get lost, streams fall silent, and settling is refused for a while. In the end each call
// has created one task, each task has succeeded with the result of its own handler, and the worker holds nothing.
func TestChaos(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(&locked{src: rand.NewPCG(seed, 1)})
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	f, client := start(t, pawl.DialOptions{RetryFor: time.Hour})
	f.set(func() {
		f.after = func(string) error {
			if chance(20) {
				return status.Error(codes.Unavailable, "lost")
			}
			return nil
		}
		f.settleIt = func(string) *pawlv1.Error {
			if chance(10) {
				return &pawlv1.Error{Code: "unavailable"}
			}
			return nil
		}
	})
	mux := handle(func(ctx context.Context, task *pawl.Task[welcome]) error {
		nap := time.Duration(rng.IntN(100)) * 400 * time.Millisecond // a few take longer than their lease
		select {
		case <-time.After(nap):
			return task.SetResult(task.Args.To)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	w, stop := work(t, client, mux, pawl.WorkerConfig{Concurrency: 20})

	ctx, calm := context.WithCancel(t.Context())
	var faults, producers sync.WaitGroup
	faults.Go(func() { torment(ctx, f, rng) })
	refs := make([]*pawl.Ref, 200)
	for p := range 10 {
		producers.Go(func() {
			for i := p; i < len(refs); i += 10 {
				ref, err := client.Enqueue(t.Context(), welcome{To: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				refs[i] = ref
				time.Sleep(time.Second)
			}
		})
	}
	life, end := context.WithCancel(t.Context())
	var expiry sync.WaitGroup
	expiry.Go(func() { // tasks pushed into a broken connection are claimed again
		for life.Err() == nil {
			time.Sleep(time.Second)
			f.expire()
		}
	})
	defer expiry.Wait()
	defer end()
	producers.Wait()
	time.Sleep(time.Minute)
	calm()
	faults.Wait()
	f.set(func() { f.mute, f.settleIt, f.after = false, nil, nil })

	for i, ref := range refs {
		info, err := client.Wait(t.Context(), ref.ID)
		if err != nil || string(info.Result) != fmt.Sprintf(`"%d"`, i) {
			t.Errorf("seed %d: call %d, task %s: %v with result %s", seed, i, ref.ID, err, info.Result)
		}
	}
	if len(f.tasks) != len(refs) {
		t.Errorf("seed %d: %d calls created %d tasks", seed, len(refs), len(f.tasks))
	}
	if err := stop(); err != nil {
		t.Errorf("seed %d: the worker ended with %v", seed, err)
	}
	if got := w.Stats(); got.Running != 0 || got.Unsettled != 0 || got.Reconnects == 0 {
		t.Errorf("seed %d: the worker's stats are %+v, want nothing running or unsettled, and reconnects", seed, got)
	}
}

// torment injects faults until ctx ends.
func torment(ctx context.Context, f *fake, rng *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		switch rng.IntN(8) {
		case 0, 1:
			f.cut()
		case 2:
			f.set(func() { f.mute = true })
			time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
			f.cut()
			f.set(func() { f.mute = false })
		case 3:
			f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return errUnavailable } })
			f.cut()
			time.Sleep(time.Duration(rng.IntN(40)) * time.Second)
			f.set(func() { f.greet = nil })
		case 4:
			f.set(func() {
				for s := range f.streams {
					s.credit = 0
				}
			})
		}
	}
	f.set(func() { f.mute, f.greet = false, nil })
	f.cut()
}

// locked is a source of randomness that is safe for concurrent use.
type locked struct {
	mu  sync.Mutex
	src rand.Source
}

// Uint64 implements rand.Source.
func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}
