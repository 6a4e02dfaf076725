package cluster

import (
	"sync"
	"time"
)

const (
	// aliveFor is how long a node counts as alive after it was last heard from: a few polls.
	aliveFor = 10 * time.Second
	// sameLeader is how short a gap between two terms must be for the nodes not to be given time to report again.
	sameLeader = time.Second
)

// liveness is when the nodes were last heard from, and what they reported.
type liveness struct {
	own  func() Report // of this node, which need not report to itself; nil: it does
	node uint32        // this one

	mu     sync.Mutex
	left   time.Time // when leadership was last lost
	since  time.Time // when it became leader after a gap
	heard  map[uint32]nodeReport
	before map[uint32]time.Duration // how long nodes had been silent when they fell silent for it, by their rows; see silence
	starts map[uint32]*starts       // of nodes, as far as this one noticed; they outlast its leadership
}

// nodeReport is a node's last report.
type nodeReport struct {
	Report
	At time.Time
}

func newLiveness(own func() Report, node uint32) *liveness {
	return &liveness{own: own, node: node, heard: map[uint32]nodeReport{}, before: map[uint32]time.Duration{}, starts: map[uint32]*starts{}}
}

// elected notes that a term begins. It must be called before anyone can see the term: a node that was heard from by an earlier leader only
// is not silent yet.
func (l *liveness) elected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.left) > sameLeader {
		l.since = now
		clear(l.heard)
		clear(l.before)
	}
}

// dropped notes that the term has ended.
func (l *liveness) dropped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = time.Now()
}

// silent returns how long a node has not been heard from. A new leader counts from the start of its leadership.
func (l *liveness) silent(number uint32) time.Duration {
	if l.isOwn(number) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.since
	if h, ok := l.heard[number]; ok && h.At.After(last) {
		last = h.At
	}
	return time.Since(last)
}

// silence is silent, with the silence that earlier leaders have written to the node's row. A node that may not have had
// time to report to this leader is not silent yet.
func (l *liveness) silence(n Node) time.Duration {
	silent := l.silent(n.Number)
	if silent < aliveFor {
		return silent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.before[n.Number]; !known {
		l.before[n.Number] = n.Silent // none of it is from this term: it is asked for before it is written
	}
	return l.before[n.Number] + silent
}

// isOwn reports whether a node is this one, which leads the system shard or is about to be refused.
func (l *liveness) isOwn(number uint32) bool { return l.own != nil && number == l.node }

// fitness returns what keeps a node from leading.
func (l *liveness) fitness(number uint32) fitness {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fitnessOf(number, time.Now())
}

// noteReport stores the report of a node of the cluster.
func (l *liveness) noteReport(r Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	r.Uses = nil
	l.heard[r.Node], l.before[r.Node] = nodeReport{r, now}, 0
	if l.starts[r.Node] == nil {
		l.starts[r.Node] = &starts{}
	}
	l.starts[r.Node].heard(r.Up, now)
}

// noteAlive records a sign of life of a node that has reported before.
func (l *liveness) noteAlive(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.heard[number]; ok {
		h.At = time.Now()
		l.heard[number] = h
	}
}

// fitnessOf returns the fitness of a node. The caller holds the lock.
func (l *liveness) fitnessOf(number uint32, now time.Time) fitness {
	r, heard := l.heard[number]
	return fitness{barred: r.Barred || r.DiskShort || l.probationOf(number, now) > 0, full: r.DiskShort, unheard: !heard}
}

// probationOf returns how long a node that keeps restarting must have run; 0: it does not keep restarting. The caller holds the lock.
func (l *liveness) probationOf(number uint32, now time.Time) time.Duration {
	if s := l.starts[number]; s != nil {
		return s.probation(now)
	}
	return 0
}

// startsOf returns the number of a node's starts within the window. The caller holds the lock.
func (l *liveness) startsOf(number uint32, now time.Time) int {
	if s := l.starts[number]; s != nil {
		return s.lately(now)
	}
	return 0
}
func (l *liveness) overview(n Node) NodeOverview {
	if l.isOwn(n.Number) {
		return NodeOverview{Node: n, Alive: true, Reported: true, Report: l.own()}
	}
	silent := l.silence(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.heard[n.Number]
	now := time.Now()
	return NodeOverview{Node: n, Alive: ok && silent < aliveFor, Reported: ok, Silent: silent, Report: h.Report,
		Starts: l.startsOf(n.Number,
			now), Proof: l.probationOf(n.Number, now)}
}
