package router

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
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
func (m *member) hold(n int) (w held, holds []broker.Hold) {
	m.f.mustPut(n)
	got, _, err := m.Claim(context.Background(), 1, queueCall(n), 0)
	if err != nil || len(got) != n {
		m.f.t.Fatalf("claimed %v, %v", got, err)
	}
	w.lost = make(chan broker.Lost, 1000)
	w.watch = m.WatchClaims(func(l broker.Lost) { w.lost <- l })
	for _, c := range got {
		h := broker.Hold{Namespace: ns, ID: c.ID, Token: c.Token}
		w.Add(h)
		holds = append(holds, h)
	}
	return w, holds
}

// cancel cancels a task at the leader.
func (f *fleet) cancel(id task.ID) {
	if err := cancel(context.Background(), f.nodes[1], id); err != nil {
		f.t.Error(err)
	}
}

// told waits a second for the notice of a loss.
func (f *fleet) told(where string, lost <-chan broker.Lost, h broker.Hold) {
	f.t.Helper()
	select {
	case l := <-lost:
		if l.ID != h.ID || l.Token != h.Token || l.Reason != task.StaleCancelled {
			f.t.Errorf("%s: told of %+v, want %+v", where, l, h)
		}
	case <-time.After(time.Second):
		f.t.Errorf("%s: not told within a second", where)
	}
}

// A holder learns of a loss within a second wherever the shard is led, even after the leader has moved to others, here, and away again.
func TestALossIsToldWhereverTheLeaderIs(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		m := f.nodes[1]
		w, holds := m.hold(8)
		defer w.Close()
		for i, at := range []uint32{1, 2, 3, 1, 3, 2, 1} {
			f.lead(1, at)
			pass(2 * time.Second)
			f.cancel(holds[i].ID)
			f.told("led by "+string(rune('0'+at)), w.Lost(), holds[i])
		}
		if len(w.Lost()) > 0 {
			t.Error("more is told than was lost")
		}
		if n := f.count("stream " + watchMethod); n > 4 {
			t.Errorf("%d streams were opened", n)
		}
	})
}

// A node without a replica learns of a new leader from the old one.
func TestALossIsToldWithoutAReplica(t *testing.T) {
	for _, shy := range []bool{false, true} {
		inFleet(t, 4, func(f *fleet) { f.toldWithoutAReplica(shy) })
	}
}

func (f *fleet) toldWithoutAReplica(shy bool) {
	f.shards[1].replicas, f.shards[1].shy = []uint32{1, 2, 3}, shy
	w, holds := f.nodes[4].hold(4)
	defer w.Close()
	for i, at := range []uint32{1, 2, 3, 1} {
		f.lead(1, at)
		pass(time.Second)
		f.cancel(holds[i].ID)
		f.told("led by "+string(rune('0'+at)), w.Lost(), holds[i])
	}
	// Only the leader watches.
	if a, b := f.nodes[2].watched(), f.nodes[3].watched(); a+b != 0 {
		f.t.Errorf("%d and %d claims are watched at nodes that do not lead", a, b)
	}
}

// A claim lost at the very moment when the leader changes or a stream breaks, or before its watch has begun, is reported too.
func TestALossInTheGapIsTold(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		m := f.nodes[2]
		w, holds := m.hold(6)
		defer w.Close()
		pass(time.Second)
		f.cancel(holds[0].ID)
		f.cutStreams() // the notice is lost with its stream
		f.told("broken stream", w.Lost(), holds[0])

		f.lead(1, 3)
		f.cancel(holds[1].ID) // the claim has not been posted there yet
		f.told("new leader", w.Lost(), holds[1])

		f.lead(1, 2)
		f.cancel(holds[2].ID)
		f.told("new leader here", w.Lost(), holds[2])

		f.lead(1, 1)
		f.cancel(holds[3].ID)
		f.lead(1, 2) // there and back
		f.told("there and back", w.Lost(), holds[3])

		f.lead(1, 1)
		pass(time.Second)
		w.Remove(holds[4].ID, holds[4].Token)
		f.cancel(holds[4].ID)
		w.Remove(holds[5].ID, holds[5].Token)
		f.cancel(holds[5].ID)
		w.Add(holds[5]) // lost before it is watched
		f.told("before the watch", w.Lost(), holds[5])
		if len(w.Lost()) > 0 {
			t.Error("told of a claim that was removed")
		}
	})
}

