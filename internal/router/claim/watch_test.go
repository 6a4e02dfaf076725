package claim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// held is a watch and the losses that it reported.
type held struct {
	watch
	lost chan broker.Lost
}

type watch = interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
}

func (h held) Lost() <-chan broker.Lost { return h.lost }

// hold claims tasks at a node and watches them there.
func hold(t *testing.T, m *routertest.Member, n int) (w held, holds []broker.Hold) {
	t.Helper()
	m.Fleet.Put(n)
	got, _, err := m.Claim(context.Background(), 1, routertest.QueueCall(n), 0)
	if err != nil || len(got) != n {
		t.Fatalf("Claim = %v, %v", got, err)
	}
	w.lost = make(chan broker.Lost, 1000)
	w.watch = m.WatchClaims(func(l broker.Lost) { w.lost <- l })
	for _, c := range got {
		h := broker.Hold{Namespace: routertest.Namespace, ID: c.ID, Token: c.Token}
		w.Add(h)
		holds = append(holds, h)
	}
	return w, holds
}

// cancel cancels a task at the leader.
func cancel(t *testing.T, f *routertest.Fleet, id task.ID) {
	t.Helper()
	if err := routertest.Cancel(context.Background(), f.Nodes[1], id); err != nil {
		t.Error(err)
	}
}

// wantLost checks that the loss of h is reported within a second.
func wantLost(t *testing.T, where string, lost <-chan broker.Lost, h broker.Hold) {
	t.Helper()
	select {
	case l := <-lost:
		if l.ID != h.ID || l.Token != h.Token || l.Reason != task.StaleCancelled {
			t.Errorf("%s: loss reported as %+v, want %+v", where, l, h)
		}
	case <-time.After(time.Second):
		t.Errorf("%s: the loss was not reported within a second", where)
	}
}

// A worker's node learns of a lost claim within a second wherever the shard is led, even after the leader moved to
// others, here and away again.
func TestLossIsReportedFromAnyLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		m := f.Nodes[1]
		w, holds := hold(t, m, 8)
		defer w.Close()
		for i, at := range []uint32{1, 2, 3, 1, 3, 2, 1} {
			f.Lead(1, at)
			routertest.Pass(2 * time.Second)
			cancel(t, f, holds[i].ID)
			wantLost(t, "led by "+string(rune('0'+at)), w.Lost(), holds[i])
		}
		if len(w.Lost()) > 0 {
			t.Error("more losses were reported than claims were lost")
		}
		if n := f.Count("stream " + claim.WatchMethod); n > 4 {
			t.Errorf("%d streams were opened, want at most 4", n)
		}
	})
}

// A node without a replica learns of a new leader from the old one.
func TestLossIsReportedWithoutReplica(t *testing.T) {
	for _, shy := range []bool{false, true} {
		routertest.InFleet(t, 4, func(f *routertest.Fleet) { lossesWithoutReplica(t, f, shy) })
	}
}

func lossesWithoutReplica(t *testing.T, f *routertest.Fleet, shy bool) {
	f.Shards[1].Replicas, f.Shards[1].Shy = []uint32{1, 2, 3}, shy
	w, holds := hold(t, f.Nodes[4], 4)
	defer w.Close()
	for i, at := range []uint32{1, 2, 3, 1} {
		f.Lead(1, at)
		routertest.Pass(time.Second)
		cancel(t, f, holds[i].ID)
		wantLost(t, "led by "+string(rune('0'+at)), w.Lost(), holds[i])
	}
	// Only the leader watches.
	if a, b := f.Nodes[2].Watched(), f.Nodes[3].Watched(); a+b != 0 {
		t.Errorf("nodes that do not lead watch %d and %d claims, want none", a, b)
	}
}

