package shard

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A replica that runs on an earlier copy of its files has forgotten entries that it acknowledged, and votes. Its log and state agree
// with each other, so only others can tell. Raft assumes that this can't happen: it panics, or counts the replica for entries that it
// doesn't have. So a leader's heartbeat tells a replica what it has acknowledged to this leader, in a field that Raft doesn't use there.
// A replica that doesn't have that must not continue.

// addMatch adds to a heartbeat the last entry that its recipient has acknowledged to this leader, in this term.
func addMatch(from *raft.RawNode, m *pb.Message) {
	from.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == m.GetTo() {
			m.Index = new(p.Match)
		}
	})
}

// contradiction returns the error for a log that does not have what a leader's message says that it has; nil: it does.
func contradiction(l *loop, m *pb.Message) error {
	kind := m.GetType()
	if kind != pb.MsgHeartbeat && kind != pb.MsgApp {
		return nil
	}
	hs, _, _ := l.log.InitialState() // an acknowledgement leaves after it is saved
	// Nobody else leads a group with one voter, unless that voter has voted for it. A change of its membership must be in its log.
	if l.alone && !l.unapplied() && (m.GetTerm() > hs.GetTerm() || m.GetTerm() == hs.GetTerm() && l.soft.RaftState == raft.StateLeader) {
		return l.log.LostError("this is the only voter, and %s leads in term %d: this is a copy from before the others joined",
			l.ReplicaText(m.GetFrom()), m.GetTerm())
	}
	if m.GetTerm() < hs.GetTerm() {
		return nil // of an old leader, whose last entries may have been replaced
	}
	last, _ := l.log.LastIndex()
	if kind == pb.MsgHeartbeat {
		switch acked := max(m.GetIndex(), m.GetCommit()); {
		case acked > last:
			return l.log.LostError("it had acknowledged entry %d to %s, but ends at entry %d: this is an earlier copy",
				acked, l.ReplicaText(m.GetFrom()), last)
		case acked > 0 && m.GetTerm() > hs.GetTerm():
			return l.log.LostError("it had acknowledged entry %d to %s in term %d, but has reached only term %d: this is an earlier copy",
				acked, l.ReplicaText(m.GetFrom()), m.GetTerm(), hs.GetTerm())
		}
		return nil
	}
	if end, _ := l.log.Term(last); m.GetIndex() > last || m.GetIndex() == last && m.GetLogTerm() == end {
		return nil // all of it is new
	}
	// What is saved, not what Raft knows by now: it may have replaced and committed entries that are still to be saved.
	committed := hs.GetCommit()
	for _, e := range append([]*pb.Entry{{Index: new(m.GetIndex()), Term: new(m.GetLogTerm())}}, m.GetEntries()...) {
		have, err := l.log.Term(e.GetIndex())
		if err == nil && e.GetIndex() <= committed && have != e.GetTerm() { // it went on alone
			return l.log.LostError("it has a committed entry %d of term %d, and %s has one of term %d: this is another copy",
				e.GetIndex(), have, l.ReplicaText(m.GetFrom()), e.GetTerm())
		}
	}
	return nil
}
