package claim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

var bg = context.Background()

// A node that leads the shard makes, awaits and settles claims without the network.
func TestLeaderClaimsWithoutNetwork(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		f.Network = func(_, _ uint32, method string) routertest.Delivery {
			t.Errorf("the leader called another node: %s", method)
			return routertest.NotSent
		}
		m := f.Nodes[1]
		id := f.Put(1)[0]
		began := time.Now()
		if err := m.Await(bg, 1, routertest.QueueCall(1)); err != nil || time.Since(began) != 0 || m.Watches() != 0 {
			t.Errorf("Await at the leader: %v after %v, %d watches", err, time.Since(began), m.Watches())
		}
		got, at, err := m.Claim(bg, 1, routertest.QueueCall(1), time.Minute)
		if err != nil || len(got) != 1 || at.Shard != 1 || time.Since(began) != 0 {
			t.Fatalf("Claim at the leader: %v at %+v, %v", got, at, err)
		}
		out, at, err := m.Settle(bg, 1, []broker.Settle{{Verb: broker.Ack, Hold: broker.Hold{ID: id, Token: got[0].Token}}})
		if err != nil || out[0].Err != nil || at.Shard != 1 || f.State(id).State != task.Succeeded {
			t.Errorf("Settle at the leader: %+v at %+v, %v", out, at, err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := m.Await(ctx, 1, routertest.QueueCall(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await in vain at the leader: %v", err)
		}
	})
}

// Claims of a shard that does not exist are not found. If that can't be found out, the call fails instead.
func TestSettlingInUnknownShard(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		calls := []broker.Settle{{Hold: broker.Hold{ID: task.NewID(77, 1, 1)}}, {Hold: broker.Hold{ID: task.NewID(77, 1, 2)}}}
		out, at, err := f.Nodes[2].Settle(bg, 77, calls)
		if err != nil || len(out) != 2 || !errors.Is(out[0].Err, task.ErrNotFound) || !errors.Is(out[1].Err, task.ErrNotFound) ||
			at.Index != 0 || f.Count("settle") != 0 {
			t.Errorf("a shard that does not exist: %+v at %+v, %v", out, at, err)
		}
		f.With(func() { f.SystemLeader = 0 })
		if out, _, err := f.Nodes[2].Settle(bg, 77, calls); !errors.Is(err, task.ErrUnavailable) || out != nil {
			t.Errorf("while nobody can say: %+v, %v", out, err)
		}
	})
}

// Of claims that wait at the same time, the one whose caller leaves ends, and the other goes on.
func TestTwoRemoteClaimsWait(t *testing.T) {
	for _, network := range []routertest.Delivery{routertest.Arrives, routertest.Hangs} {
		routertest.InFleet(t, 2, func(f *routertest.Fleet) {
			f.Network = func(_, _ uint32, method string) routertest.Delivery {
				if method == "claim" {
					return network
				}
				return routertest.Arrives
			}
			first, leave := context.WithCancel(bg)
			second, end := context.WithCancel(bg)
			defer end()
			for _, ctx := range []context.Context{first, second} {
				go func() { _, _, _ = f.Nodes[2].Claim(ctx, 1, routertest.QueueCall(1), time.Hour) }()
				routertest.Pass(5 * routertest.Latency)
			}
			if n := f.Nodes[1].Served(); n != 2 {
				t.Errorf("delivery %d: %d claims run for others, want 2", network, n)
			}
			leave()
			routertest.Pass(time.Second)
			if n := f.Nodes[1].Served(); n != 1 {
				t.Errorf("delivery %d: after one has left %d claims run for others, want 1", network, n)
			}
			id := f.Put(1)[0]
			routertest.Pass(time.Second)
			if x := f.State(id); x.State != task.Claimed || x.Fence != 1 {
				t.Errorf("delivery %d: the task is %s after %d claims", network, x.State, x.Fence)
			}
			end()
			routertest.Pass(time.Second)
			synctest.Wait()
			if n := f.Nodes[1].Served(); n != 0 {
				t.Errorf("delivery %d: in the end %d claims run for others", network, n)
			}
		})
	}
}

// While streams can't be opened, or hang, they are tried again, and a loss meanwhile is reported once one is open.
func TestUnopenableStreamsAreRetried(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		open := false
		f.Network = func(_, _ uint32, method string) routertest.Delivery {
			if method == "stream "+claim.WatchMethod && !open {
				return routertest.NotSent
			}
			return routertest.Arrives
		}
		m := f.Nodes[2]
		w, holds := hold(t, m, 2)
		defer w.Close()
		routertest.Pass(5 * time.Second)
		cancel(t, f, holds[0].ID)
		if n := f.Count("stream " + claim.WatchMethod); n < 5 || n > 100 || len(w.Lost()) != 0 {
			t.Errorf("%d streams were tried, %d losses reported", n, len(w.Lost()))
		}
		f.With(func() { open = true })
		wantLost(t, "lost while no stream was open", w.Lost(), holds[0])
		cancel(t, f, holds[1].ID)
		wantLost(t, "lost later", w.Lost(), holds[1])
	})
}

// A node serves no other kind of stream.
func TestOtherStreamsAreRefused(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		if err := f.Nodes[1].ServeStream("other", nil); err == nil || f.Nodes[1].Watched() != 0 {
			t.Errorf("a stream of another kind: %v", err)
		}
	})
}
