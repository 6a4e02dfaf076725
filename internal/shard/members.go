package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Role is what a replica is in its group.
type Role uint8

const (
	// Gone: no member.
	Gone Role = iota
	// Learner gets the log, and has no vote.
	Learner
	// Voter counts for a majority, and may lead.
	Voter
)

// Change gives a replica a role.
type Change struct {
	Replica uint64
	Role    Role
}

// ErrChangeRefused: another change of membership is under way. Nothing was changed.
var ErrChangeRefused = errors.New("another change of membership is under way")

// Change changes the membership of the group, all at once, and returns when the change is in force: a group that gets or
// loses several voters passes through a joint membership by itself, in which a majority of the old and one of the new is
// needed. Only the leader can. Errors are as for Update, and ErrChangeRefused.
//
// Unless sees the group as it is when the change's turn comes, and may refuse it with an error, which is returned, or with
// ErrNothing, if there is nothing to do. A nil one refuses nothing.
func (s *Shard) Change(ctx context.Context, unless func(Status) error, changes ...Change) error {
	cc := &pb.ConfChangeV2{}
	for _, c := range changes {
		kind := pb.ConfChangeRemoveNode
		switch c.Role {
		case Learner:
			kind = pb.ConfChangeAddLearnerNode
		case Voter:
			kind = pb.ConfChangeAddNode
		}
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(c.Replica)})
	}
	_, err := s.propose(ctx, &change{conf: cc, unless: unless})
	return err
}

// ErrNothing is how Change is told that there is nothing to change.
var ErrNothing = errors.New("nothing to change")

// change is a proposal that is not a round: of a membership, or of a mark. It waits until nothing else is in flight, and
// no round starts before it is through.
type change struct {
	conf   *pb.ConfChangeV2 // nil: a mark
	unless func(Status) error
	index  uint64     // where it stands in the log; 0: not proposed yet
	joint  bool       // it is applied, and the joint membership is still to be left
	done   chan error // one place
}

// propose puts c into the log, and returns where it stands when it is applied.
func (s *Shard) propose(ctx context.Context, c *change) (index uint64, err error) {
	c.done = make(chan error, 1)
	err = s.ask(ctx, func(l *loop) {
		switch {
		case l.leading == nil:
			c.done <- &NotLeader{l.soft.Lead}
		case l.change != nil:
			c.done <- ErrChangeRefused
		default:
			l.change = c
		}
	})
	if err != nil {
		return 0, err
	}
	select {
	case err = <-c.done:
		return c.index, err
	case <-s.done:
		return 0, ErrUnknown
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// ask has fn run on the loop, between two turns.
func (s *Shard) ask(ctx context.Context, fn func(*loop)) error {
	select {
	case s.asks <- fn:
		return nil
	case <-s.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startChange proposes the change that waits, once all that was proposed before is applied.
func (l *loop) startChange() error {
	c := l.change
	if !c.waits() || !l.idle() {
		return nil
	}
	if c.unless != nil {
		err := c.unless(l.status())
		if errors.Is(err, ErrNothing) {
			l.endChange(nil)
			return nil
		}
		if err != nil {
			l.endChange(err)
			return nil
		}
	}
	var err error
	if c.conf != nil {
		err = l.raft.ProposeConfChange(c.conf)
	} else {
		err = l.raft.Propose(markEntry(l.leading.Term))
	}
	if errors.Is(err, raft.ErrProposalDropped) { // leadership is being handed over
		l.endChange(&NotLeader{})
		return nil
	}
	c.index = l.cfg.State.Applied().Index + 1
	return err
}

// settleChange ends the change that an applied entry stands for. Raft puts an empty entry in the place of a change of
// membership that it refuses.
func (l *loop) settleChange(e *pb.Entry) {
	c := l.change
	switch {
	case c == nil || c.index == 0:
	case c.joint: // Raft proposes to leave it by itself
		if len(l.members.VotersOutgoing) == 0 {
			l.endChange(nil)
		}
	case c.index != e.GetIndex():
	case c.conf != nil && e.GetType() == pb.EntryNormal:
		l.endChange(ErrChangeRefused)
	case len(l.members.VotersOutgoing) > 0:
		c.joint = true
	default:
		l.endChange(nil)
	}
}

func (l *loop) endChange(err error) {
	l.change.done <- err
	l.change = nil
}

// waits says whether there is a change that is not proposed yet.
func (c *change) waits() bool { return c != nil && c.index == 0 }

// holdsRounds says whether rounds wait for the change.
func (c *change) holdsRounds() bool { return c != nil && !c.joint }

// abandonChange ends a change that nobody will hear of again.
func (l *loop) abandonChange(cause error) {
	if l.change == nil {
		return
	}
	if l.change.index != 0 {
		cause = ErrUnknown
	}
	l.endChange(cause)
}

// endWaits answers those who wait for something that this loop won't do any more.
func (l *loop) endWaits(cause error) {
	if l.handovers.under != nil {
		l.endHandover(cause)
	}
	l.abandonChange(cause)
}

// Unreachable tells that messages to a replica don't get through, so that the leader sends it no more than one at a time
// until they do. It doesn't block.
func (s *Shard) Unreachable(replica uint64) {
	select {
	case s.asks <- func(l *loop) { l.raft.ReportUnreachable(replica) }:
	default: // there will be more of it
	}
}

// Status is how a replica sees its group.
type Status struct {
	Replica uint64
	Leader  uint64 // as far as known; 0: none
	Term    uint64
	Leading bool // this replica leads, and serves

	Applied, First, Last uint64 // entries: the last one applied, the first and the last in the log
	Epoch                uint64

	Voters, VotersOutgoing, Learners []uint64
	// Progress is how far the other replicas are, as the leader knows; nil if this is not the leader.
	Progress map[uint64]Progress
}

// Progress is how far a replica is.
type Progress struct {
	Match        uint64 // the last entry that it is known to have
	Active       bool   // it was heard of lately
	Snapshotting bool   // it is being sent a snapshot
	Unfit        bool   // leadership is not to be handed to it now: it is silent at the moment, or failed to take over lately
}

// Status tells how the group stands. It waits for the loop, so it may take as long as a write to the disk.
func (s *Shard) Status(ctx context.Context) (Status, error) {
	out := make(chan Status, 1)
	if err := s.ask(ctx, func(l *loop) { out <- l.status() }); err != nil {
		return Status{}, err
	}
	select {
	case st := <-out:
		return st, nil
	case <-s.done:
		return Status{}, ErrStopped
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

func (l *loop) status() Status {
	first, _ := l.log.FirstIndex()
	last, _ := l.log.LastIndex()
	st := Status{Replica: l.cfg.Replica, Leader: l.soft.Lead, Term: l.term, Leading: l.leading != nil,
		Applied: l.cfg.State.Applied().Index, First: first, Last: last, Epoch: l.epoch,
		Voters: slices.Clone(l.members.Voters), VotersOutgoing: slices.Clone(l.members.VotersOutgoing), Learners: slices.Clone(l.members.Learners)}
	if l.leading == nil {
		return st
	}
	st.Progress = map[uint64]Progress{}
	l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		st.Progress[id] = Progress{Match: p.Match, Active: l.upkeep.active(id), Snapshotting: p.State == tracker.StateSnapshot,
			Unfit: id != l.cfg.Replica && !l.fit(id)}
	})
	return st
}
