package shard

import (
	"fmt"
	"time"
)

// Each change of leader is one line in the log of the node that leads from then on: which shard, from whom, to whom, and why.

// former is the leader before the present one, as far as this replica knows.
type former struct {
	id    uint64        // 0: none is known
	heard time.Duration // when the present leader, or the last one, was heard of, in monotonic time
}

// change notes that another replica leads, or that none is known to.
func (f *former) change(from, to uint64) {
	if from != 0 && from != to {
		f.id = from
	}
}

// logLeader logs that this replica leads from now on. One that is alone in its group has taken over from nobody.
func (l *loop) logLeader() {
	if l.alone && l.former.id == 0 {
		return
	}
	from := ""
	if l.former.id != 0 {
		from = l.cfg.Node(l.former.id)
	}
	l.cfg.Logger.Info("the shard has a new leader", "shard", l.cfg.ID, "from", from, "to", l.cfg.Node(l.cfg.Replica), "replica", l.replicaName(l.cfg.Replica),
		"why", l.whyLeads(), "term", l.term)
}

// whyLeads is why this replica leads, in words.
func (l *loop) whyLeads() string {
	silent := (l.cfg.Time.Elapsed() - l.former.heard).Round(100 * time.Millisecond)
	switch r := l.handovers.request; {
	case r.term == l.term && r.why == "":
		return "handed over"
	case r.term == l.term:
		return "handed over: " + r.why
	case l.former.id == 0:
		return "elected, as no leader was known"
	case l.former.id == l.cfg.Replica:
		return "elected again"
	default:
		return fmt.Sprintf("elected: the leader was last heard of %v before", silent)
	}
}

// ReplicaName is what a replica is called beside the name of its node: the shard, and which of the shard's replicas it is, as in the name of
// its directory. Its id tells people nothing.
func ReplicaName(shard uint32, id uint64) string { return fmt.Sprintf("%d.%d", shard, id>>32) }

// ReplicaText is a replica of this shard in a sentence: "replica 3.1 on node n2".
func (s *Shard) ReplicaText(id uint64) string {
	return fmt.Sprintf("replica %s on node %s", ReplicaName(s.cfg.ID, id), s.cfg.Node(id))
}

func (l *loop) replicaName(id uint64) string { return ReplicaName(l.cfg.ID, id) }
