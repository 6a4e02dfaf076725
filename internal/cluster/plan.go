package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// Status is a shard's Raft status as reported by its leader.
type Status struct {
	Leader uint64 // replica id; 0: none
	Term   uint64
	Led    time.Duration // for how long the leader has led
	// Voters vote. VotersOutgoing is set while a change of voters is under way: then both sets must agree.
	Voters, VotersOutgoing, Learners []uint64
	Applied                          uint64
	Progress                         map[uint64]Progress // of the replicas, as the leader knows it
}

// Progress is the leader's view of a replica.
type Progress struct {
	Match        uint64 // index up to which it has the log
	Active       bool   // it answers
	Snapshotting bool   // it is being sent a snapshot
	Unfit        bool   // leadership must not be transferred to it now: it is silent at the moment, or failed to take over lately
	DiffersAt    uint64 // log entry at which its state was found to differ from those of others; 0: it was not
	Apart        bool   // most others agree
}

// answers reports whether a replica answers its leader, or leads.
func (s Status) answers(id uint64) bool { return id == s.Leader && id != 0 || s.Progress[id].Active }

// live returns the number of replicas that answer.
func (s Status) live(ids []uint64) (n int) {
	for _, id := range ids {
		if s.answers(id) {
			n++
		}
	}
	return n
}

// commits reports whether enough of these voters answer to commit.
func (s Status) commits(voters []uint64) bool { return 2*s.live(voters) > len(voters) }

// minLed is how long a leader leads before leadership is moved to a better node. Whatever is wrong with the plan's knowledge of the nodes,
// a shard changes its leader no more often. Transfers that an operator asked for, or that a change of voters needs, don't wait.
const minLed = 5 * time.Second

// maxBehind is how many entries a replica may lack and still count as caught up: they are in flight.
const maxBehind = 1000

// ready reports whether a replica could vote right away. A replica that has acknowledged nothing may not be running yet: Raft assumes that
// a new replica is active, and in a young shard none is far behind.
func (s Status) ready(id uint64) bool {
	p := s.Progress[id]
	return id == s.Leader || p.Active && !p.Snapshotting && p.Match > 0 && p.Match+maxBehind >= s.Applied
}

// fit reports whether leadership could be transferred to a replica right away.
func (s Status) fit(id uint64) bool { return s.votes(id) && s.ready(id) && !s.Progress[id].Unfit }

// settled reports whether the leader has led for long enough to be replaced by a better one.
func (s Status) settled() bool { return s.Led >= minLed }

// has reports whether a replica is a member of the shard.
func (s Status) has(id uint64) bool { return s.votes(id) || slices.Contains(s.Learners, id) }

// votes reports whether a replica votes.
func (s Status) votes(id uint64) bool {
	return slices.Contains(s.Voters, id) || slices.Contains(s.VotersOutgoing, id)
}

// StepKind is the kind of a step.
type StepKind uint8

const (
	NoStep StepKind = iota
	// These change the shard's row.
	AddReplica   // adds a replica on Node; Replica, if not 0, leaves in exchange
	LeaveReplica // marks Replica as leaving
	KeepReplica  // Replica stays after all: no other can take its place
	DropReplica  // deletes Replica, which is no longer a member, from the row
	// These change the shard's membership or its leader.
	AddLearner
	RemoveLearner
	ChangeVoters
	TransferLeader // to Replica
)

// Step is one thing to do for a shard. Doing it twice is the same as doing it once.
type Step struct {
	Kind    StepKind
	Shard   uint32
	Node    uint32
	Replica uint64
	Change  VoterChange
	Why     string // why the leader changes; "": it does not
}

// VoterChange is one atomic change of voters: a joint one if need be.
type VoterChange struct {
	// Term and From are the leader's term and the voters that the change was planned for. A shard with others refuses it.
	Term uint64
	From []uint64
	// Promote are learners that become voters, Demote voters that become learners, Remove voters that leave.
	Promote, Demote, Remove []uint64
}

// Member is a node as the plan sees it.
type Member struct {
	Node
	Silent   time.Duration // since it was last heard from
	Replicas int           // number of those that it holds and that stay
	Leaders  int           // number of leaders among them
	Barred   bool          // it gets no leadership now
	Full     bool          // its disk has no room for new tasks: the leadership that it has is transferred
	Unheard  bool          // it has not reported to this leader of the system shard yet: it may be barred or full
}

func (m Member) alive() bool { return m.Silent < aliveFor }

// eligible reports whether a node may get a replica.
func (m Member) eligible() bool { return m.State == Active && m.alive() }

// mayLead reports whether a node is known to be fit for leadership.
func (m Member) mayLead() bool { return m.eligible() && !m.Barred && !m.Unheard }

