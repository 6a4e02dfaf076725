package shard

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// A leader answers nothing before its own disk has an entry, so one whose disk is slow makes everybody slow, though the
// others may have each entry long before. It notices, and hands leadership to the fastest of them. A disk that hangs is
// another matter: the loop hangs with it, sends no heartbeats, and the others elect a leader by themselves.
const (
	// slowSave is how long a save must take to be slow at all, and slowTimes how many times longer than a follower takes,
	// on its way and back included.
	slowSave  = 100 * time.Millisecond
	slowTimes = 10
	// paceWindow is over which time it is measured, and leastSaves how many saves that must see: one hiccup is no reason.
	paceWindow = 10 * time.Second
	leastSaves = 5
	// paceRest is how long a leader that wanted to hand over doesn't try again, whatever came of it; slowRest how long it
	// calls its disk slow, so that nobody brings leadership back to it.
	paceRest = time.Minute
	slowRest = 10 * time.Minute
)

// pace is how long a leader's own disk takes for entries, and how long each other replica takes for the same ones.
type pace struct {
	mu     sync.Mutex
	from   time.Duration // the window began then, or will, on the monotonic clock
	own    spell
	slow   int // of own's
	peers  map[uint64]*spell
	slowAt time.Duration // when leadership was last handed over because of the disk; 0: never
}

// spell is how long some things took, and the one that is under way.
type spell struct {
	n     int
	sum   time.Duration
	index uint64 // the entry that is waited for; 0: none
	sent  time.Duration
}

func (s *spell) add(d time.Duration) { s.n, s.sum = s.n+1, s.sum+d }

func (s *spell) mean() time.Duration { return s.sum / time.Duration(max(s.n, 1)) }

// begin forgets what was measured, and measures from then on.
func (p *pace) begin(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart(at)
}

func (p *pace) restart(at time.Duration) {
	p.from, p.own, p.slow, p.peers = at, spell{}, 0, map[uint64]*spell{}
}

// sends notes which entries leave for other replicas.
func (p *pace) sends(ms []*pb.Message, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range ms {
		if m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
			continue
		}
		s := p.peers[m.GetTo()]
		if s == nil {
			s = &spell{}
			p.peers[m.GetTo()] = s
		}
		if s.index == 0 {
			s.index, s.sent = m.GetEntries()[len(m.GetEntries())-1].GetIndex(), now
		}
	}
}

// hears notes that another replica has entries, as soon as it says so: the loop may be waiting for its own disk.
func (p *pace) hears(m *pb.Message, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.peers[m.GetFrom()]; s != nil && !m.GetReject() && s.index != 0 && m.GetIndex() >= s.index {
		s.add(now - s.sent)
		s.index = 0
	}
}

// saved notes how long entries took on this replica's disk.
func (p *pace) saved(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own.add(took); took >= slowSave {
		p.slow++
	}
}

// heir judges a window that is over: the fastest of the candidates, if this replica's disk is slow and that one's is not;
// 0: none.
func (p *pace) heir(now time.Duration, candidates map[uint64]uint64) (to uint64) {
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
		p.restart(now + paceRest)
		p.slowAt = now
	}
	return to
}

// paceSends and save measure while this replica is leading.
func (l *loop) paceSends(ms []*pb.Message) {
	if l.leading != nil && len(ms) > 0 {
		l.pace.sends(ms, l.cfg.Time.Elapsed())
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

// SlowDisk says that this replica handed leadership over within the last ten minutes because its disk was slow. To bring it
// back would be a mistake, as long as others can lead.
func (s *Shard) SlowDisk() bool {
	s.pace.mu.Lock()
	defer s.pace.mu.Unlock()
	return s.pace.slowAt > 0 && s.cfg.Time.Elapsed()-s.pace.slowAt < slowRest
}
