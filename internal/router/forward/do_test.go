package forward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
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

// A list asks all shards, and names those that do not respond in time. If none does, it fails. What lives in the first shard is asked
// for there.
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
		list, err := broker.ListOperations.Call(context.Background(), f.Nodes[2],
			broker.OperationList{OnShard: broker.OnShard{Namespace: routertest.Namespace}})
		if err != nil || list.At.Shard != 1 {
			t.Errorf("ListOperations was answered at %+v, %v; want shard 1", list.At, err)
		}
		took := func(what string, run func()) {
			t.Helper()
			began := time.Now()
			if run(); time.Since(began) > verb.PartTime {
				t.Errorf("%s takes %s", what, time.Since(began))
			}
		}
		f.Lead(2, 0)
		took("a list without a leader", func() {
			call = broker.ListGroups.Make(page)
			if err := f.Nodes[1].Do(context.Background(), call); err != nil || len(call.Parts()) != 1 || len(call.Resp.Page.Groups) != 1 ||
				fmt.Sprint(call.Resp.Missing) != "[shard 2]" {
				t.Errorf("ListGroups without the leader of a shard: %+v, %d parts, %v; want the groups of shard 1, and shard 2 missing",
					call.Resp, len(call.Parts()), err)
			}
		})
		f.With(func() { f.Shards[2].Leader = 2 })
		f.With(func() { f.Network = func(uint32, uint32, string) routertest.Delivery { return routertest.Hangs } })
		took("a list with a node that hangs", func() {
			list, err := broker.ListGroups.Call(context.Background(), f.Nodes[1], page)
			if err != nil || len(list.Page.Groups) != 1 || fmt.Sprint(list.Missing) != "[shard 2]" {
				t.Errorf("ListGroups while a node hangs: %+v, %v; want the groups of shard 1, and shard 2 missing", list, err)
			}
		})
		f.With(func() { f.Network = nil })
		f.Lead(1, 0)
		f.Lead(2, 0)
		took("a list without any leader", func() {
			if _, err := broker.ListGroups.Call(context.Background(), f.Nodes[1], page); !errors.Is(err, task.ErrUnavailable) ||
				!strings.HasPrefix(err.Error(), "shard 1 has no leader") {
				t.Errorf("ListGroups without any leader: %v, want unavailable", err)
			}
		})
	})
}

// A refusal is an answer: the leader does not run the call again.
func TestRefusedVerbRunsOnce(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		verbtest.On(m.Broker, broker.OperateTask, func(context.Context, broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
			s.Note("cancel")
			return out, task.Invalid("id", "is odd")
		})
		if err := routertest.Cancel(context.Background(), m, task.NewID(1, 1, 1)); !errors.Is(err, task.ErrInvalidArgument) ||
			s.Was() != "cancel" {
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
