package claim

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// oneNode is a node that leads all shards, and knows no others.
type oneNode struct {
	forward.Broker
	forward.Map
}

func (oneNode) Leader(uint32) (node, term, index uint64) { return 1, 1, 1 }
func (oneNode) Draining() <-chan struct{}                { return nil }

// newRemote returns the claims of other nodes' shards on a node that has no others.
func newRemote(t *testing.T, log *bytes.Buffer) *remoteClaims {
	logger := slog.New(slog.DiscardHandler)
	if log != nil {
		logger = slog.New(slog.NewTextHandler(log, nil))
	}
	f := forward.New(forward.Config{Node: 1, Parts: &verb.Parts{}, Broker: oneNode{}, Map: oneNode{}, Logger: logger})
	t.Cleanup(f.Close)
	return &remoteClaims{forward: f, log: logger}
}

// Claims are removed in frames of their own, before others are added. A claim that was not sent yet is not removed at the other node.
func TestFramesOfALink(t *testing.T) {
	f := newRemote(t, nil)
	f.claims = map[task.ClaimID]remoteClaim{}
	l := newLink(f, 2)
	hold := func(n int) broker.Hold { return broker.Hold{ID: task.NewID(1, 1, uint64(n))} }
	add := func(n int) {
		f.claims[keyOf(hold(n))] = remoteClaim{hold: hold(n)}
		l.add(keyOf(hold(n)))
	}
	if f.frame(l) != nil {
		t.Error("got a frame although nothing was added or removed")
	}
	add(0)
	add(1)
	l.remove(hold(0)) // not sent yet
	l.remove(hold(2))
	l.added[keyOf(hold(3))] = true // removed meanwhile
	if p := f.frame(l); p == nil || len(p.Remove) != 1 || p.Remove[0].ID != hold(2).ID || len(p.Add) != 1 || p.Add[0].ID != hold(1).ID {
		t.Errorf("first frame = %+v", p)
	}
	if p := f.frame(l); p != nil {
		t.Errorf("got another frame after everything was sent: %+v", p)
	}
	for n := range maxFrameClaims + 1 {
		l.remove(hold(n))
		add(n)
	}
	for i, want := range [][2]int{{maxFrameClaims, 0}, {1, maxFrameClaims}, {0, 1}} {
		if p := f.frame(l); p == nil || len(p.Remove) != want[0] || len(p.Add) != want[1] {
			t.Fatalf("frame %d = %+v, want %d removed and %d added", i, p, want[0], want[1])
		}
	}
	if p := f.frame(l); p != nil {
		t.Errorf("got another frame after everything was sent: %+v", p)
	}
	l.gone = make([]broker.Hold, maxRemovals-1)
	if l.remove(hold(0)); l.ctx.Err() != nil {
		t.Error("the stream ended although the pending removals did not exceed the maximum")
	}
	if l.remove(hold(1)); l.ctx.Err() == nil {
		t.Error("the stream was not ended when the pending removals exceeded the maximum")
	}
}

// Claims beyond the bound are not watched, and that is logged once a minute.
func TestTooManyRemoteClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newRemote(t, &log)
		f.claims, f.byShard, f.links, f.running = make(map[task.ClaimID]remoteClaim, maxRemoteClaims), map[uint32]*shardClaims{},
			map[uint32]*link{}, true
		for n := range maxRemoteClaims - 1 {
			f.claims[task.ClaimID{Task: task.NewID(2, 1, uint64(n))}] = remoteClaim{}
		}
		w := &claimWatch{remote: map[task.ClaimID]bool{}}
		add := func(n, said int) {
			t.Helper()
			f.add(w, broker.Hold{ID: task.NewID(3, 1, uint64(n))})
			if len(f.claims) != maxRemoteClaims || strings.Count(log.String(), "too many claims") != said {
				t.Errorf("%d claims are watched, log is %q, want the warning %d times", len(f.claims), log.String(), said)
			}
		}
		add(1, 0)
		add(2, 1)
		add(3, 1)
		time.Sleep(time.Minute)
		add(4, 1)
		time.Sleep(time.Second)
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

// A node that watches claims for another counts them: each can cause one notice, and their number is bounded.
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
			t.Errorf("frame %d: %d claims are held, moved %v, %v; want %d held", i, g.held, g.moved, err, c.want)
		}
	}
	here.takes, g.held = true, maxRemoteClaims+maxFrameClaims-1
	if err := g.take(&watchFrame{Add: []broker.Hold{hold(7)}}); err != nil {
		t.Errorf("take at the maximum of watched claims: %v", err)
	}
	if err := g.take(&watchFrame{Add: []broker.Hold{hold(8)}}); err == nil {
		t.Error("take accepted more claims than the maximum")
	}
}