// The other node hides that it no longer leads: streams are silent, and only this node's replica knows better.
func TestASilentOldLeader(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		w, holds := f.nodes[2].hold(1)
		defer w.Close()
		pass(time.Second)
		f.with(func() {
			f.network = func(_, to uint32, _ string) fate { return []fate{arrives, notSent, arrives, arrives}[to] }
		})
		f.lead(1, 3)
		pass(time.Second)
		if err := cancel(context.Background(), f.nodes[3], holds[0].ID); err != nil {
			t.Error(err)
		}
		f.told("node 1 is silent", w.Lost(), holds[0])
	})
}

// A claim that its holder has ended is not reported lost, and no trace of it remains anywhere.
func TestNothingIsLeftOfEndedClaims(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		m := f.nodes[2]
		w, holds := m.hold(50)
		pass(time.Second)
		if n := f.nodes[1].watched(); n != 50 {
			t.Errorf("%d claims are watched at the leader", n)
		}
		for i, h := range holds[:40] {
			if _, _, err := m.Settle(context.Background(), 1, []broker.Settle{{Verb: broker.Ack, Hold: h}}); err != nil {
				t.Error(err)
			}
			if i < 20 {
				w.Remove(h.ID, h.Token)
			} // the others are detected
		}
		pass(time.Second)
		synctest.Wait()
		if n := f.nodes[1].watched(); n != 10 || len(m.remoteClaims.claims) != 10 || len(w.Lost()) != 0 {
			t.Errorf("%d watched there, %d here, %d told", n, len(m.remoteClaims.claims), len(w.Lost()))
		}
		w.Close()
		w.Add(holds[45]) // too late
		pass(time.Second)
		synctest.Wait()
		if n := f.nodes[1].watched(); n != 0 || len(m.remoteClaims.claims)+len(m.remoteClaims.byShard) != 0 {
			t.Errorf("after Close: %d watched there, %d here, %d posts", n, len(m.remoteClaims.claims), len(m.remoteClaims.byShard))
		}
		pass(linkIdle / 2) // the stream waits for other claims
		again, _ := m.hold(1)
		pass(3 * linkIdle) // and stays as long as it has some
		if n := f.count("stream " + watchMethod); n != 1 {
			t.Errorf("%d streams for claims of one node", n)
		}
		frames := f.frames
		pass(time.Minute)
		if f.frames != frames {
			t.Errorf("%d frames about claims that nothing happens to", f.frames-frames)
		}
		again.Close()
		pass(2 * linkIdle)
		synctest.Wait()
		if len(m.remoteClaims.links) != 0 || m.remoteClaims.running || len(f.streams) != 0 {
			t.Errorf("%d links, %d streams, running %v: without claims", len(m.remoteClaims.links), len(f.streams), m.remoteClaims.running)
		}
		// And again, from the start.
		w, holds = m.hold(1)
		pass(time.Second)
		f.cancel(holds[0].ID)
		f.told("after a rest", w.Lost(), holds[0])
		w.Close()
	})
}

// While there is no leader, claims wait for one quietly.
func TestWatchedClaimsWithoutALeader(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		m := f.nodes[2]
		w, holds := m.hold(1)
		defer w.Close()
		pass(time.Second)
		f.lead(1, 0)
		pass(20 * time.Second)
		f.lead(1, 3)
		pass(time.Second)
		f.cancel(holds[0].ID)
		f.told("after an election", w.Lost(), holds[0])
		if n := f.count("stream " + watchMethod); n > 100 {
			t.Errorf("%d streams were opened", n)
		}
	})
}

