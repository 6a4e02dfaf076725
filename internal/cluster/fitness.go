package cluster

import "time"

// A node whose process crashes and restarts again and again takes shards down each time. After a single start leadership returns to it
// immediately; the more often it has started, the later.
const (
	// startsWindow is how long a start counts, maxStarts how many are remembered per node.
	startsWindow = 10 * time.Minute
	maxStarts    = 8
	// minProbation is how long a node must have run after its second start within the window before it gets leadership; each further start
	// doubles that, up to maxProbation.
	minProbation = 30 * time.Second
	maxProbation = 5 * time.Minute
)

// starts holds the starts of a node's process that the leader of the system shard has noticed.
type starts struct {
	up time.Duration // uptime in the last report; 0: none reported
	at []time.Time   // the latest starts, oldest first
}

// heard records the reported uptime: if it is shorter than before, the process has restarted. Older releases do not report it.
func (s *starts) heard(up time.Duration, now time.Time) {
	if up == 0 {
		return
	}
	if up < s.up {
		if s.at = append(s.at, now); len(s.at) > maxStarts {
			s.at = s.at[1:]
		}
	}
	s.up = up
}

// lately returns the number of starts within the window.
func (s *starts) lately(now time.Time) (n int) {
	for _, at := range s.at {
		if now.Sub(at) < startsWindow {
			n++
		}
	}
	return n
}

// probation returns how long the process must have run before its node gets leadership; 0: it need not prove anything, or has.
func (s *starts) probation(now time.Time) time.Duration {
	n := s.lately(now)
	if n < 2 {
		return 0
	}
	need := min(minProbation<<(n-2), maxProbation)
	if now.Sub(s.at[len(s.at)-1]) >= need {
		return 0
	}
	return need
}

// MaxClockOffset is how far a node's wall clock may be from that of most others. Beyond it the node leads no shard: by its clock tasks
// would be early or late.
const MaxClockOffset = 500 * time.Millisecond

// fitness is what keeps a node from leading, according to its last report.
type fitness struct {
	barred  bool // it gets no leadership
	full    bool // the leadership that it has is transferred
	unheard bool // there is no report yet
}