// hasRoom reports whether a node is known to have room for another replica.
func (m Member) hasRoom() bool { return !m.Full && !m.Unheard }

// PlanInput is everything that the plan for a shard depends on.
type PlanInput struct {
	Settings system.Settings
	Members  []Member // in the order of their numbers
	Shard    Shard
	Status   Status
}

// Decision is the decision about a shard.
type Decision struct {
	Step    Step   // Kind NoStep: nothing now
	Busy    string // what it waits for; "": the shard is at rest
	Blocked string // why something that should be done can't be; "": nothing
}

const (
	// replaceAfter is how long a node must be silent before its replicas are replaced.
	replaceAfter = 5 * time.Minute
	// learnerPatience is how long a node without a voter of the shard may be silent before another one is chosen instead.
	learnerPatience = 30 * time.Second
)

// Next returns the next step for a shard. It never leaves a shard without a majority of voters that answer, if it has one, and at rest the
// number of voters is odd.
func Next(s PlanInput) Decision {
	st := s.Status
	switch {
	case st.Leader == 0:
		return Decision{Busy: "it has no leader"}
	case len(st.VotersOutgoing) > 0:
		return Decision{Busy: "its voters are being changed"}
	case !st.commits(st.Voters):
		return Decision{Busy: fmt.Sprintf("only %d of its %d voters answer", st.live(st.Voters), len(st.Voters))}
	}
	p := newPlanner(s)
	for _, rule := range []func() Decision{p.tidy, p.dropSilent, p.keepLeaving, p.add, p.addLearner, p.lead, p.vote} {
		v := rule()
		if v.Step.Kind != NoStep {
			v.Step.Shard = s.Shard.ID
			return v
		}
		if v.Busy != "" || v.Blocked != "" {
			return v
		}
	}
	return p.rest()
}

// planner sorts the replicas of a shard. Those in the row that are not forced out are of three kinds:
//
//	good       stays, on a node that is meant to have it
//	unwanted   stays until it is replaced: its node drains, or has been silent for too long
//	leaving    leaves as soon as the shard's voters are complete without it
type planner struct {
	PlanInput
	good, unwanted, leaving []uint64
	forced                  []uint64 // in the membership or the row, but of a removed node, or without a row
	addTarget               int      // index of the member that would get a new replica; -1: none
}

func newPlanner(s PlanInput) *planner {
	p := &planner{PlanInput: s, addTarget: place(s.Members, s.Shard)}
	for _, r := range s.Shard.Replicas {
		m, known := p.member(r.Node)
		switch {
		case !known || m.State == Removed:
			p.forced = append(p.forced, r.ID)
		case s.Shard.leaves(r.ID):
			p.leaving = append(p.leaving, r.ID)
		case m.State == Draining || m.Silent >= replaceAfter:
			p.unwanted = append(p.unwanted, r.ID)
		default:
			p.good = append(p.good, r.ID)
		}
	}
	for _, id := range slices.Concat(s.Status.Voters, s.Status.Learners) {
		if !slices.ContainsFunc(s.Shard.Replicas, func(r Replica) bool { return r.ID == id }) {
			p.forced = append(p.forced, id)
		}
	}
	return p
}

func memberIndex(members []Member, number uint32) int {
	i, ok := slices.BinarySearchFunc(members, number, func(m Member, want uint32) int { return cmp.Compare(m.Number, want) })
	if !ok {
		return -1
	}
	return i
}

func (p *planner) member(number uint32) (Member, bool) {
	i := memberIndex(p.Members, number)
	if i < 0 {
		return Member{}, false
	}
	return p.Members[i], true
}

// memberOf returns the node of a replica; a zero Member if it is unknown.
func (p *planner) memberOf(replica uint64) Member {
	m, _ := p.member(NodeOf(replica))
	return m
}

// place chooses the node for a new replica of a shard: the eligible one with the fewest replicas, then the fewest leaders; one that may
// have a full disk only if there is no other. It returns its index among the members; -1: there is none.
func place(members []Member, s Shard) int {
	best := -1
	for i, m := range members {
		if _, held := s.On(m.Number); held || !m.eligible() {
			continue
		}
		if best < 0 || lessLoaded(m, members[best]) {
			best = i
		}
	}
	return best
}

// lessLoaded reports whether a is a better place for a new replica than b.
func lessLoaded(a, b Member) bool {
	if a.hasRoom() != b.hasRoom() {
		return a.hasRoom()
	}
	return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Leaders, b.Leaders)) < 0
}

// staying returns the replicas that are not marked as leaving.
func (p *planner) staying() []uint64 { return slices.Concat(p.good, p.unwanted) }

