package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// groupVerbs are the calls on the Raft group of a shard, where it is led. All of them may be repeated.
var groupVerbs verb.Table[*replicas]

var (
	groupStatus = onGroup("group-status", func(ctx context.Context, rep *replica, _ verb.Nothing) (cluster.Status, error) {
		return statusOf(ctx, rep)
	})
	groupLearner  = changeGroup("group-learner", addLearner)
	groupForget   = changeGroup("group-forget", removeLearner)
	groupVoters   = changeGroup("group-voters", changeVoters)
	groupTransfer = changeGroup("group-transfer", func(ctx context.Context, s *shard.Shard, to transfer) error {
		return s.Transfer(ctx, to.To, to.Why)
	})
	// groupMark starts a hash of all rows of a shard on its replicas, and returns after which entry.
	groupMark = onGroup("mark", func(ctx context.Context, rep *replica, _ verb.Nothing) (uint64, error) {
		return startHash(ctx, rep.shard)
	})
)

// groupCall is a call on the group of a shard.
type groupCall[A any] struct {
	Shard uint32
	Args  A
}

// TargetShard implements verb.Sharded.
func (q *groupCall[A]) TargetShard() uint32 { return q.Shard }

// transfer says to which replica leadership goes, and, for the log, why.
type transfer struct {
	To  uint64
	Why string
}

// onGroup defines a verb that runs on the leader's replica.
func onGroup[A, R any](name string, do func(context.Context, *replica, A) (R, error)) *verb.Verb[groupCall[A], R] {
	return verb.New(&groupVerbs, verb.Rule{Name: name, Idempotent: true},
		func(here *replicas, ctx context.Context, q groupCall[A]) (out R, err error) {
			rep := here.get(q.Shard)
			if rep == nil {
				return out, &broker.NotLeader{Shard: q.Shard}
			}
			return do(ctx, rep, q.Args)
		})
}

// changeGroup is onGroup for a verb that changes the group.
func changeGroup[A any](name string, do func(context.Context, *shard.Shard, A) error) *verb.Verb[groupCall[A], verb.Nothing] {
	return onGroup(name, func(ctx context.Context, rep *replica, args A) (none verb.Nothing, err error) {
		return none, do(ctx, rep.shard, args)
	})
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
	out := cluster.Status{Leader: st.Leader, Term: st.Term, Led: st.Led, Voters: st.Voters, VotersOutgoing: st.VotersOutgoing,
		Learners: st.Learners, Applied: st.Applied, Progress: map[uint64]cluster.Progress{}}
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

// groups is the cluster.Groups: the Raft groups of all shards, wherever they are led.
type groups struct{ verbs verb.Runner }

// Status implements cluster.Groups.
func (g groups) Status(ctx context.Context, shard uint32) (cluster.Status, error) {
	return groupStatus.Call(ctx, g.verbs, groupCall[verb.Nothing]{Shard: shard})
}

// AddLearner implements cluster.Groups.
func (g groups) AddLearner(ctx context.Context, shard uint32, id uint64) error {
	_, err := groupLearner.Call(ctx, g.verbs, groupCall[uint64]{shard, id})
	return err
}

// ChangeVoters implements cluster.Groups.
func (g groups) ChangeVoters(ctx context.Context, shard uint32, c cluster.VoterChange) error {
	_, err := groupVoters.Call(ctx, g.verbs, groupCall[cluster.VoterChange]{shard, c})
	return err
}

// RemoveLearner implements cluster.Groups.
func (g groups) RemoveLearner(ctx context.Context, shard uint32, id uint64) error {
	_, err := groupForget.Call(ctx, g.verbs, groupCall[uint64]{shard, id})
	return err
}

// Transfer implements cluster.Groups.
func (g groups) Transfer(ctx context.Context, shard uint32, to uint64, why string) error {
	_, err := groupTransfer.Call(ctx, g.verbs, groupCall[transfer]{shard, transfer{to, why}})
	return err
}
