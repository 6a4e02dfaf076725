package enqueue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// A shard that hangs, or the system shard, holds up no tasks for others: they are answered, and its own get an error
// that says so, together.
func TestHungShardIsLeftOut(t *testing.T) {
	member := func(group task.ID) task.Spec {
		return task.Spec{Type: "member", Queue: "one", Member: &task.Member{Group: group}}
	}
	var several []task.Spec // more than are asked at the same time, and first
	for n := range uint64(40) {
		several = append(several, member(task.NewID(2, 1, n+1)))
	}
	deliver := func(ctx context.Context, m *routertest.Member, specs []task.Spec) []broker.Enqueued {
		return m.Deliver(ctx, routertest.Namespace, specs)
	}
	send := func(ctx context.Context, m *routertest.Member, specs []task.Spec) []broker.Enqueued {
		out, stamp, err := m.Enqueue(ctx, 1, routertest.Namespace, specs)
		if err != nil || stamp.Shard == 2 {
			t.Errorf("Enqueue = %+v, %v", stamp, err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		run    func(context.Context, *routertest.Member, []task.Spec) []broker.Enqueued
		system bool // the system shard hangs, too
		specs  []task.Spec
		late   func(i int) bool
	}{
		{"Deliver", deliver, false, []task.Spec{{Queue: "two"}, {Queue: "one"}, {Queue: "three"}}, func(i int) bool { return i == 0 }},
		{"Deliver to new queues", deliver, true, []task.Spec{{Queue: "new"}, {Queue: "one"}, {Queue: "newer"}, {Queue: "three"}},
			func(i int) bool { return i%2 == 0 }},
		{"Enqueue of members", send, false, []task.Spec{member(task.NewID(2, 1, 1)), {Queue: "one"}, member(task.NewID(3, 1, 1))},
			func(i int) bool { return i == 0 }},
		{"Enqueue of members only", send, false, append(several, member(task.NewID(3, 1, 1)), member(task.NewID(3, 1, 2))),
			func(i int) bool { return i < 40 }},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			s.Joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(3, 1, 7)}}}
			m.Broker.Before(enqueue.EnqueueTasks.Rule(), routertest.Hang(2))
			m.Broker.Before(enqueue.AddToGroup.Rule(), routertest.Hang(2))
			if c.system {
				m.Control.Before(queues.Place.Rule(), routertest.Hang(0))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			began := time.Now()
			out := c.run(ctx, m, c.specs)
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s took %s", c.name, took)
			}
			for i := range out {
				if late := c.late(i); late != errors.Is(out[i].Err, task.ErrUnavailable) || late == (out[i].Err == nil) {
					t.Errorf("%s: task %d = %+v, want an error: %t", c.name, i, out[i], late)
				}
			}
		})
	}
}

// A group is created, and gets members, even if the system shard hangs that would place their queues. A queue that is elsewhere is an
// answer, too.
func TestHungSystemShardDelaysNoGroup(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		m.Control.Before(queues.Place.Rule(), routertest.Hang(0))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := m.Groups.MakeGroup(ctx, routertest.Namespace, task.Group{Tasks: []task.Spec{{Queue: "two"}, {Queue: "new"},
			{Queue: "newer"}}})
		if took := time.Since(began); err != nil || took > time.Second || s.Was() != "make in 2 with [two]" {
			t.Errorf("MakeGroup took %s, %v", took, err)
		}
		s.Joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(2, 1, 7)}},
			{Accepted: broker.Accepted{ID: task.NewID(2, 1, 8)}}}
		verbtest.On(m.Broker, broker.ShowGroup, func(context.Context, broker.OnGroup) (out broker.Shown[*broker.GroupView], err error) {
			out.View = &broker.GroupView{}
			return out, nil
		})
		began = time.Now()
		_, _, err = m.Groups.AddToGroup(ctx, routertest.Namespace, task.NewID(2, 1, 1), []task.Spec{{Queue: "one"}, {Queue: "new"}})
		if took := time.Since(began); err != nil || took > time.Second {
			t.Errorf("AddToGroup took %s, %v", took, err)
		}
	})
}

// The stamp of a call is that of the shard that its caller named, whichever answers first.
func TestStampIsOfTheNamedShard(t *testing.T) {
	for _, slow := range []*verb.Rule{enqueue.EnqueueTasks.Rule(), enqueue.AddToGroup.Rule()} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			s.Joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(3, 1, 7)}}}
			m.Broker.Before(slow, func(ctx context.Context, _ verb.Call) error { return routertest.Sleep(ctx, time.Millisecond) })
			specs := []task.Spec{{Queue: "one", Member: &task.Member{Group: task.NewID(3, 1, 1)}}, {Queue: "one"}}
			if out, stamp, err := m.Enqueue(context.Background(), 1, routertest.Namespace, specs); err != nil || stamp.Shard != 1 ||
				out[0].Err != nil || out[1].Err != nil {
				t.Errorf("Enqueue = %+v, %+v, %v, want the stamp of shard 1", out, stamp, err)
			}
		})
	}
}