// tidy removes leftovers: learners that should not exist, and rows of replicas that are not members.
func (p *planner) tidy() Decision {
	for _, id := range slices.Concat(p.forced, p.leaving) {
		switch {
		case slices.Contains(p.Status.Learners, id):
			return Decision{Step: Step{Kind: RemoveLearner, Replica: id}}
		case !p.Status.votes(id):
			return Decision{Step: Step{Kind: DropReplica, Replica: id}}
		}
	}
	return Decision{}
}

// dropSilent drops a replica that doesn't vote and whose node is silent: soon if another node can have it, otherwise late.
func (p *planner) dropSilent() Decision {
	for _, id := range p.staying() {
		if p.Status.votes(id) {
			continue
		}
		silent := p.memberOf(id).Silent
		if silent >= replaceAfter || silent >= learnerPatience && p.addTarget >= 0 {
			return Decision{Step: Step{Kind: LeaveReplica, Replica: id}}
		}
	}
	return Decision{}
}

// keepLeaving retains a leaving voter if it is needed and no other node can take its place: the node that should have
// is gone, or other replicas need the nodes more.
func (p *planner) keepLeaving() Decision {
	if p.addTarget >= 0 || len(p.good) >= p.Settings.Replication {
		return Decision{}
	}
	needed := p.voters()
	for _, id := range p.leaving {
		if p.Status.votes(id) && slices.Contains(needed, id) {
			return Decision{Step: Step{Kind: KeepReplica, Replica: id}}
		}
	}
	return Decision{}
}

// add adds a replica on another node if there are too few good ones.
func (p *planner) add() Decision {
	switch {
	case len(p.good) >= p.Settings.Replication || p.addTarget < 0:
		return Decision{}
	case len(p.Shard.Replicas) >= maxReplicas:
		return Decision{Blocked: fmt.Sprintf("it has %d replicas, counting those being added or removed: the most allowed",
			len(p.Shard.Replicas))}
	}
	return Decision{Step: Step{Kind: AddReplica, Node: p.Members[p.addTarget].Number}}
}

// addLearner makes a replica that is only in the row a learner, once its node is alive.
func (p *planner) addLearner() Decision {
	for _, id := range p.staying() {
		if !p.Status.has(id) && p.memberOf(id).alive() {
			return Decision{Step: Step{Kind: AddLearner, Replica: id}}
		}
	}
	return Decision{}
}

// lead transfers leadership off a node that drains or has a full disk, or to the preferred node.
func (p *planner) lead() Decision {
	at := p.memberOf(p.Status.Leader)
	if r, ok := p.Shard.On(p.Shard.Preferred); ok && p.Shard.Preferred != at.Number && p.canLead(r.ID) {
		return Decision{Step: Step{Kind: TransferLeader, Replica: r.ID, Why: "an operator wants node " + p.memberOf(r.ID).Name +
			" to lead it"}}
	}
	why := ""
	switch {
	case at.State == Draining:
		why = "node " + at.Name + " drains"
	case at.Full && p.Status.settled():
		why = "the disk of node " + at.Name + " has no room for new tasks"
	default:
		return Decision{}
	}
	if to := p.bestLeader(p.good); to != 0 {
		return Decision{Step: Step{Kind: TransferLeader, Replica: to, Why: why}}
	}
	return Decision{}
}

// canLead reports whether a replica votes, is up to date, answers, and is on a node that is meant to have it.
func (p *planner) canLead(id uint64) bool {
	return p.Status.fit(id) && slices.Contains(p.good, id) && p.memberOf(id).mayLead()
}

// bestLeader returns the best leader among some replicas other than the current one; 0: none.
func (p *planner) bestLeader(among []uint64) (best uint64) {
	for _, id := range among {
		if id == p.Status.Leader || !p.canLead(id) {
			continue
		}
		if best == 0 || p.memberOf(id).Leaders < p.memberOf(best).Leaders {
			best = id
		}
	}
	return best
}

// rest returns what is wrong with a shard for which there is nothing to do.
func (p *planner) rest() Decision {
	for _, id := range p.staying() {
		if !p.Status.has(id) {
			return Decision{Busy: fmt.Sprintf("waits for node %s to take its replica", p.memberOf(id).Name)}
		}
	}
	for _, id := range p.unwanted {
		if m := p.memberOf(id); m.State == Draining {
			return Decision{Blocked: fmt.Sprintf("no other node can take its replica on node %s, which is draining", m.Name)}
		} else if p.Status.votes(id) {
			return Decision{Blocked: fmt.Sprintf("node %s has been silent for over %v, and no other node can take its replica",
				m.Name, replaceAfter)}
		}
	}
	if p.voting(p.forced) > 0 {
		return Decision{Blocked: "a removed node still votes, and no other node can replace it yet"}
	}
	return Decision{}
}