// A claim lost at the very moment when the leader changes or a stream breaks, or before its watch has begun, is reported too.
func TestLossDuringLeaderChangeIsReported(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		m := f.Nodes[2]
		w, holds := hold(t, m, 6)
		defer w.Close()
		routertest.Pass(time.Second)
		cancel(t, f, holds[0].ID)
		f.CutStreams() // the notice is lost with its stream
		wantLost(t, "broken stream", w.Lost(), holds[0])

		f.Lead(1, 3)
		cancel(t, f, holds[1].ID) // the new leader does not watch the claim yet
		wantLost(t, "new leader", w.Lost(), holds[1])

		f.Lead(1, 2)
		cancel(t, f, holds[2].ID)
		wantLost(t, "new leader here", w.Lost(), holds[2])

		f.Lead(1, 1)
		cancel(t, f, holds[3].ID)
		f.Lead(1, 2) // there and back
		wantLost(t, "there and back", w.Lost(), holds[3])

		f.Lead(1, 1)
		routertest.Pass(time.Second)
		w.Remove(holds[4].ID, holds[4].Token)
		cancel(t, f, holds[4].ID)
		w.Remove(holds[5].ID, holds[5].Token)
		cancel(t, f, holds[5].ID)
		w.Add(holds[5]) // lost before it is watched
		wantLost(t, "before the watch", w.Lost(), holds[5])
		if len(w.Lost()) > 0 {
			t.Error("the loss of a claim that was removed was reported")
		}
	})
}

// The old leader hides that it no longer leads: its streams are silent, and only this node's replica knows the new one.
func TestSilentDeposedLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		w, holds := hold(t, f.Nodes[2], 1)
		defer w.Close()
		routertest.Pass(time.Second)
		f.With(func() {
			f.Network = func(_, to uint32, _ string) routertest.Delivery {
				return []routertest.Delivery{routertest.Arrives, routertest.NotSent, routertest.Arrives, routertest.Arrives}[to]
			}
		})
		f.Lead(1, 3)
		routertest.Pass(time.Second)
		if err := routertest.Cancel(context.Background(), f.Nodes[3], holds[0].ID); err != nil {
			t.Error(err)
		}
		wantLost(t, "node 1 is silent", w.Lost(), holds[0])
	})
}

// The loss of a claim that its holder has ended is not reported, and nothing remains of it on any node.
func TestEndedClaimsAreForgotten(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		m := f.Nodes[2]
		w, holds := hold(t, m, 50)
		routertest.Pass(time.Second)
		if n := f.Nodes[1].Watched(); n != 50 {
			t.Errorf("the leader watches %d claims, want 50", n)
		}
		for i, h := range holds[:40] {
			if _, _, err := m.Settle(context.Background(), 1, []broker.Settle{{Verb: broker.Ack, Hold: h}}); err != nil {
				t.Error(err)
			}
			if i < 20 {
				w.Remove(h.ID, h.Token)
			} // the node notices the others by itself
		}
		routertest.Pass(time.Second)
		synctest.Wait()
		if n := f.Nodes[1].Watched(); n != 10 || m.Remote().Claims != 10 || len(w.Lost()) != 0 {
			t.Errorf("leader watches %d claims, this node has %d, %d losses reported; want 10, 10 and 0", n,
				m.Remote().Claims, len(w.Lost()))
		}
		w.Close()
		w.Add(holds[45]) // too late
		routertest.Pass(time.Second)
		synctest.Wait()
		if n := f.Nodes[1].Watched(); n != 0 || m.Remote().Claims+m.Remote().Shards != 0 {
			t.Errorf("after Close the leader watches %d claims, this node has %d claims and %d shards, want none", n,
				m.Remote().Claims, m.Remote().Shards)
		}
		routertest.Pass(claim.LinkIdle / 2) // the stream stays open for other claims
		again, _ := hold(t, m, 1)
		routertest.Pass(3 * claim.LinkIdle) // and longer while it has some
		if n := f.Count("stream " + claim.WatchMethod); n != 1 {
			t.Errorf("%d streams to one node, want 1", n)
		}
		frames := f.Frames
		routertest.Pass(time.Minute)
		if f.Frames != frames {
			t.Errorf("%d frames were sent while no claim changed", f.Frames-frames)
		}
		again.Close()
		routertest.Pass(2 * claim.LinkIdle)
		synctest.Wait()
		if m.Remote().Links != 0 || m.Remote().Running || len(f.Streams) != 0 {
			t.Errorf("without claims there are %d links and %d streams, running = %v", m.Remote().Links, len(f.Streams), m.Remote().Running)
		}
		// And again, from the start.
		w, holds = hold(t, m, 1)
		routertest.Pass(time.Second)
		cancel(t, f, holds[0].ID)
		wantLost(t, "after a rest", w.Lost(), holds[0])
		w.Close()
	})
}

