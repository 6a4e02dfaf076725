package shard

import (
	"testing"
	"testing/synctest"
	"time"
)

// A leader whose disk is slow hands over to one whose disk is not, once, and one that is no worse than the others stays.
func TestSlowDisk(t *testing.T) {
	for _, c := range []struct {
		name           string
		leader, others time.Duration // what a sync takes
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
				w.roomy = true // so that it isn't the log's background work that holds the leader up
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
				// A window may see too few saves, and the message that hands over may be lost, which is tried again after a minute.
				for tries := 0; w.leader() == first && (tries < 3 || tries < 20 && !c.stays); tries++ {
					w.wait(10 * time.Second)
				}
				if stays := w.leader() == first; stays != c.stays || first.shard.SlowDisk() == c.stays {
					t.Errorf("it leads on: %v, and calls its disk slow: %v; want it to lead on: %v", stays, first.shard.SlowDisk(), c.stays)
				}
				if !c.stays {
					w.wait(90 * time.Second) // to see that it doesn't come back
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
		go c.count(t.Context(), l, 0) // which nobody answers
		<-f.met
		began := time.Now()
		other := w.clients(2)[1]
		for led := w.terms.count(); w.terms.count() == led; {
			w.wait(10 * time.Millisecond)
		}
		for _, n := range w.nodes {
			if _, serves := n.alive().shard.Now(); serves && n != l.node {
				other.node = int(n.num) - 1 // a client that asks the hung one waits there
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
