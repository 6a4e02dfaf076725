package enqueue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

var bg = context.Background()

// fail has shards fail after a while, once they have noted which tasks they were sent.
func fail(s *routertest.Script, m *routertest.Member, errs map[uint32]error, after time.Duration) {
	verbtest.On(m.Broker, enqueue.EnqueueTasks, func(ctx context.Context, q enqueue.Enqueueing) (enqueue.TasksEnqueued, error) {
		out, err := s.Enqueue(ctx, q)
		if errs[q.Shard] == nil {
			return out, err
		}
		routertest.Pass(after)
		return enqueue.TasksEnqueued{}, errs[q.Shard]
	})
}

// If some shards of a queue do not answer, their tasks have the error and the others are created. The stamp is of one that has answered.
func TestSomeShardsFail(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} { // the error comes first, or last
		for named, gone := range map[uint32]uint32{1: 1, 2: 2, 3: 1} {
			routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
				fail(s, m, map[uint32]error{gone: routertest.ErrAway}, wait)
				specs := []task.Spec{{Type: "a", Queue: "spread", RequestID: routertest.Asked}, {Type: "b", Queue: "spread", Key: "k"}}
				s.Moved = func(uint32, task.Spec) bool { return false }
				out, stamp, err := m.Enqueue(bg, named, routertest.Namespace, specs) // a goes to shard 1, b to shard 2
				if err != nil || stamp.Shard != 3-gone || stamp.Index == 0 {
					t.Errorf("shard %d does not answer: stamp %+v, %v", gone, stamp, err)
				}
				for i, got := range out {
					if lost := uint32(i+1) == gone; lost != errors.Is(got.Err, routertest.ErrAway) || lost != (got.ID == task.ID{}) {
						t.Errorf("shard %d does not answer: task %d is %+v", gone, i, got)
					}
				}
			})
		}
	}
}

// A shard that does not answer for a queue that is whole is asked once, and the call has its error.
func TestOnlyShardFails(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		s.Gone = routertest.ErrAway
		_, _, err := m.Enqueue(bg, 1, routertest.Namespace, []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "one"}})
		if got := s.Was(); !errors.Is(err, routertest.ErrAway) || got != "enqueue [a b] in 1" {
			t.Errorf("calls %s, %v", got, err)
		}
	})
}

// A batch without tasks is no error.
func TestEmptyBatch(t *testing.T) {
	routertest.InScript(t, func(_ *routertest.Script, m *routertest.Member) {
		if out, _, err := m.Enqueue(bg, 1, routertest.Namespace, nil); err != nil || len(out) != 0 {
			t.Errorf("no tasks: %+v, %v", out, err)
		}
	})
}

// Each task is routed by the version of its own queue, and one queue that is spread has all of them go slot by slot.
func TestVersionsOfRoutes(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "two"}, {Type: "c", Queue: "two"}, {Type: "d", Queue: "one"},
			{Type: "e", Queue: "three"}}
		out, _, err := m.Enqueue(bg, 1, routertest.Namespace, specs)
		for i, want := range []uint64{7, 8, 8, 7, 9} {
			if specs[i].Routed != want || out[i].Err != nil {
				t.Errorf("task %d is routed by version %d, want %d", i, specs[i].Routed, want)
			}
		}
		if got := s.Was(); got != "enqueue [a b c d e] in 1" || err != nil {
			t.Errorf("calls %s, %v", got, err)
		}
		mixed := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "spread", Key: "k"}, {Type: "c", Queue: "three"}}
		out, _, err = m.Enqueue(bg, 1, routertest.Namespace, mixed)
		all := strings.Split(s.Was(), ", ")
		slices.Sort(all)
		if got := strings.Join(all, ", "); got != "enqueue [a] in 1, enqueue [b] in 2, enqueue [c] in 3" || err != nil ||
			out[0].ID.Shard() != 1 || out[1].ID.Shard() != 2 || out[2].ID.Shard() != 3 {
			t.Errorf("calls %s: %+v, %v", got, out, err)
		}
		// One that can't be placed has its error, and the others go on.
		mixed = []task.Spec{{Type: "a", Queue: "none"}, {Type: "b", Queue: "spread", Key: "k"}}
		out, _, err = m.Enqueue(bg, 1, routertest.Namespace, mixed)
		if got := s.Was(); got != "place none, enqueue [b] in 2" || err != nil || !errors.Is(out[0].Err, routertest.ErrAway) ||
			out[1].Err != nil {
			t.Errorf("calls %s: %+v, %v", got, out, err)
		}
	})
}

