package shard

import (
	"fmt"
	"time"
)

// Every change of leader is one line in the log of the new leader's node: which shard, from whom, to whom, and why.

// previousLeader is the previous leader, as far as this replica knows.
type previousLeader struct {
	id    uint64        // 0: unknown
	heard time.Duration // when the current or last leader was last heard from, in monotonic time
}

// update records that another replica leads, or that no leader is known.
func (f *previousLeader) update(from, to uint64) {
	if from != 0 && from != to {
		f.id = from
	}
}

// logLeader logs that this replica leads from now on, unless it is alone in its group and so has taken over from nobody.
func (l *loop) logLeader() {
	if l.alone && l.previous.id == 0 {
		return
	}
	from := ""
	if l.previous.id != 0 {
		from = l.cfg.Node(l.previous.id)
	}
	l.cfg.Logger.Info("the shard has a new leader", "shard", l.cfg.ID, "from", from, "to", l.cfg.Node(l.cfg.Replica), "replica",
		l.cfg.replicaName(l.cfg.Replica), "why", l.whyLeads(), "term", l.term)
}

// whyLeads returns the reason why this replica leads.
func (l *loop) whyLeads() string {
	silent := (l.cfg.Time.Elapsed() - l.previous.heard).Round(100 * time.Millisecond)
	switch r := l.transfers.request; {
	case r.term == l.term && r.why == "":
		return "handed over"
	case r.term == l.term:
		return "handed over: " + r.why
	case l.previous.id == 0:
		return "elected, as no leader was known"
	case l.previous.id == l.cfg.Replica:
		return "elected again"
	default:
		return fmt.Sprintf("elected: the previous leader had been silent for %v", silent)
	}
}

// ReplicaName returns the name of a replica, shown along with its node: the shard, and the number of the replica within the shard, as in
// the name of its directory. Its Raft id means nothing to people.
func ReplicaName(shard uint32, id uint64) string { return fmt.Sprintf("%d.%d", shard, id>>32) }

// ReplicaText describes a replica of this shard in a message: "replica 3.1 on node n2".
func (s *Shard) ReplicaText(id uint64) string {
	return fmt.Sprintf("replica %s on node %s", ReplicaName(s.cfg.ID, id), s.cfg.Node(id))
}

func (c *Config) replicaName(id uint64) string { return ReplicaName(c.ID, id) }
