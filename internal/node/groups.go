package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// groups is the cluster.Groups: the Raft groups of all shards, wherever they are led.
type groups struct {
	status   func(ctx context.Context, shard uint32, _ struct{}) (cluster.Status, error)
	learner  func(ctx context.Context, shard uint32, id uint64) (struct{}, error)
	forget   func(ctx context.Context, shard uint32, id uint64) (struct{}, error)
	voters   func(ctx context.Context, shard uint32, c cluster.VoterChange) (struct{}, error)
	transfer func(ctx context.Context, shard uint32, to uint64) (struct{}, error)
}

func newGroups(r *forward.Forwarder, here *replicas) *groups {
	return &groups{
		status: forward.OnShard(r, "group-status", true, func(ctx context.Context, id uint32, _ struct{}) (cluster.Status, error) {
			return onGroup(here, id, func(rep *replica) (cluster.Status, error) { return statusOf(ctx, rep) })
		}),
		learner: onShard(r, here, "group-learner", addLearner),
		forget:  onShard(r, here, "group-forget", removeLearner),
		voters:  onShard(r, here, "group-voters", changeVoters),
		transfer: onShard(r, here, "group-transfer", func(ctx context.Context, s *shard.Shard, to uint64) error {
			return s.Transfer(ctx, to, forward.Reason(ctx))
		}),
	}
}

// onShard returns a call that changes a group where it is led. All of them may be retried.
func onShard[A any](r *forward.Forwarder, here *replicas, name string, do func(context.Context, *shard.Shard, A) error) func(context.Context, uint32, A) (struct{}, error) {
	return forward.OnShard(r, name, true, func(ctx context.Context, id uint32, args A) (struct{}, error) {
		return onGroup(here, id, func(rep *replica) (struct{}, error) { return struct{}{}, do(ctx, rep.shard, args) })
	})
}

func onGroup[R any](here *replicas, id uint32, do func(*replica) (R, error)) (out R, err error) {
	rep := here.get(id)
	if rep == nil {
		return out, &broker.NotLeader{Shard: id}
	}
	return do(rep)
}

// statusOf returns the leader's view of its group, once a majority has confirmed its leadership.
func statusOf(ctx context.Context, rep *replica) (cluster.Status, error) {
	s := rep.shard
	if _, _, err := shard.View(ctx, s, func(store.Reader) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return cluster.Status{}, err
	}
	st, err := s.Status(ctx)
	if err == nil && !st.Leading {
		err = &shard.NotLeader{Leader: st.Leader}
	}
	out := cluster.Status{Leader: st.Leader, Term: st.Term, Led: st.Led, Voters: st.Voters, VotersOutgoing: st.VotersOutgoing, Learners: st.Learners,
		Applied: st.Applied, Progress: map[uint64]cluster.Progress{}}
	for id, p := range st.Progress {
		out.Progress[id] = cluster.Progress{Match: p.Match, Active: p.Active, Snapshotting: p.Snapshotting, Unfit: p.Unfit}
	}
	for id, f := range rep.differing.Of(slices.Concat(st.Voters, st.Learners)) {
		p := out.Progress[id]
		p.DiffersAt, p.Apart = f.Index, f.Apart
		out.Progress[id] = p
	}
	return out, err
}

func addLearner(ctx context.Context, s *shard.Shard, id uint64) error {
	return s.Change(ctx, func(st shard.Status) error {
		if slices.Contains(st.Voters, id) || slices.Contains(st.VotersOutgoing, id) || slices.Contains(st.Learners, id) {
			return shard.ErrNothing
		}
		return nil
	}, shard.Change{Replica: id, Role: shard.Learner})
}

func removeLearner(ctx context.Context, s *shard.Shard, id uint64) error {
	return s.Change(ctx, func(st shard.Status) error {
		switch {
		case slices.Contains(st.Voters, id) || slices.Contains(st.VotersOutgoing, id):
			return refuseChange("%s votes", s.ReplicaText(id))
		case !slices.Contains(st.Learners, id):
			return shard.ErrNothing
		}
		return nil
	}, shard.Change{Replica: id, Role: shard.Gone})
}

func noShard(id uint32) error { return task.NotFound("shard", strconv.FormatUint(uint64(id), 10)) }

func refuseChange(format string, args ...any) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// changeVoters makes a change that was planned on the group's state a moment ago, if that has not changed.
func changeVoters(ctx context.Context, s *shard.Shard, c cluster.VoterChange) error {
	var changes []shard.Change
	for _, set := range []struct {
		ids  []uint64
		role shard.Role
	}{{c.Promote, shard.Voter}, {c.Demote, shard.Learner}, {c.Remove, shard.Gone}} {
		for _, id := range set.ids {
			changes = append(changes, shard.Change{Replica: id, Role: set.role})
		}
	}
	return s.Change(ctx, func(st shard.Status) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case st.Term != c.Term || !sameSet(st.Voters, c.From) || len(st.VotersOutgoing) > 0:
			return refuseChange("the group has changed since: term %d, voters %s", st.Term, replicaTexts(s, st.Voters))
		}
		for _, id := range c.Promote {
			if !slices.Contains(st.Learners, id) {
				return refuseChange("%s is not a learner", s.ReplicaText(id))
			}
		}
		return mustAnswer(st, c)
	}, changes...)
}

// replicaTexts formats a list of replicas for a sentence.
func replicaTexts(s *shard.Shard, ids []uint64) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = s.ReplicaText(id)
	}
	return strings.Join(texts, ", ")
}

// mustAnswer refuses a change that would leave no majority of the voters answering.
func mustAnswer(st shard.Status, c cluster.VoterChange) error {
	voters, answer := 0, 0
	for _, id := range append(slices.Clone(st.Voters), c.Promote...) {
		if slices.Contains(c.Demote, id) || slices.Contains(c.Remove, id) {
			continue
		}
		voters++
		// A leader considers a new replica active until it has acknowledged something or been silent for a while.
		if p := st.Progress[id]; id == st.Replica || p.Active && p.Match > 0 {
			answer++
		}
	}
	if 2*answer <= voters {
		return refuseChange("of the %d voters after the change only %d answer", voters, answer)
	}
	return nil
}

func sameSet(a, b []uint64) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Status implements cluster.Groups.
func (g *groups) Status(ctx context.Context, shard uint32) (cluster.Status, error) {
	return g.status(ctx, shard, struct{}{})
}

// AddLearner implements cluster.Groups.
func (g *groups) AddLearner(ctx context.Context, shard uint32, id uint64) error {
	_, err := g.learner(ctx, shard, id)
	return err
}

// ChangeVoters implements cluster.Groups.
func (g *groups) ChangeVoters(ctx context.Context, shard uint32, c cluster.VoterChange) error {
	_, err := g.voters(ctx, shard, c)
	return err
}

// RemoveLearner implements cluster.Groups.
func (g *groups) RemoveLearner(ctx context.Context, shard uint32, id uint64) error {
	_, err := g.forget(ctx, shard, id)
	return err
}

// Transfer implements cluster.Groups.
func (g *groups) Transfer(ctx context.Context, shard uint32, to uint64, why string) error {
	_, err := g.transfer(forward.WithReason(ctx, why), shard, to)
	return err
}
