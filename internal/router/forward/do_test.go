package forward_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// A node that wrongly believes that it leads forwards the call to the leader.
func TestVerbIsForwardedToLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.With(func() { f.Shards[1].Hints = map[uint32]uint32{2: 2} })
		out, err := broker.CloseBreakers.Call(context.Background(), f.Nodes[2], broker.BreakersOf{OnQueue: routertest.OnOne})
		if err != nil || out.Closed != 1 || out.Stamp().Shard != 1 || f.Count("close-breakers") != 1 {
			t.Errorf("closed %d breakers at %+v with %d calls, %v", out.Closed, out.At, f.Count("close-breakers"), err)
		}
	})
}

// A list asks all shards and fails if one does not respond. What lives in the first shard is asked for there.
func TestListsOfAllShards(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		f.AddShard(2, 1, 2).Leader = 2
		ids := map[uint32]task.ID{1: task.NewID(1, 7, 1), 2: task.NewID(2, 9, 1)}
		f.Groups = ids
		page := broker.GroupList{OnShard: broker.OnShard{Namespace: routertest.Namespace}, Limit: 10}
		call := broker.ListGroups.Make(page)
		if err := f.Nodes[1].Do(context.Background(), call); err != nil || len(call.Parts()) != 2 {
			t.Fatalf("call has %d parts, want 2 (%v)", len(call.Parts()), err)
		}
		if got := call.Resp.Page.Groups; len(got) != 2 || got[0].ID != ids[2] || got[1].ID != ids[1] {
			t.Errorf("groups = %+v, want those of both shards, newest first", got)
		}
		list, err := broker.ListOperations.Call(context.Background(), f.Nodes[2], broker.OperationList{OnShard: broker.OnShard{Namespace: routertest.Namespace}})
		if err != nil || list.At.Shard != 1 {
			t.Errorf("ListOperations was answered at %+v, %v; want shard 1", list.At, err)
		}
		f.Lead(2, 0)
		if _, err := broker.ListGroups.Call(context.Background(), f.Nodes[1], page); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("ListGroups without the leader of a shard: %v, want unavailable", err)
		}
	})
}

// A refusal is an answer: the leader does not run the call again.
func TestRefusedVerbRunsOnce(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		verbtest.On(s.Answers, broker.OperateTask, func(context.Context, *broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
			s.Note("cancel")
			return out, task.Invalid("id", "is odd")
		})
		if err := routertest.Cancel(context.Background(), m, task.NewID(1, 1, 1)); !errors.Is(err, task.ErrInvalidArgument) || s.Was() != "cancel" {
			t.Errorf("a refused cancel: %v, want an invalid argument after one run", err)
		}
	})
}

// What lives in the first shard needs that shard.
func TestFirstShardIsNeeded(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		if shard, err := m.FirstShard(); shard != 1 || err != nil {
			t.Errorf("FirstShard = %d, %v, want 1", shard, err)
		}
		clear(m.Fleet.Shards)
		if _, err := m.FirstShard(); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("FirstShard without a shard: %v, want unavailable", err)
		}
		call := broker.ListOperations.Make(broker.OperationList{OnShard: broker.OnShard{Namespace: routertest.Namespace}})
		if err := m.Do(context.Background(), call); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("ListOperations without a shard: %v, want unavailable", err)
		}
	})
}