// Tasks go to the shard that has the queue, if the one asked first says that it has moved.
func TestMovedQueue(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		moved := forward.MovedTo(queues.Queue{Namespace: routertest.Namespace, Name: "one", Shard: 2,
			Config: task.QueueConfig{Version: 99}})
		fail(s, m, map[uint32]error{1: moved}, 0)
		specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "one"}}
		out, stamp, err := m.Enqueue(bg, 1, routertest.Namespace, specs)
		if got := s.Was(); got != "enqueue [a b] in 1, enqueue [a b] in 2" || err != nil || out[0].ID.Shard() != 2 ||
			out[1].ID.Shard() != 2 || stamp.Shard != 2 || specs[1].Routed != 99 {
			t.Errorf("calls %s: %+v at %+v, %v", got, out, stamp, err)
		}
	})
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) { // found out slot by slot
		moved := forward.MovedTo(queues.Queue{Namespace: routertest.Namespace, Name: "one", Shard: 2,
			Config: task.QueueConfig{Version: 99}})
		fail(s, m, map[uint32]error{1: moved}, 0)
		m.Fleet.Queues["one"] = queues.Queue{Namespace: routertest.Namespace, Name: "one", Shard: 2, Config: task.QueueConfig{Version: 99}}
		specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "spread", Key: "k"}}
		out, _, err := m.Enqueue(bg, 1, routertest.Namespace, specs)
		if err != nil || out[0].Err != nil || out[0].ID.Shard() != 2 || out[1].Err != nil {
			t.Errorf("calls %s: %+v, %v", s.Was(), out, err)
		}
	})
}

// A group whose request may be known where its slot was long ago is looked up only where it moved recently.
func TestGroupLookupAfterSlotMove(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		m.Copy["spread"] = queues.Queue{Namespace: routertest.Namespace, Name: "spread",
			Parts: []queues.Part{{Shard: 1, Left: task.AllSlots},
				{Shard: 3, Left: task.AllSlots, Recent: true}, {Shard: 2, Slots: task.AllSlots, Next: task.AllSlots}}}
		_, stamp, err := m.Groups.MakeGroup(bg, routertest.Namespace, task.Group{Tasks: []task.Spec{{Queue: "spread"}},
			RequestID: routertest.Asked})
		if got := s.Was(); got != "find in 3, make in 2 with [spread]" || err != nil || stamp.Shard != 2 {
			t.Errorf("calls %s at %+v, %v", got, stamp, err)
		}
		// The same for a task: its request is looked up there, a key everywhere.
		for want, spec := range map[string]task.Spec{
			"enqueue [] in 3, enqueue [] in 2":                  {RequestID: routertest.Asked},
			"enqueue [] in 1, enqueue [] in 3, enqueue [] in 2": {IdempotencyKey: "i"},
			"enqueue [] in 2":                                   {Key: "k"},
		} {
			spec.Queue = "spread"
			s.Moved = func(shard uint32, _ task.Spec) bool { return shard != 2 }
			if _, _, err := m.Enqueue(bg, 2, routertest.Namespace, []task.Spec{spec}); err != nil {
				t.Error(err)
			}
			if got := s.Was(); got != want {
				t.Errorf("%+v: calls %s, want %s", spec, got, want)
			}
		}
	})
}

