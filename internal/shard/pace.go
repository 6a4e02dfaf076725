package shard

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// A leader answers nothing before its own disk has an entry, so a leader with a slow disk slows everybody down, even if the
// others have had the entries for long. It detects this, and hands leadership to the fastest of them. A disk that hangs is a
// different matter: the loop hangs with it, sends no heartbeats, and the others elect a leader by themselves.
const (
	// slowSave is the least duration of a slow save. slowTimes is how many times longer than a follower's save it must be,
	// including the follower's round trip.
	slowSave  = 100 * time.Millisecond
	slowTimes = 10
	// paceWindow is the time over which it is measured; leastSaves is the least number of saves in it: one hiccup is no reason.
	paceWindow = 10 * time.Second
	leastSaves = 5
	// paceBackoff is how long a leader waits after deciding to hand over before it may decide so again, whatever the outcome.
	// slowPeriod is how long it reports its disk as slow, so that nobody brings leadership back to it.
	paceBackoff = time.Minute
	slowPeriod  = 10 * time.Minute
)

// pace measures how long a leader's own disk takes for entries, and how long each other replica takes for the same ones.
type pace struct {
	mu     sync.Mutex
	from   time.Duration // start of the window, perhaps in the future, in monotonic time
	own    latency
	slow   int // the slow ones among own
	peers  map[uint64]*latency
	slowAt time.Duration // when leadership was last handed over because of the disk; 0: never
}

// latency sums up durations, and holds the one being measured.
type latency struct {
	n     int
	sum   time.Duration
	index uint64 // the entry that is waited for; 0: none
	sent  time.Duration
}

func (s *latency) add(d time.Duration) { s.n, s.sum = s.n+1, s.sum+d }

func (s *latency) mean() time.Duration { return s.sum / time.Duration(max(s.n, 1)) }

// begin drops all measurements and starts a window at the given time.
func (p *pace) begin(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart(at)
}

func (p *pace) restart(at time.Duration) {
	p.from, p.own, p.slow, p.peers = at, latency{}, 0, map[uint64]*latency{}
}

// sent records the entries that leave for other replicas.
func (p *pace) sent(ms []*pb.Message, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range ms {
		if m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
			continue
		}
		s := p.peers[m.GetTo()]
		if s == nil {
			s = &latency{}
			p.peers[m.GetTo()] = s
		}
		if s.index == 0 {
			s.index, s.sent = m.GetEntries()[len(m.GetEntries())-1].GetIndex(), now
		}
	}
}

// acked records that another replica has entries. It is called on arrival of the message, since the loop may be waiting for its own disk.
func (p *pace) acked(m *pb.Message, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.peers[m.GetFrom()]; s != nil && !m.GetReject() && s.index != 0 && m.GetIndex() >= s.index {
		s.add(now - s.sent)
		s.index = 0
	}
}

// saved records how long this replica's disk took for entries.
func (p *pace) saved(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own.add(took); took >= slowSave {
		p.slow++
	}
}

// fasterReplica evaluates a window that has ended. It returns the fastest candidate if this replica's disk is slow and that one's is
// not; 0: none.
func (p *pace) fasterReplica(now time.Duration, candidates map[uint64]uint64) (to uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now-p.from < paceWindow {
		return 0
	}
	own, slow, peers := p.own, p.slow, p.peers
	p.restart(now)
	if own.n < leastSaves || 2*slow <= own.n {
		return 0
	}
	best := own.mean() / slowTimes
	for id := range candidates {
		if s := peers[id]; s != nil && 2*s.n >= own.n && s.mean() <= best {
			to, best = id, s.mean()
		}
	}
	if to != 0 {
		p.restart(now + paceBackoff)
		p.slowAt = now
	}
	return to
}

// paceSends measures while this replica is leading, as save does.
func (l *loop) paceSends(ms []*pb.Message) {
	if l.leading != nil && len(ms) > 0 {
		l.pace.sent(ms, l.cfg.Time.Elapsed())
	}
}

func (l *loop) save(rd raft.Ready) error {
	if len(rd.Entries) == 0 {
		return l.log.Save(rd.HardState, rd.Entries)
	}
	before := l.cfg.Time.Elapsed()
	err := l.log.Save(rd.HardState, rd.Entries)
	took := l.cfg.Time.Elapsed() - before
	l.cfg.Observe.Saved(took)
	if l.leading != nil {
		l.pace.saved(took)
	}
	return err
}

// SlowDisk reports whether this replica handed leadership over within the last ten minutes because its disk was slow. It
// should not get leadership back as long as others can lead.
func (s *Shard) SlowDisk() bool {
	s.pace.mu.Lock()
	defer s.pace.mu.Unlock()
	return s.pace.slowAt > 0 && s.cfg.Time.Elapsed()-s.pace.slowAt < slowPeriod
}
