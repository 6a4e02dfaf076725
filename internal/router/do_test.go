package router

import (
	"context"
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// A node that wrongly believes that it leads asks the one that does.
func TestAVerbGoesOnToTheLeader(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.with(func() { f.shards[1].hints = map[uint32]uint32{2: 2} })
		out, err := broker.CloseBreakers.Call(context.Background(), f.nodes[2], broker.BreakersOf{OnQueue: onOne})
		if err != nil || out.Closed != 1 || out.Stamp().Shard != 1 || f.count("close-breakers") != 1 {
			t.Errorf("closed %d at %+v with %d calls, %v", out.Closed, out.At, f.count("close-breakers"), err)
		}
	})
}

// An author is recorded only by leaders that know what to do with the entry.
func TestAuthorsNeedTheirLevel(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		m := f.nodes[1]
		for _, c := range []struct {
			level int
			want  string
		}{{cluster.PoliciesLevel, "lena"}, {cluster.PoliciesLevel - 1, ""}} {
			m.level = c.level
			call := broker.CloseBreakers.Make(broker.BreakersOf{OnQueue: onOne, Authored: broker.Authored{By: task.Author{Name: "lena"}}})
			if err := m.Do(context.Background(), call); err != nil || call.Req.By.Name != c.want {
				t.Errorf("at level %d %q was noted, %v", c.level, call.Req.By.Name, err)
			}
		}
		m.level = 0
		_, err := broker.CloseBreakers.Call(context.Background(), m, broker.BreakersOf{OnQueue: onOne, Authored: broker.Authored{By: task.Author{Name: "lena"}}})
		if !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("a node that knows no level yet: %v", err)
		}
	})
}

// A list asks all shards, and fails if one does not answer. What is in the first shard is asked for there.
func TestListsOfAllShards(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		f.shard(2, 1, 2).leader = 2
		ids := map[uint32]task.ID{1: task.NewID(1, 7, 1), 2: task.NewID(2, 9, 1)}
		f.groups = ids
		page := broker.GroupList{OnShard: broker.OnShard{Namespace: ns}, Limit: 10}
		call := broker.ListGroups.Make(page)
		if err := f.nodes[1].Do(context.Background(), call); err != nil || len(call.Parts()) != 2 {
			t.Fatalf("%d parts, %v", len(call.Parts()), err)
		}
		if got := call.Resp.Page.Groups; len(got) != 2 || got[0].ID != ids[2] || got[1].ID != ids[1] {
			t.Errorf("got %+v", got)
		}
		list, err := broker.ListOperations.Call(context.Background(), f.nodes[2], broker.OperationList{OnShard: broker.OnShard{Namespace: ns}})
		if err != nil || list.At.Shard != 1 {
			t.Errorf("operations were asked of at %+v, %v", list.At, err)
		}
		f.lead(2, 0)
		if _, err := broker.ListGroups.Call(context.Background(), f.nodes[1], page); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("without the leader of a shard: %v", err)
		}
	})
}

// A refusal is an answer: the leader does not run the call again.
func TestARefusedVerbRunsOnce(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		verbtest.On(s.answers, broker.OperateTask, func(context.Context, *broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
			s.note("cancel")
			return out, task.Invalid("id", "is odd")
		})
		m.level = cluster.PoliciesLevel - 1 // which a cancel does not need
		if err := cancel(context.Background(), m, task.NewID(1, 1, 1)); !errors.Is(err, task.ErrInvalidArgument) || s.was() != "cancel" {
			t.Errorf("got %v", err)
		}
	})
}

// What is in the first shard needs one.
func TestTheFirstShard(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		if shard, err := m.firstShard(); shard != 1 || err != nil {
			t.Errorf("operations live in %d, %v", shard, err)
		}
		clear(m.f.shards)
		if _, err := m.firstShard(); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("without a shard: %v", err)
		}
		call := broker.ListOperations.Make(broker.OperationList{OnShard: broker.OnShard{Namespace: ns}})
		if err := m.Do(context.Background(), call); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("a list without a shard: %v", err)
		}
	})
}
