package forward_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// lives returns the register of schedules of a system shard in which all live in one shard, or which fails.
func lives(shard uint32, err error) func(context.Context, string, string) (schedules.Home, error) {
	return func(context.Context, string, string) (schedules.Home, error) {
		return schedules.Home{Shard: shard}, err
	}
}

// The first shard is the one with the lowest number, in whatever order the map has them.
func TestFirstShardIsLowest(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		p := g.nodes[1]
		for _, shards := range [][]uint32{{3, 2, 5}, {2}} {
			g.with(func() { p.shards = shards })
			shard, err := p.FirstShard()
			same(t, "first shard", shard, 2)
			same(t, "error", text(err), "")
		}
		g.with(func() { p.shards = nil })
		_, err := p.FirstShard()
		refusedWith(t, "no shard", err, task.ErrUnavailable, "there is no data shard yet")
		if e, _ := task.AsError(err); e.RetryAfter != time.Second {
			t.Errorf("retry after %s, want 1s", e.RetryAfter)
		}
	})
}

// A schedule is in the shard that the system shard says. If that does not know the name, the shards are asked; a shard that can't be asked
// may have it.
func TestShardOfName(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p, there := g.nodes[1], g.nodes[2]
		p.system, there.system = 2, 2
		g.with(func() { p.shards = []uint32{1, 3, 4} })
		for _, shard := range []uint32{1, 3, 4} {
			g.lead(shard, 2)
		}
		find := func(ns, name string) (uint32, error) {
			at := &broker.AtHome{OnSchedule: broker.OnSchedule{OnShard: broker.OnShard{Namespace: ns}, Name: name}}
			return p.ShardByName(task.WithScope(bg, task.Scope{Queues: []string{"only"}}), at)
		}
		var asked string
		there.home = func(ctx context.Context, ns, name string) (schedules.Home, error) {
			asked = ns + "/" + name
			return schedules.Home{Shard: 9}, nil
		}
		shard, err := find("a", "hourly")
		same(t, "shard", shard, 9)
		same(t, "error", text(err), "")
		same(t, "name", asked, "a/hourly")
		same(t, "messages, without a scope", g.messages(), "find-schedule>2")

		there.home = lives(9, task.Unavailable(time.Second, "too busy"))
		_, err = find("a", "hourly")
		refusedWith(t, "system shard that refuses", err, task.ErrUnavailable, "too busy")
		same(t, "messages", g.messages(), "find-schedule>2")

		there.home = lives(9, task.NotFound("schedule", "hourly"))
		has, fails := uint32(3), map[uint32]error{}
		verbtest.On(there.verbs, broker.ShowSchedule, func(ctx context.Context, q broker.AtHome) (out broker.Shown[*broker.ScheduleView],
			err error) {
			if q.Namespace != "a" || q.Name != "hourly" || !task.ScopeOf(ctx).All() {
				t.Errorf("asked shard %d for %s/%s in scope %v", q.Shard, q.Namespace, q.Name, task.ScopeOf(ctx))
			}
			if err := fails[q.Shard]; err != nil || q.Shard == has {
				return out, err
			}
			return out, task.NotFound("schedule", q.Name)
		})
		shard, err = find("a", "hourly")
		same(t, "shard that has it", shard, 3)
		same(t, "error", text(err), "")

		fails = map[uint32]error{1: task.Unavailable(time.Second, "one is away"), 4: task.Unavailable(time.Second, "four is away")}
		shard, err = find("a", "hourly")
		same(t, "shard that has it, while others fail", shard, 3)
		same(t, "error", text(err), "")

		has = 0
		_, err = find("a", "hourly")
		refusedWith(t, "name in no shard that answers", err, task.ErrUnavailable, "is away")
		fails = nil
		shard, err = find("a", "hourly")
		refusedWith(t, "name in no shard", err, task.ErrNotFound, "hourly")
		same(t, "shard", shard, 0)
		g.with(func() { p.shards = nil })
		_, err = find("a", "hourly")
		refusedWith(t, "name without a shard", err, task.ErrNotFound, "hourly")
	})
}

// A call about a name goes to the shard of that name, and fails if there is none.
func TestCallByName(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		p := g.nodes[1]
		p.system, p.home = 1, lives(3, nil)
		for _, shard := range []uint32{0, 3} {
			g.lead(shard, 1)
		}
		var got []uint32
		verbtest.On(p.verbs, broker.ShowSchedule, func(_ context.Context, q broker.AtHome) (out broker.Shown[*broker.ScheduleView],
			err error) {
			got = append(got, q.Shard)
			return out, nil
		})
		on := broker.AtHome{OnSchedule: broker.OnSchedule{OnShard: broker.OnShard{Namespace: "a"}, Name: "s"}}
		_, err := broker.ShowSchedule.Call(bg, p, on)
		same(t, "error", text(err), "")
		p.home = lives(3, task.Unavailable(time.Second, "too busy"))
		_, err = broker.ShowSchedule.Call(bg, p, on)
		refusedWith(t, "call by a name that can't be looked up", err, task.ErrUnavailable, "too busy")
		if !slices.Equal(got, []uint32{3}) {
			t.Errorf("the call ran in shards %v, want 3", got)
		}
	})
}

