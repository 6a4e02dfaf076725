package shard

import (
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/store"
)

// A leader with a slow disk hands over, once, to one whose disk is not slow. A leader no slower than the others stays.
func TestSlowDisk(t *testing.T) {
	for _, c := range []struct {
		name           string
		leader, others time.Duration // duration of a sync
		stays          bool
	}{
		{"slow leader", 600 * time.Millisecond, 0, false},
		{"all slow", 600 * time.Millisecond, 600 * time.Millisecond, true},
		{"slow leader, others not the fastest", 900 * time.Millisecond, 50 * time.Millisecond, false},
		{"a little slower", 300 * time.Millisecond, 60 * time.Millisecond, true},
		{"slower by far, but not slow", 50 * time.Millisecond, 0, true},
		{"slow followers", 0, 600 * time.Millisecond, true},
	}[:slowDisks] {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 7, 3, new(sometimes))
				w.roomy = true // so that the log's background work does not slow the leader down
				for _, n := range w.nodes {
					n.start(0)
				}
				cs := w.clients(2)
				stop := make(chan struct{})
				wg := runAll(cs, stop)
				w.wait(5 * time.Second)
				first := w.leader()
				for _, n := range w.nodes {
					n.alive().delay.Store(int64(c.others))
				}
				first.delay.Store(int64(c.leader))
				terms := w.terms.count()
				// A window may see too few saves, or the message may be lost; it is retried after a minute.
				for tries := 0; w.leader() == first && (tries < 3 || tries < 20 && !c.stays); tries++ {
					w.wait(10 * time.Second)
				}
				if stays := w.leader() == first; stays != c.stays || first.shard.SlowDisk() == c.stays {
					t.Errorf("the first leader still leads: %v, and reports its disk as slow: %v; want it still leading: %v", stays,
						first.shard.SlowDisk(), c.stays)
				}
				if !c.stays {
					w.wait(90 * time.Second) // to see that it does not lead again
				}
				if changes := w.terms.count() - terms; changes > 1 || c.stays && changes > 0 {
					t.Errorf("the leader changed %d times", changes)
				}
				for _, n := range w.nodes {
					n.alive().delay.Store(0)
				}
				close(stop)
				wg.Wait()
				w.settle(cs)
				w.endAll()
			})
		})
	}
}

// A leader whose disk hangs is replaced by the others, and ends itself.
func TestLeaderDiskHangs(t *testing.T) {
	eachSeed(t, 4, []string{"disk hangs"}, func(t *testing.T, seed uint64, some *sometimes) {
		w := newWorld(t, seed, 3+2*int(seed%2), some)
		for _, n := range w.nodes {
			n.start(0)
		}
		c := w.clients(1)[0]
		w.countOnce(c)
		l := w.leader()
		f := &fault{hangs: true, met: make(chan struct{})}
		l.fault.Store(f)
		go c.count(t.Context(), l, 0) // never answered
		<-f.met
		began := time.Now()
		other := w.clients(2)[1]
		for led := w.terms.count(); w.terms.count() == led; {
			w.wait(10 * time.Millisecond)
		}
		for _, n := range w.nodes {
			if _, serves := n.alive().shard.Now(); serves && n != l.node {
				other.node = int(n.num) - 1 // a client that calls the hung one waits there
			}
		}
		w.countOnce(other)
		if gap := time.Since(began); gap > 8*time.Second {
			w.errorf("nothing was answered for %v", gap)
		}
		<-l.disk.ended
		if took := time.Since(began); took > 8*time.Second {
			w.errorf("the replica went on for %v", took)
		}
		some.hit("disk hangs")
		l.node.end(false)
		l.node.start(0)
		w.settle([]*client{other})
		w.endAll()
	})
}

