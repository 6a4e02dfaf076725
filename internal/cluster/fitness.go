package cluster

import "time"

// A node whose program ends and starts again and again takes shards with it each time. Leadership comes back to it at once after one start,
// and the later, the more often it has started.
const (
	// startsWindow is for how long a start counts, maxStarts how many are remembered of a node.
	startsWindow = 10 * time.Minute
	maxStarts    = 8
	// firstProof is how long a node must have run after its second start in that time before leadership is brought to it; each further start
	// doubles that, up to maxProof.
	firstProof = 30 * time.Second
	maxProof   = 5 * time.Minute
)

// starts are those of a node's program that the leader of the system shard has noticed.
type starts struct {
	up time.Duration // that the program had run when it last told; 0: it never told
	at []time.Time   // the latest, oldest first
}

// heard notes how long the program has run: less than before means that it has started anew. One of an older release says nothing of it.
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

// lately counts the starts that still count.
func (s *starts) lately(now time.Time) (n int) {
	for _, at := range s.at {
		if now.Sub(at) < startsWindow {
			n++
		}
	}
	return n
}

// proof is how long the program must have run before leadership is brought to its node; 0: it need not prove anything, or has.
func (s *starts) proof(now time.Time) time.Duration {
	n := s.lately(now)
	if n < 2 {
		return 0
	}
	need := min(firstProof<<(n-2), maxProof)
	if now.Sub(s.at[len(s.at)-1]) >= need {
		return 0
	}
	return need
}

// MaxClockOffset is how far a node's wall clock may be from that of most others. Beyond it the node leads no shard: what it takes for now
// would make tasks early or late.
const MaxClockOffset = 500 * time.Millisecond

// fitness is what keeps leadership from a node, by what it last told.
type fitness struct {
	barred bool // it is to be given none
	full   bool // what it has is to be handed to others
}

// fitnessOf says whether leadership may be brought to a node. The caller holds Control.mu.
func (c *Control) fitnessOf(number uint32, now time.Time) fitness {
	r := c.heard[number].Report
	return fitness{barred: r.Barred || r.DiskShort || c.proofOf(number, now) > 0, full: r.DiskShort}
}

// proofOf is how long a node that starts again and again must have run; 0: it is not one of those. The caller holds Control.mu.
func (c *Control) proofOf(number uint32, now time.Time) time.Duration {
	if s := c.starts[number]; s != nil {
		return s.proof(now)
	}
	return 0
}

// startsOf counts those of a node that still count. The caller holds Control.mu.
func (c *Control) startsOf(number uint32, now time.Time) int {
	if s := c.starts[number]; s != nil {
		return s.lately(now)
	}
	return 0
}
