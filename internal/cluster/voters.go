package cluster

import (
	"cmp"
	"fmt"
	"slices"
)

// vote makes the voters what they should be, in one change: learners that are ready are promoted, and those that they replace leave. No
// voter leaves before there is another in its place, not even that of a removed node, as long as a member could take it: with fewer voters
// an acknowledged write would be on fewer disks.
func (p *planner) vote() Decision {
	want := p.voters()
	if v := p.surplus(want); v.Step.Kind != NoStep {
		return v
	}
	if same(want, p.Status.Voters) {
		return p.waiting(want)
	}
	if !slices.Contains(want, p.Status.Leader) {
		if v, settled := p.handOver(want); settled {
			return v
		}
		want = append(slices.Clone(want), p.Status.Leader)
		if same(want, p.Status.Voters) {
			return Decision{Busy: "waits for a voter that can lead in its leader's place"}
		}
	}
	if !p.Status.commits(want) {
		return Decision{Blocked: fmt.Sprintf("only %d of the %d replicas that should vote answer", p.Status.live(want), len(want))}
	}
	return Decision{Step: Step{Kind: ChangeVoters, Change: p.change(want)}}
}

// handOver transfers leadership to another voter before the leader itself stops voting. It is not settled if none of the wanted voters
// votes yet: they have to join first, while the leader still votes.
func (p *planner) handOver(want []uint64) (v Decision, settled bool) {
	why := "its replica on node " + p.memberOf(p.Status.Leader).Name + " will stop voting"
	if to := p.bestLeader(want); to != 0 {
		return Decision{Step: Step{Kind: TransferLeader, Replica: to, Why: why}}, true
	}
	for _, id := range want {
		if p.Status.fit(id) { // on a node that should not lead, but none is better
			return Decision{Step: Step{Kind: TransferLeader, Replica: id, Why: why}}, true
		}
	}
	for _, id := range want {
		if p.Status.votes(id) && p.Status.answers(id) {
			return Decision{Busy: fmt.Sprintf("waits for the replica on node %s to catch up and lead", p.memberOf(id).Name)}, true
		}
	}
	return Decision{}, false
}

// target returns how many voters there should be: as many as the replication asks for or nodes can hold, and odd. An unwanted replica
// counts only while it votes: it is not made a voter. A silent member counts only in place of a voter on a removed node: it may have joined
// in that node's place a moment ago.
func (p *planner) target() int {
	capable, silent := len(p.good), 0
	for _, m := range p.Members {
		switch _, held := p.Shard.On(m.Number); {
		case held:
		case m.eligible():
			capable++
		case m.State == Active:
			silent++
		}
	}
	capable += p.voting(p.unwanted) + p.voting(p.leaving) + min(silent, p.voting(p.forced))
	n := min(p.Settings.Replication, capable)
	return n - (n+1)%2
}

// voting returns the number of voters among some replicas.
func (p *planner) voting(ids []uint64) (n int) {
	for _, id := range ids {
		if p.Status.votes(id) {
			n++
		}
	}
	return n
}

// voters returns the voters that there should be next.
func (p *planner) voters() []uint64 {
	var stay, come, fill []uint64
	for _, id := range p.Status.Voters {
		if slices.Contains(p.good, id) {
			stay = append(stay, id)
		} else {
			fill = append(fill, id) // only as long as there is none better
		}
	}
	for _, id := range p.good {
		if slices.Contains(p.Status.Learners, id) && p.Status.ready(id) {
			come = append(come, id)
		}
	}
	for _, list := range [][]uint64{stay, come, fill} {
		slices.SortStableFunc(list, p.compareVoters)
	}
	all := slices.Concat(stay, come, fill)
	if n := max(p.target(), 1); len(all) >= n {
		return all[:n]
	}
	// Others are on their way, or there is none. Until they are ready, no voter leaves that need not, and as many join as make the number
	// odd.
	want := slices.Concat(stay, fill)
	if odd := (len(want) + 1) % 2; len(come) > 0 {
		want = append(want, come[:odd+(len(come)-odd)/2*2]...)
	}
	return want
}

// compareVoters sorts by who should vote: the leader first, then those that answer, and last those that should not exist.
func (p *planner) compareVoters(a, b uint64) int {
	rank := func(id uint64) int {
		switch {
		case slices.Contains(p.forced, id):
			return 4
		case id == p.Status.Leader:
			return 0
		case NodeOf(id) == p.Shard.Preferred:
			return 1
		case p.Status.answers(id):
			return 2
		}
		return 3
	}
	return cmp.Compare(rank(a), rank(b))
}

// surplus marks a replica as leaving if there are more than asked for, and the voters are complete without it. Unwanted ones leave first.
func (p *planner) surplus(voters []uint64) Decision {
	excess := len(p.staying()) - p.Settings.Replication
	if excess <= 0 {
		return Decision{}
	}
	order := p.staying()
	slices.SortStableFunc(order, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(p.removalRank(a, voters), p.removalRank(b, voters)), cmp.Compare(p.memberOf(b).Replicas,
			p.memberOf(a).Replicas))
	})
	for _, id := range order[:excess] {
		if !slices.Contains(voters, id) {
			return Decision{Step: Step{Kind: LeaveReplica, Replica: id}}
		}
	}
	return Decision{}
}

// removalRank ranks replicas by which should leave first: those of dead nodes, of draining ones, then others; among
// each, those that should not vote.
func (p *planner) removalRank(id uint64, voters []uint64) int {
	worth := 4
	if m := p.memberOf(id); m.Silent >= replaceAfter {
		worth = 0
	} else if m.State == Draining {
		worth = 2
	}
	if slices.Contains(voters, id) {
		worth++
	}
	return worth
}

// waiting reports whether the voters would be others if a learner had caught up.
func (p *planner) waiting(voters []uint64) Decision {
	replaces := p.voting(p.leaving)+p.voting(p.unwanted)+p.voting(p.forced) > 0
	for _, id := range p.good {
		if slices.Contains(p.Status.Learners, id) && !p.Status.ready(id) && (replaces || len(voters) < p.target()) {
			return Decision{Busy: fmt.Sprintf("the replica on node %s catches up", p.memberOf(id).Name)}
		}
	}
	return Decision{}
}

// change returns the change from the current voters to others.
func (p *planner) change(want []uint64) VoterChange {
	c := VoterChange{Term: p.Status.Term, From: slices.Sorted(slices.Values(p.Status.Voters))}
	for _, id := range want {
		if !slices.Contains(p.Status.Voters, id) {
			c.Promote = append(c.Promote, id)
		}
	}
	for _, id := range p.Status.Voters {
		switch {
		case slices.Contains(want, id):
		case slices.Contains(p.good, id) || slices.Contains(p.unwanted, id):
			c.Demote = append(c.Demote, id)
		default:
			c.Remove = append(c.Remove, id)
		}
	}
	slices.Sort(c.Promote)
	slices.Sort(c.Demote)
	slices.Sort(c.Remove)
	return c
}

func same(a, b []uint64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
