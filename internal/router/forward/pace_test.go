package forward_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
)

// A wait goes on for the rest of its span, after a pause, until the call is done.
func TestWaitIsRepeated(t *testing.T) {
	broken := errors.New("disk broke")
	for _, c := range []struct {
		name  string
		span  time.Duration
		takes time.Duration // of each call
		done  int           // by which call; 0: none
		fails int
		spans []time.Duration
		took  time.Duration
	}{
		{"done at once", time.Second, 0, 1, 0, []time.Duration{time.Second}, 0},
		{"without a span", 0, 0, 0, 0, []time.Duration{0}, 0},
		{"done later", time.Second, 250 * time.Millisecond, 3, 0, []time.Duration{time.Second, 650 * time.Millisecond,
			300 * time.Millisecond},
			950 * time.Millisecond},
		{"never done", time.Second, 400 * time.Millisecond, 0, 0, []time.Duration{time.Second, 500 * time.Millisecond},
			900 * time.Millisecond},
		{"a moment left", time.Second, time.Second - forward.EarlyPause - 1, 0, 0, []time.Duration{time.Second, 1},
			2*(time.Second-1) - forward.EarlyPause},
		{"no moment left", time.Second, time.Second - forward.EarlyPause, 0, 0, []time.Duration{time.Second},
			time.Second - forward.EarlyPause},
		{"fails", time.Second, 0, 0, 2, []time.Duration{time.Second, 900 * time.Millisecond}, 100 * time.Millisecond},
	} {
		inGroup(t, 1, func(g *group) {
			began := time.Now()
			var spans []time.Duration
			n, err := forward.Wait(bg, g.nodes[1].Forwarder, c.span, func(_ context.Context, span time.Duration) (int, error) {
				spans = append(spans, span)
				routertest.Pass(c.takes)
				if len(spans) == c.fails {
					return len(spans), broken
				}
				return len(spans), nil
			}, func(n int) bool { return n == c.done })
			if n != len(c.spans) || fmt.Sprint(spans) != fmt.Sprint(c.spans) || time.Since(began) != c.took ||
				(c.fails > 0) != errors.Is(err, broken) {
				t.Errorf("%s: %d, %v after %s with the spans %v, want %v after %s", c.name, n, err, time.Since(began),
					spans, c.spans, c.took)
			}
		})
	}
}

// A node that is about to stop makes the call once more without a wait. A caller that gives up gets what there is.
func TestEndsOfWaits(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p := g.nodes[1]
		wait := func(ctx context.Context, call func(ctx context.Context, span time.Duration) (string, error)) (string,
			time.Duration, error) {
			began := time.Now()
			got, err := forward.Wait(ctx, p.Forwarder, time.Minute, call, func(got string) bool { return got == "done" })
			return got, time.Since(began), err
		}
		calls := 0
		until := func(ctx context.Context, span time.Duration) (string, error) {
			calls++
			if span == 0 {
				return "last", ctx.Err()
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, took, err := wait(ctx, until)
		if !errors.Is(err, context.DeadlineExceeded) || took != time.Second || calls != 1 {
			t.Errorf("a call of a caller that gives up: %v after %s and %d calls", err, took, calls)
		}
		early := func(context.Context, time.Duration) (string, error) { calls++; return "early", nil }
		got, took, err := wait(ctx, early)
		same(t, "early end, when the caller has given up", fmt.Sprint(got, took, err), "early0s <nil>")

		ctx, cancel = context.WithTimeout(bg, 950*time.Millisecond)
		defer cancel()
		calls = 0
		got, took, err = wait(ctx, early) // it ends in a pause, after which the caller has left
		same(t, "early ends until the caller gives up", fmt.Sprint(got, took, err), "early950ms <nil>")
		same(t, "calls until then", calls, 11)

		time.AfterFunc(2*time.Second, func() { close(p.drain) })
		same(t, "draining", p.Life.IsDraining(), false)
		got, took, err = wait(bg, until)
		same(t, "call on a node that drains", fmt.Sprint(got, took, err), "last2s <nil>")
		same(t, "draining", p.Life.IsDraining(), true)
		calls = 0
		got, took, err = wait(bg, early)
		same(t, "early end on a draining node", fmt.Sprint(got, took, err, calls), "early0s <nil> 1")
		broken := errors.New("disk broke")
		_, _, err = wait(bg, func(_ context.Context, span time.Duration) (string, error) { return "", broken })
		same(t, "call that fails without a wait", err, broken)
	})
}