// A call about an id fails at once if there is no such shard. Only the system shard knows that for sure, and it has no objects itself.
func TestCallByID(t *testing.T) {
	inGroup(t, 2, func(g *group) {
		p := g.nodes[1]
		p.system, g.nodes[2].system = 2, 2
		g.nodes[2].hasShard = func(id uint32) (bool, error) {
			if id == 8 {
				return false, task.Unavailable(time.Second, "too busy")
			}
			return id == 7, nil
		}
		for _, c := range []struct {
			shard    uint32
			exists   bool
			err      error
			messages string
		}{{0, false, nil, ""}, {1, true, nil, ""}, {7, true, nil, "has-shard>2"}, {6, false, nil, "has-shard>2"},
			{8, false, task.ErrUnavailable, "has-shard>2"}} {
			exists, err := p.HasShard(bg, c.shard)
			if exists != c.exists || !errors.Is(err, c.err) || g.messages() != c.messages {
				t.Errorf("HasShard(%d) = %v, %v", c.shard, exists, err)
			}
			want := c.err
			if want == nil && !c.exists {
				want = task.ErrNotFound
			}
			err = p.CheckTask(bg, task.NewID(c.shard, 1, 1))
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("CheckTask in shard %d: %v, want %v", c.shard, err, want)
			}
			g.messages()
		}
		g.knows(1, 1)
		g.with(func() { p.leads[6] = 1 })
		same(t, "shard that this node leads", text(p.CheckShard(bg, 6, "task", "x")), "")
		same(t, "messages", g.messages(), "")
		refusedWith(t, "missing shard", p.CheckShard(bg, 5, "operation", "o5"), task.ErrNotFound, "operation", "o5")
	})
}

// Calls on all shards run in parallel, each at its place, and a refusal says more than a failure.
func TestEachShard(t *testing.T) {
	inGroup(t, 1, func(*group) {
		began := time.Now()
		odd, broken := task.Invalid("id", "is odd"), errors.New("disk broke")
		errs := forward.EachShard([]uint32{4, 5, 6}, func(i int, shard uint32) error {
			if shard != uint32(i+4) {
				t.Errorf("call %d is for shard %d", i, shard)
			}
			routertest.Pass(time.Second)
			return map[int]error{0: broken, 1: nil, 2: odd}[i]
		})
		same(t, "time", time.Since(began), time.Second)
		if errs[0] != broken || errs[1] != nil || errs[2] != odd {
			t.Errorf("errors %v, want each at the place of its shard", errs)
		}
		all := errors.Join(errs...)
		same(t, "first refusal", forward.FirstRefusal(errs, all), error(odd))
		same(t, "no refusal", forward.FirstRefusal(errs[:2], all), all)
	})
}

// A queue that has moved is learned, whether the call is translated for the API or not.
func TestMovedQueueIsLearned(t *testing.T) {
	inGroup(t, 1, func(g *group) {
		p := g.nodes[1]
		g.lead(1, 1)
		moved := forward.MovedTo(queues.Queue{Namespace: "a", Name: "q", Shard: 4, Moved: 3, Own: true,
			Config: task.QueueConfig{Version: 9}})
		verbtest.On(p.verbs, broker.OperateTask, func(context.Context, broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
			return out, errors.Join(moved)
		})
		_, err := broker.OperateTask.Call(bg, p, broker.TaskCommand{OnTask: broker.OnTask{ID: task.NewID(1, 1, 1)}})
		refusedWith(t, "task of a queue that has moved", err, task.ErrWrongState, `queue "q" has left the shard`)
		same(t, "LearnMoved of another error", p.LearnMoved(errors.New("x")), false)
		same(t, "LearnMoved", p.LearnMoved(errors.Join(moved)), true)
		same(t, "queues that were learned", len(p.learned), 2)
		for _, q := range p.learned {
			if q.Namespace != "a" || q.Name != "q" || q.Shard != 4 || q.Moved != 3 || !q.Own || q.Config.Version != 9 {
				t.Errorf("learned %+v", q)
			}
		}
		same(t, "LearnMoved of what MovedTo returns", p.LearnMoved(forward.MovedTo(p.learned[0])), true)
	})
}