// The fastest candidate takes over from a leader that was slow most of the time, if the candidate is much faster and enough of its times
// are known.
func TestFasterReplica(t *testing.T) {
	const ms = time.Millisecond
	type peer struct {
		n    int // its number of entries
		took time.Duration
	}
	for _, c := range []struct {
		name  string
		own   []time.Duration
		peers map[uint64]peer
		want  uint64
	}{
		{"slow for just long enough", []time.Duration{slowSave, slowSave, slowSave, slowSave - 1, slowSave - 1},
			map[uint64]peer{2: {5, 5 * ms}}, 2},
		{"slow half of the time", []time.Duration{500 * ms, 500 * ms, 500 * ms, 1, 1, 1}, map[uint64]peer{2: {6, ms}}, 0},
		{"slow in too few saves", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms}, map[uint64]peer{2: {4, ms}}, 0},
		{"ten times as slow as the other", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms},
			map[uint64]peer{2: {6, 50 * ms}}, 2},
		{"not quite so slow", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms}, map[uint64]peer{2: {6, 51 * ms}},
			0},
		{"the other has half of the entries", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms},
			map[uint64]peer{2: {3, ms}}, 2},
		{"the other has less", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms}, map[uint64]peer{2: {2, ms}}, 0},
		{"two others", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms}, map[uint64]peer{2: {5, 9 * ms}, 3: {5, 8 * ms},
			4: {5, 10 * ms}}, 3},
		{"one that may not lead", []time.Duration{500 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms}, map[uint64]peer{9: {5, ms}}, 0},
	} {
		var p pace
		p.begin(0)
		for _, took := range c.own {
			p.saved(took)
		}
		for id, q := range c.peers {
			for i := range uint64(q.n) { // #nosec G115 -- small
				now := time.Duration(i) * time.Second // #nosec G115 -- small
				entry := &pb.Entry{Index: new(i + 10)}
				p.sent([]*pb.Message{
					{Type: pb.MsgHeartbeat.Enum(), To: new(id), Entries: []*pb.Entry{entry}},
					{Type: pb.MsgApp.Enum(), To: new(id)},
				}, now-time.Second)
				p.sent([]*pb.Message{{Type: pb.MsgApp.Enum(), To: new(id), Entries: []*pb.Entry{{Index: new(i + 9)}, entry}}}, now)
				// it waits for the first
				p.sent([]*pb.Message{{Type: pb.MsgApp.Enum(), To: new(id), Entries: []*pb.Entry{{Index: new(i + 50)}}}}, now)
				// not everything yet
				p.acked(&pb.Message{From: new(id), Index: new(i + 9)}, now)
				p.acked(&pb.Message{From: new(id), Index: new(i + 10), Reject: new(true)}, now)
				p.acked(&pb.Message{From: new(id), Index: new(i + 10)}, now+q.took)
				p.acked(&pb.Message{From: new(id), Index: new(i + 10)}, now+time.Hour) // a repeat: counted once
			}
		}
		candidates := map[uint64]uint64{2: 1, 3: 1, 4: 1}
		if got := p.fasterReplica(paceWindow-1, candidates); got != 0 {
			t.Errorf("%s: replica %d was chosen within the window", c.name, got)
		}
		if got := p.fasterReplica(paceWindow, candidates); got != c.want {
			t.Errorf("%s: replica %d was chosen to take over, want %d", c.name, got, c.want)
		}
		if rests := p.from > paceWindow; rests != (c.want != 0) || (p.slowAt != 0) != (c.want != 0) || p.own.n != 0 {
			t.Errorf("%s: the next window starts at %v, and the disk was slow at %v", c.name, p.from, p.slowAt)
		}
	}
	if got := (&latency{}).mean(); got != 0 {
		t.Errorf("the mean of no samples is %v, want 0", got)
	}
}

// A disk is reported as slow for ten minutes after leadership was handed over because of it, and no longer.
func TestSlowDiskIsForgotten(t *testing.T) {
	now := time.Hour
	s := &Shard{cfg: Config{Time: store.TimeSource{Elapsed: func() time.Duration { return now }}}}
	if s.SlowDisk() {
		t.Error("the disk is reported as slow from the start")
	}
	s.pace.slowAt = now
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {slowPeriod - 1, true}, {slowPeriod, false}} {
		if now = time.Hour + c.after; s.SlowDisk() != c.want {
			t.Errorf("%v after the handover SlowDisk is %v", c.after, !c.want)
		}
	}
}