// A call that is done as the node begins to drain is not made again.
func TestWaitCompletesDuringDrain(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		p, calls := g.nodes[1], 0
		time.AfterFunc(time.Second, func() { close(p.drain) })
		_, err := forward.Wait(bg, p.Forwarder, time.Minute, func(context.Context, time.Duration) (string, error) {
			calls++
			routertest.Pass(2 * time.Second)
			return "done", nil
		}, func(got string) bool { return got == "done" })
		same(t, "calls"+text(err), calls, 1)
	})
}

// A context for a wait ends with its caller's and with the node, and Draining says so at once.
func TestUntilDrain(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		life := &g.nodes[1].Life
		mine, leave := life.UntilDrain(bg)
		same(t, "before", text(mine.Err()), "")
		leave()
		same(t, "when it was left", mine.Err(), context.Canceled)
		caller, cancel := context.WithCancel(bg)
		mine, leave = life.UntilDrain(caller)
		defer leave()
		cancel()
		same(t, "when the caller left", mine.Err(), context.Canceled)
		mine, leave = life.UntilDrain(bg)
		defer leave()
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(g.nodes[1].drain) })
		<-mine.Done()
		same(t, "time until it drains", time.Since(began), time.Second)
		<-life.Draining()
		same(t, "closed", text(life.Context().Err()), "")

		life = &g.nodes[2].Life
		mine, leave = life.UntilDrain(bg)
		defer leave()
		ended := false
		life.Go(func() {
			<-life.Context().Done()
			routertest.Pass(time.Second)
			ended = true
		})
		began = time.Now()
		life.Close()
		same(t, "time of Close, which waits", time.Since(began), time.Second)
		same(t, "what ran in the background ended", ended, true)
		<-mine.Done()
		same(t, "draining, when closed", life.IsDraining(), true)
	})
}

// A sleep ends in time, with its caller, or with the node.
func TestSleep(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		life := &g.nodes[1].Life
		began := time.Now()
		life.Sleep(bg, 3*time.Second)
		same(t, "sleep that ends in time", time.Since(began), 3*time.Second)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began = time.Now()
		life.Sleep(ctx, time.Minute)
		same(t, "sleep that ends with the caller", time.Since(began), time.Second)
		began = time.Now()
		time.AfterFunc(time.Second, life.Close)
		life.Sleep(bg, time.Minute)
		same(t, "sleep that ends with the node", time.Since(began), time.Second)
	})
}

// A call is repeated while its queue moves for as long as it may look for a leader, with longer and longer pauses, if the caller has time.
func TestRetries(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		p := g.nodes[1]
		began := time.Now()
		r := p.NewRetries()
		most, shorter, n := 10*time.Millisecond, false, 0
		for ; r.More(bg); n++ {
			before := time.Now()
			r.Pause(bg)
			pause := time.Since(before)
			if pause >= most || pause < most/2 {
				t.Errorf("pause %d lasted %s, want %s to %s", n, pause, most/2, most)
			}
			shorter = shorter || pause < most*3/4
			most = min(2*most, 250*time.Millisecond)
		}
		if took := time.Since(began); took < forward.SearchTime || took > forward.SearchTime+250*time.Millisecond || !shorter {
			t.Errorf("%d retries took %s", n, took)
		}
		r = p.NewRetries()
		routertest.Pass(forward.SearchTime - 1)
		same(t, "more before the time is over", r.More(bg), true)
		routertest.Pass(1)
		same(t, "more when the time is over", r.More(bg), false)

		r = p.NewRetries()
		for _, c := range []struct {
			left time.Duration
			want bool
		}{{60 * time.Millisecond, true}, {60*time.Millisecond - 1, false}} {
			ctx, cancel := context.WithTimeout(bg, c.left)
			same(t, fmt.Sprintf("more with %s left", c.left), r.More(ctx), c.want)
			cancel()
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		before := time.Now()
		r.Pause(ctx)
		same(t, "pause of a caller that has left", time.Since(before), 0)
		p.Close()
		same(t, "more on a node that has stopped", r.More(bg), false)
	})
}
