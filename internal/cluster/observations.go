package cluster

import (
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// freshStatus is how old the last answer of a shard's leader may be to decide by it.
const freshStatus = 5 * time.Second

// observations is what the shards' leaders answered when they were last asked.
type observations struct {
	shard *system.Shard
	seen  system.Memory[seenShards]
}

// seenShards is what a leader of the system shard has seen of the shards.
type seenShards struct {
	last  map[uint32]observation
	doubt map[uint32]time.Time // until when shards may have voters other than those seen
}

// observation is the state of a shard when it was last asked.
type observation struct {
	status  Status
	problem string    // "": none
	step    string    // what is being done about it
	at      time.Time // when it was asked
}

// doubt notes that the voters of a shard may change until a time. It returns false if this node does not lead.
func (o *observations) doubt(shard uint32, until time.Time) bool {
	return o.seen.In(o.shard, func(seen *seenShards) {
		if seen.doubt == nil {
			seen.doubt = map[uint32]time.Time{}
		}
		seen.doubt[shard] = until
	})
}

// changeDone notes that the voters of a shard have changed. A status seen from now on has the new ones.
func (o *observations) changeDone(shard uint32) { o.doubt(shard, time.Now()) }

// observed records the state of a shard.
func (o *observations) observed(shard uint32, is observation) {
	o.seen.In(o.shard, func(seen *seenShards) {
		if seen.last == nil {
			seen.last = map[uint32]observation{}
		}
		seen.last[shard] = is
	})
}

// of returns the last observation of a shard, and until when the shard was in doubt. known is false if there is none.
func (o *observations) of(shard uint32) (last observation, doubt time.Time, known bool) {
	o.seen.In(o.shard, func(seen *seenShards) {
		last, known = seen.last[shard]
		doubt = seen.doubt[shard]
	})
	return last, doubt, known
}

// fresh reports whether the observation has a leader and is recent enough to decide by it.
func (o *observation) fresh() bool { return o.status.Leader != 0 && time.Since(o.at) < freshStatus }

// certainStatus returns the last status of a shard's leader, if its voters cannot have changed since: neither by this leader of the system
// shard, nor by an earlier one, whose calls have ended by then.
func (o *observations) certainStatus(shard uint32) (Status, bool) {
	term := o.shard.Term()
	last, doubt, known := o.of(shard)
	if !known || !last.fresh() || term == nil {
		return last.status, false
	}
	return last.status, last.at.Sub(term.Began) >= stepTimeout && last.at.After(doubt)
}

// overview describes a shard.
func (o *observations) overview(s Shard) ShardOverview {
	last, _, known := o.of(s.ID)
	status := last.status
	v := ShardOverview{Shard: s, Known: known && last.fresh(), Problem: last.problem, LastStep: last.step}
	if !known {
		v.Problem = "not checked yet"
	}
	if !v.Known {
		return v
	}
	v.Leader, v.Term, v.Applied = status.Leader, status.Term, status.Applied
	for _, id := range slices.Concat(status.Voters, status.Learners) {
		p := status.Progress[id]
		r := ReplicaOverview{ID: id, Node: NodeOf(id), Voter: status.votes(id), Answers: status.answers(id), Leaving: s.leaves(id),
			Snapshotting: p.Snapshotting, DiffersAt: p.DiffersAt, Apart: p.Apart}
		if id != status.Leader && p.Match < status.Applied {
			r.Lag = status.Applied - p.Match
		}
		v.Members = append(v.Members, r)
	}
	return v
}