// Members that are of several groups have the stamp of the first group that answers, if there is no other task.
func TestStampsOfMembers(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		s.Joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(2, 1, 7)}}}
		member := func(shard uint32) task.Spec {
			return task.Spec{Type: "m", Queue: "one", Member: &task.Member{Group: task.NewID(shard, 1, 1)}}
		}
		for range 10 { // the groups are asked in any order
			out, stamp, err := m.Enqueue(bg, 1, routertest.Namespace, []task.Spec{member(77), member(3)})
			if err != nil || stamp.Shard != 3 || !errors.Is(out[0].Err, task.ErrNotFound) || out[1].Err != nil {
				t.Errorf("stamp %+v, %+v, %v", stamp, out, err)
			}
			if _, stamp, err = m.Enqueue(bg, 1, routertest.Namespace, []task.Spec{member(3), {Type: "job", Queue: "one"}}); err != nil ||
				stamp.Shard != 1 {
				t.Errorf("with another task: stamp %+v, %v", stamp, err)
			}
		}
	})
}

// Notifications whose answer was lost are sent again: the system shard ignores those taken before. Tasks are not.
func TestResentMessages(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		var taken atomic.Int64
		for _, m := range f.Nodes {
			verbtest.On(m.Control, webhooks.TakeNotifications, func(_ context.Context, q webhooks.Notifications) (none verb.Nothing,
				err error) {
				if err = (routertest.FakeControl{M: m}).Check(); err == nil {
					taken.Add(int64(len(q.All)))
				}
				return none, err
			})
		}
		lose := ""
		f.Network = func(_, _ uint32, method string) routertest.Delivery {
			if method == lose {
				lose = ""
				return routertest.AnswerLost
			}
			return routertest.Arrives
		}
		lose = "take-notifications"
		out := f.Nodes[2].Outbox.Send(bg, routertest.Namespace, []*broker.OutboxMessage{{Notification: &task.Notification{}},
			{Notification: &task.Notification{}}})
		if out[0].Err != nil || out[1].Err != nil || taken.Load() != 4 || f.Count("take-notifications") != 2 {
			t.Errorf("notifications: %+v, %d were taken in %d calls", out, taken.Load(), f.Count("take-notifications"))
		}
		lose = "enqueue"
		if _, err := f.Nodes[2].Put(1); !errors.Is(err, broker.ErrUnknown) || f.Made() != 1 || f.Count("enqueue") != 1 {
			t.Errorf("a task: %v, %d were created in %d calls", err, f.Made(), f.Count("enqueue"))
		}
		if f.Nodes[2].Outbox.Send(bg, routertest.Namespace, nil); f.Count("take-notifications") != 2 {
			t.Error("an empty outbox made a call")
		}
	})
}

// Orders to cancel tasks of a shard without a leader are given up together, and do not hold up those for another shard.
func TestCancelsOfShardsDoNotWaitForEachOther(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		f.With(func() { f.AddShard(2, 1, 2) })
		f.Lead(2, 0)
		var messages []*broker.OutboxMessage
		for i := range 20 {
			messages = append(messages, &broker.OutboxMessage{Cancel: task.NewID(2, 1, uint64(i))})
		}
		messages = append(messages, &broker.OutboxMessage{Cancel: task.NewID(1, 1, 1)})
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		began := time.Now()
		out := f.Nodes[1].Outbox.Send(ctx, routertest.Namespace, messages)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		for i := range out[:20] {
			if !errors.Is(out[i].Err, task.ErrUnavailable) {
				t.Fatalf("order %d to a shard without a leader: %v", i, out[i].Err)
			}
		}
		if !errors.Is(out[20].Err, task.ErrNotFound) && out[20].Err != nil {
			t.Errorf("the order to the other shard: %v, want an answer", out[20].Err)
		}
		began = time.Now()
		if f.Nodes[1].Outbox.Send(bg, routertest.Namespace, messages[:20]); time.Since(began) > 11*time.Second {
			t.Errorf("20 orders were given up after %v, want the time of one", time.Since(began))
		}
	})
}
