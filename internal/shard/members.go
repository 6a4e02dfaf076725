package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Role is a replica's role in its group.
type Role uint8

const (
	// Gone: not a member.
	Gone Role = iota
	// Learner receives the log but has no vote.
	Learner
	// Voter counts towards a majority, and may lead.
	Voter
)

// Change assigns a role to a replica.
type Change struct {
	Replica uint64
	Role    Role
}

// ErrChangeRefused: another change of membership is in progress. Nothing was changed.
var ErrChangeRefused = errors.New("another membership change is in progress")

// Change changes the membership of the group atomically, and returns when the change is in force. A group that gains or
// loses several voters automatically passes through a joint membership, which needs a majority of both the old and the new
// voters. Only the leader can change it. Errors are as for Update, and ErrChangeRefused.
//
// unless gets the status of the group when the change's turn comes. It may refuse the change by returning an error, which
// Change returns, or ErrNothing if there is nothing to do. nil refuses nothing.
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

// ErrNothing is returned by Change's unless if there is nothing to change.
var ErrNothing = errors.New("nothing to change")

// change is a proposal other than a round: of a membership, or of a hash entry. It waits until nothing else is in flight, and
// no round starts before it is done.
type change struct {
	conf   *pb.ConfChangeV2 // nil: a hash entry
	hash   Range            // of a hash entry
	unless func(Status) error
	index  uint64     // in the log; 0: not proposed yet
	joint  bool       // applied, but the joint membership has not been left yet
	done   chan error // one place
}

// changes are the changes of membership and hash entries that this replica proposes as leader, one at a time.
type changes struct {
	l       *loop
	current *change // waiting or proposed; nil: none
}

// propose proposes c, and returns its index in the log when it is applied.
func (s *Shard) propose(ctx context.Context, c *change) (index uint64, err error) {
	c.done = make(chan error, 1)
	err = s.runOnLoop(ctx, func(l *loop) {
		switch {
		case l.leading == nil:
			c.done <- &NotLeader{l.soft.Lead}
		case l.changes.current != nil:
			c.done <- ErrChangeRefused
		default:
			l.changes.current = c
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

// runOnLoop runs fn on the loop, between two turns. It does not wait for fn.
func (s *Shard) runOnLoop(ctx context.Context, fn func(*loop)) error {
	select {
	case s.loopFuncs <- fn:
		return nil
	case <-s.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start proposes the waiting change once everything proposed before is applied.
func (cs *changes) start() error {
	c := cs.current
	if !c.pending() || !cs.l.idle() {
		return nil
	}
	if c.unless != nil {
		err := c.unless(cs.l.status())
		if errors.Is(err, ErrNothing) {
			cs.end(nil)
			return nil
		}
		if err != nil {
			cs.end(err)
			return nil
		}
	}
	var err error
	if c.conf != nil {
		err = cs.l.raft.ProposeConfChange(c.conf)
	} else {
		err = cs.l.raft.Propose(hashEntry(cs.l.leading.Term, c.hash))
	}
	if errors.Is(err, raft.ErrProposalDropped) { // leadership is being transferred
		cs.end(&NotLeader{})
		return nil
	}
	c.index = cs.l.cfg.State.Applied().Index + 1
	return err
}

// settle ends the change whose entry was applied. Raft replaces a change of membership that it refuses by an empty
// entry.
func (cs *changes) settle(e *pb.Entry) {
	c := cs.current
	switch {
	case c == nil:
	case c.joint: // Raft proposes to leave it automatically
		if len(cs.l.members.VotersOutgoing) == 0 {
			cs.end(nil)
		}
	case c.index != e.GetIndex():
	case c.conf != nil && e.GetType() == pb.EntryNormal:
		cs.end(ErrChangeRefused)
	case len(cs.l.members.VotersOutgoing) > 0:
		c.joint = true
	default:
		cs.end(nil)
	}
}

func (cs *changes) end(err error) {
	cs.current.done <- err
	cs.current = nil
}

// pending reports whether there is a change that is not proposed yet.
func (c *change) pending() bool { return c != nil && c.index == 0 }

// blocksRounds reports whether rounds must wait for the change.
func (c *change) blocksRounds() bool { return c != nil && !c.joint }

// abandon ends the change of a replica that no longer leads.
func (cs *changes) abandon(cause error) {
	if cs.current == nil {
		return
	}
	if cs.current.index != 0 {
		cause = ErrUnknown
	}
	cs.end(cause)
}

// Unreachable reports that messages to a replica don't get through, so that the leader sends it no more than one at a time
// until they do. It doesn't block.
func (s *Shard) Unreachable(replica uint64) {
	select {
	case s.loopFuncs <- func(l *loop) { l.raft.ReportUnreachable(replica) }:
	default: // more such reports will follow
	}
}

// Status is the status of the group as a replica sees it.
type Status struct {
	Replica uint64
	Leader  uint64 // as far as known; 0: none
	Term    uint64
	Leading bool          // this replica leads and is serving
	Led     time.Duration // for how long

	Applied, First, Last uint64 // entries: the last one applied, the first and the last in the log
	Epoch                uint64

	Voters, VotersOutgoing, Learners []uint64
	// Progress holds the progress of all replicas, as the leader knows it; nil if this is not the leader.
	Progress map[uint64]Progress
}

// Progress is how far a replica's log has come.
type Progress struct {
	Match        uint64 // the last entry that it is known to have
	Active       bool   // heard from recently
	Snapshotting bool   // being sent a snapshot
	Unfit        bool   // leadership should not be transferred to it now: it is silent, or failed to take over recently
}

// Status returns the status of the group. It waits for the loop, so it may take as long as a write to disk.
func (s *Shard) Status(ctx context.Context) (Status, error) {
	out := make(chan Status, 1)
	if err := s.runOnLoop(ctx, func(l *loop) { out <- l.status() }); err != nil {
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
		Voters: slices.Clone(l.members.Voters), VotersOutgoing: slices.Clone(l.members.VotersOutgoing),
		Learners: slices.Clone(l.members.Learners)}
	if l.leading == nil {
		return st
	}
	st.Led = time.Duration(l.leading.clock.Now()-l.leading.Began) * time.Microsecond
	st.Progress = map[uint64]Progress{}
	l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		st.Progress[id] = Progress{Match: p.Match, Active: l.upkeep.active(id), Snapshotting: p.State == tracker.StateSnapshot,
			Unfit: id != l.cfg.Replica && !l.transfers.eligible(id)}
	})
	return st
}