// While there is no leader, the node does not open streams at a high rate for its claims.
func TestWatchedClaimsWithoutALeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		m := f.Nodes[2]
		w, holds := hold(t, m, 1)
		defer w.Close()
		routertest.Pass(time.Second)
		f.Lead(1, 0)
		routertest.Pass(20 * time.Second)
		f.Lead(1, 3)
		routertest.Pass(time.Second)
		cancel(t, f, holds[0].ID)
		wantLost(t, "after an election", w.Lost(), holds[0])
		if n := f.Count("stream " + claim.WatchMethod); n > 100 {
			t.Errorf("%d streams were opened, want at most 100", n)
		}
	})
}

// A worker that claims a task again holds the new claim only.
func TestNewClaimOfSameTask(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		m := f.Nodes[2]
		w, holds := hold(t, m, 1)
		defer w.Close()
		routertest.Pass(time.Second)
		if _, _, err := m.Settle(context.Background(), 1, []broker.Settle{{Verb: broker.Release, Hold: holds[0]}}); err != nil {
			t.Fatal(err)
		}
		got, _, err := m.Claim(context.Background(), 1, routertest.QueueCall(1), 0)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		again := broker.Hold{Namespace: routertest.Namespace, ID: got[0].ID, Token: got[0].Token}
		w.Add(again)
		w.Remove(holds[0].ID, holds[0].Token) // late
		routertest.Pass(time.Second)
		cancel(t, f, again.ID)
		wantLost(t, "second claim", w.Lost(), again)

		// The same if another worker claims and the first one leaves.
		first, holds := hold(t, m, 1)
		f.With(func() { f.Shards[1].Tasks[holds[0].ID].Fence++ })
		again = holds[0]
		again.Token.Fence++
		w.Add(again)
		first.Close()
		routertest.Pass(time.Second)
		cancel(t, f, again.ID)
		wantLost(t, "second worker", w.Lost(), again)
	})
}

// A broken stream does not affect the claims that other nodes watch.
func TestBrokenStreamAffectsOneNode(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.AddShard(2, 3, 1)
		m := f.Nodes[2]
		w, holds := hold(t, m, 1) // at node 1
		defer w.Close()
		other := broker.Hold{Namespace: routertest.Namespace, ID: f.Shards[2].Add(), Token: holds[0].Token}
		f.With(func() { f.Shards[2].Tasks[other.ID].State, f.Shards[2].Tasks[other.ID].Fence = task.Claimed, 1 })
		w.Add(other) // at node 3
		routertest.Pass(time.Second)
		synctest.Wait()
		m.Break(1)
		if one, two := m.Post(1), m.Post(2); one.Node != 0 || one.Failed != 1 || two.Node != 3 {
			t.Errorf("after the stream to node 1 broke, the shards are watched at %+v and %+v", one, two)
		}
	})
}

// All fields of the frames arrive at the other node, including ones added later.
func TestFramesRoundTrip(t *testing.T) {
	routertest.RoundTrips(t, "postings", routertest.Plain[claim.Frame])
	routertest.RoundTrips(t, "notices", routertest.Plain[claim.Notices])
}