// A worker that claims a task again holds the new claim only.
func TestANewClaimOfTheSameTask(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		m := f.nodes[2]
		w, holds := m.hold(1)
		defer w.Close()
		pass(time.Second)
		if _, _, err := m.Settle(context.Background(), 1, []broker.Settle{{Verb: broker.Release, Hold: holds[0]}}); err != nil {
			t.Fatal(err)
		}
		got, _, err := m.Claim(context.Background(), 1, queueCall(1), 0)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		again := broker.Hold{Namespace: ns, ID: got[0].ID, Token: got[0].Token}
		w.Add(again)
		w.Remove(holds[0].ID, holds[0].Token) // late
		pass(time.Second)
		f.cancel(again.ID)
		f.told("second claim", w.Lost(), again)

		// The same if another worker claims and the first one leaves.
		first, holds := m.hold(1)
		f.with(func() { f.shards[1].tasks[holds[0].ID].fence++ })
		again = holds[0]
		again.Token.Fence++
		w.Add(again)
		first.Close()
		pass(time.Second)
		f.cancel(again.ID)
		f.told("second worker", w.Lost(), again)
	})
}

// A broken stream does not affect the claims at other nodes.
func TestABrokenStreamIsOneNodes(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.shard(2, 3, 1)
		m := f.nodes[2]
		w, holds := m.hold(1) // at node 1
		defer w.Close()
		other := broker.Hold{Namespace: ns, ID: f.shards[2].add(), Token: holds[0].Token}
		f.with(func() { f.shards[2].tasks[other.ID].state, f.shards[2].tasks[other.ID].fence = task.Claimed, 1 })
		w.Add(other) // at node 3
		pass(time.Second)
		synctest.Wait()
		m.remoteClaims.broken(m.remoteClaims.links[1])
		if far := m.remoteClaims.byShard; far[1].node != 0 || far[1].failed != 1 || far[2].node != 3 {
			t.Errorf("when the stream to node 1 broke, posts are %+v and %+v", far[1], far[2])
		}
	})
}

// Claims are removed in frames of their own, before others are added, and one that was not sent yet is not removed there.
func TestFramesOfALink(t *testing.T) {
	r := New(Config{Node: 1, Map: instantMap{}, Broker: &instant{leader: 1}})
	defer r.Close()
	f := &r.remoteClaims
	f.claims = map[task.ID]remoteClaim{}
	l := newLink(f, 2)
	hold := func(n int) broker.Hold { return broker.Hold{ID: task.NewID(1, 1, uint64(n))} }
	add := func(n int) {
		f.claims[hold(n).ID] = remoteClaim{hold: hold(n)}
		l.add(hold(n).ID)
	}
	if f.frame(l) != nil {
		t.Error("a frame of nothing")
	}
	add(0)
	add(1)
	l.remove(hold(0)) // not sent yet
	l.remove(hold(2))
	l.added[hold(3).ID] = true // removed meanwhile
	if p := f.frame(l); p == nil || len(p.Remove) != 1 || p.Remove[0].ID != hold(2).ID || len(p.Add) != 1 || p.Add[0].ID != hold(1).ID {
		t.Errorf("the first frame is %+v", p)
	}
	if p := f.frame(l); p != nil {
		t.Errorf("all was sent, and then %+v", p)
	}
	for n := range maxFrameClaims + 1 {
		l.remove(hold(n))
		add(n)
	}
	for i, want := range [][2]int{{maxFrameClaims, 0}, {1, maxFrameClaims}, {0, 1}} {
		if p := f.frame(l); p == nil || len(p.Remove) != want[0] || len(p.Add) != want[1] {
			t.Fatalf("frame %d is %+v, want %d taken back and %d added", i, p, want[0], want[1])
		}
	}
	if p := f.frame(l); p != nil {
		t.Errorf("all was sent, and then %+v", p)
	}
	l.gone = make([]broker.Hold, maxRemovals-1)
	if l.remove(hold(0)); l.ctx.Err() != nil {
		t.Error("a stream that may be that far behind is ended")
	}
	if l.remove(hold(1)); l.ctx.Err() == nil {
		t.Error("a stream that is too far behind goes on")
	}
}

// Claims beyond the bound are not watched, and that is logged once a minute.
func TestTooManyFarClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := New(Config{Node: 1, Map: instantMap{}, Broker: &instant{leader: 1}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer r.Close()
		f := &r.remoteClaims
		f.claims, f.byShard, f.links, f.running = make(map[task.ID]remoteClaim, maxRemoteClaims), map[uint32]*shardClaims{}, map[uint32]*link{}, true
		for n := range maxRemoteClaims - 1 {
			f.claims[task.NewID(2, 1, uint64(n))] = remoteClaim{}
		}
		w := &claimWatch{r: r, remote: map[task.ID]bool{}}
		add := func(n, said int) {
			t.Helper()
			f.add(w, broker.Hold{ID: task.NewID(3, 1, uint64(n))})
			if len(f.claims) != maxRemoteClaims || strings.Count(log.String(), "too many claims") != said {
				t.Errorf("%d claims, and the log says %q, want it %d times", len(f.claims), log.String(), said)
			}
		}
		add(1, 0)
		add(2, 1)
		add(3, 1)
		pass(time.Minute)
		add(4, 1)
		pass(time.Second)
		add(5, 2)
		w.closed = true
		add(6, 2)
	})
}

// refusing is a watch that has some claims, and accepts no others.
type refusing struct {
	LocalWatch
	takes bool
	has   map[task.ID]bool
}

func (w *refusing) Add(h broker.Hold) bool {
	if w.takes {
		w.has[h.ID] = true
	}
	return w.takes
}

func (w *refusing) Remove(id task.ID, _ task.Token) bool {
	has := w.has[id]
	delete(w.has, id)
	return has
}

// A node that watches claims for another counts them: each can lead to one notice, and their number is bounded.
func TestWatchedClaimsAreCounted(t *testing.T) {
	here := &refusing{takes: true, has: map[task.ID]bool{}}
	g := &claimWatcher{here: here, wake: make(chan struct{}, 1), moved: map[uint32]bool{}}
	hold := func(n int) broker.Hold { return broker.Hold{ID: task.NewID(1, 1, uint64(n))} }
	for i, c := range []struct {
		frame watchFrame
		lost  int
		takes bool
		want  int
	}{
		{watchFrame{Add: []broker.Hold{hold(1), hold(2), hold(3)}}, 0, true, 3},
		{watchFrame{Add: []broker.Hold{hold(2)}}, 0, true, 3}, // again
		{watchFrame{Remove: []broker.Hold{hold(1), hold(9)}}, 0, true, 2},
		{watchFrame{Remove: []broker.Hold{hold(2)}, Add: []broker.Hold{hold(4), hold(5)}}, 0, true, 3},
		{watchFrame{}, 1, true, 2},
		{watchFrame{Add: []broker.Hold{hold(6)}}, 0, false, 2}, // it belongs elsewhere
	} {
		here.takes = c.takes
		err := g.take(&c.frame)
		for range c.lost {
			g.onLost(broker.Lost{})
		}
		if err != nil || g.held != c.want || g.moved[1] == c.takes {
			t.Errorf("frame %d: %d are held, moved %v, %v; want %d", i, g.held, g.moved, err, c.want)
		}
	}
	here.takes, g.held = true, maxRemoteClaims+maxFrameClaims-1
	if err := g.take(&watchFrame{Add: []broker.Hold{hold(7)}}); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	if err := g.take(&watchFrame{Add: []broker.Hold{hold(8)}}); err == nil {
		t.Error("more than may be are watched")
	}
}
