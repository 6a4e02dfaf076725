package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// A task of a spread queue is looked up where its slot was before, if it may be known there, and created where its slot is.
func TestTasksGoToTheirSlots(t *testing.T) {
	for _, c := range []struct {
		name  string
		shard uint32 // the shard that the caller names
		spec  task.Spec
		known bool // whether the shard that its slot has left knows it
		want  string
	}{
		{"a new request", 1, task.Spec{RequestID: routertest.Asked}, false, "enqueue [job] in 1, enqueue [job] in 2"},
		{"a request from before", 1, task.Spec{RequestID: routertest.Asked}, true, "enqueue [job] in 1"},
		{"a new idempotency key", 1, task.Spec{IdempotencyKey: "k"}, false, "enqueue [job] in 1, enqueue [job] in 2"},
		{"a new unique key", 1, task.Spec{Unique: &task.Unique{Key: "k"}}, false, "enqueue [job] in 1, enqueue [job] in 2"},
		{"a unique key in a slot whose idempotency key anybody may know", 1, task.Spec{Unique: &task.Unique{Key: "k"}, IdempotencyKey: "k"},
			false, "enqueue [job] in 1, enqueue [job] in 2, enqueue [job] in 1, enqueue [job] in 2"},
		{"an idempotency key from before", 1, task.Spec{Unique: &task.Unique{Key: "k"}, IdempotencyKey: "k"}, true, "enqueue [job] in 1"},
		{"no name that anybody could know", 1, task.Spec{Key: "k"}, false, "enqueue [job] in 2"},
		{"no slot", 2, task.Spec{}, false, "enqueue [job] in 2"},
		{"no slot, and a shard that all slots have left", 1, task.Spec{}, false, "enqueue [job] in 2"},
		{"no slot, and a shard that has no part", 3, task.Spec{}, false, "enqueue [job] in 2"},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			s.Moved = func(shard uint32, spec task.Spec) bool { return (shard == 1 || spec.OnlyFind) && !c.known }
			c.spec.Type, c.spec.Queue = "job", "spread"
			out, stamp, err := m.Enqueue(context.Background(), c.shard, routertest.Namespace, []task.Spec{c.spec})
			if got := s.Was(); got != c.want || err != nil || out[0].Err != nil || stamp.Index == 0 {
				t.Errorf("%s: calls %s, got %+v at %+v, %v; want %s", c.name, got, out, stamp, err, c.want)
			}
		})
	}
}

// A task without a slot stays in the shard that the caller names, if that takes any.
func TestTasksWithoutASlotStay(t *testing.T) {
	const half = task.SlotSet(1)<<32 - 1
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		q := m.Copy["spread"]
		q.Parts = []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 2, Slots: ^half}, {Shard: 3, Next: ^half}}
		m.Copy["spread"] = q
		for n := range 60 {
			shard := []uint32{1, 3}[n%2]
			_, _, err := m.Enqueue(context.Background(), shard, routertest.Namespace, []task.Spec{{Type: "job", Queue: "spread"}})
			if got, want := s.Was(), fmt.Sprintf("enqueue [job] in %d", shard); got != want || err != nil {
				t.Fatalf("calls %s, %v; want %s", got, err, want)
			}
		}
	})
}

// A shard that a slot has left learns that from the call, if its copy of the queue is older than the router's: it must
// not take the task before the others are asked. A search by idempotency key creates nothing anywhere.
func TestShardsThatASlotHasLeft(t *testing.T) {
	for _, c := range []struct {
		spec task.Spec
		want string
	}{
		{task.Spec{RequestID: routertest.Asked}, "1 left, 2"},
		{task.Spec{IdempotencyKey: "k"}, "1 left, 2"},
		{task.Spec{Unique: &task.Unique{Key: "k"}}, "1 left, 2"},
		{task.Spec{Unique: &task.Unique{Key: "k"}, IdempotencyKey: "k"}, "1 finds, 2 finds, 1 left, 2"},
		{task.Spec{Key: "k"}, "2"},
		{task.Spec{}, "2"},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			var asked []string
			s.Moved = func(shard uint32, spec task.Spec) bool {
				one := fmt.Sprint(shard)
				if spec.Left {
					one += " left"
				}
				if spec.OnlyFind {
					one += " finds"
				}
				asked = append(asked, one)
				return spec.Left || spec.OnlyFind
			}
			c.spec.Queue = "spread"
			_, _, err := m.Enqueue(context.Background(), 2, routertest.Namespace, []task.Spec{c.spec})
			if got := strings.Join(asked, ", "); got != c.want || err != nil {
				t.Errorf("%+v: asked %s, %v; want %s", c.spec, got, err, c.want)
			}
		})
	}
}

// The tasks of a slot in a batch take the same steps, in the order of the batch, also if the slot is still on its way.
func TestTasksOfASlotKeepTheirOrder(t *testing.T) {
	unique := &task.Unique{Key: "{k}u"}
	for _, c := range []struct {
		name  string
		specs []task.Spec
		want  string
	}{
		{"with an idempotency key first", []task.Spec{{Type: "a", Key: "k", IdempotencyKey: "k"}, {Type: "b", Key: "k"},
			{Type: "c", Key: "other"}},
			"enqueue [a b] in 1, enqueue [c] in 2, enqueue [a b] in 2"},
		{"with one last", []task.Spec{{Type: "a", Key: "k"}, {Type: "b", Key: "k", IdempotencyKey: "k"}},
			"enqueue [a b] in 1, enqueue [a b] in 2"},
		{"with both kinds of keys", []task.Spec{{Type: "a", Key: "k"}, {Type: "b", Key: "k", Unique: unique, IdempotencyKey: "k"},
			{Type: "c", Key: "k"}},
			"enqueue [a b c] in 1, enqueue [a b c] in 2, enqueue [a b c] in 1, enqueue [a b c] in 2"},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			q := m.Copy["spread"]
			q.Parts[0].Recent = false
			m.Copy["spread"] = q
			s.Moved = func(shard uint32, spec task.Spec) bool { return shard == 1 || spec.OnlyFind }
			for i := range c.specs {
				c.specs[i].Queue = "spread"
			}
			_, _, err := m.Enqueue(context.Background(), 2, routertest.Namespace, c.specs)
			got := strings.Split(s.Was(), ", ")
			slices.SortStableFunc(got[:len(got)-1], strings.Compare) // calls of one step come in any order
			want := strings.Split(c.want, ", ")
			slices.SortStableFunc(want[:len(want)-1], strings.Compare)
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("%s: calls %v, %v, want %v", c.name, got, err, want)
			}
		})
	}
	for range 20 { // the order of those that no shard took must not be that of a map
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			began := time.Now()
			s.Moved = func(uint32, task.Spec) bool { return time.Since(began) == 0 }
			specs := make([]task.Spec, 9)
			for i := range specs {
				specs[i] = task.Spec{Type: fmt.Sprint(i), Queue: "spread", Key: "k"}
			}
			_, _, err := m.Enqueue(context.Background(), 2, routertest.Namespace, specs)
			if got := s.Was(); err != nil || strings.Count(got, "enqueue [0 1 2 3 4 5 6 7 8] in") != strings.Count(got, "enqueue") ||
				strings.Count(got, "enqueue") < 2 {
				t.Errorf("when the slot arrives, the calls are %s, %v", got, err)
			}
		})
	}
}

// A task whose keys are in different slots is refused in a queue in several shards, after those that may know it were asked.
func TestKeysInDifferentSlots(t *testing.T) {
	const half = task.SlotSet(1)<<32 - 1
	for _, c := range []struct {
		name  string
		parts []queues.Part
		known uint32 // the shard that knows the request or the idempotency key
		spec  task.Spec
		field string // "": it is accepted
	}{
		{"a unique key", parts(half, ^half), 0, task.Spec{Key: "a", Unique: &task.Unique{Key: "b"}}, "unique.key"},
		{"an idempotency key", parts(half, ^half), 0, task.Spec{Key: "a", IdempotencyKey: "b"}, "idempotency_key"},
		{"both without a key", parts(half, ^half), 0, task.Spec{Unique: &task.Unique{Key: "a"}, IdempotencyKey: "b"}, "idempotency_key"},
		{"a known idempotency key", parts(half, ^half), 2, task.Spec{Key: "a", IdempotencyKey: "b"}, ""},
		{"equal keys", parts(half, ^half), 0, task.Spec{Key: "a", Unique: &task.Unique{Key: "a"}, IdempotencyKey: "a"}, ""},
		{"the same text in braces", parts(half, ^half), 0, task.Spec{Key: "{a}1", Unique: &task.Unique{Key: "2{a}"}, IdempotencyKey: "a"},
			""},
		{"a queue that has moved as a whole", parts(0, task.AllSlots), 0, task.Spec{Key: "a", Unique: &task.Unique{Key: "b"}}, ""},
		{"one that has moved as a whole, of which some slots were elsewhere before", []queues.Part{{Shard: 1, Left: half},
			{Shard: 3, Left: ^half}, {Shard: 2, Next: task.AllSlots}},
			0, task.Spec{Key: "a", Unique: &task.Unique{Key: "b"}}, "unique.key"},
	} {
		if a, b := task.KeySlot("a"), task.KeySlot("b"); half.Has(a) == half.Has(b) {
			t.Fatalf("the slots %d and %d are in one shard", a, b)
		}
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			q := m.Copy["spread"]
			q.Parts = c.parts
			m.Copy["spread"] = q
			s.Moved = func(shard uint32, spec task.Spec) bool { return spec.OnlyFind && shard != c.known }
			c.spec.Type, c.spec.Queue = "job", "spread"
			out, _, err := m.Enqueue(context.Background(), 2, routertest.Namespace, []task.Spec{c.spec})
			if err != nil {
				t.Fatal(err)
			}
			refused, _ := task.AsError(out[0].Err)
			if (c.field == "") != (refused == nil) || refused != nil && (refused.Field != c.field ||
				refused.Code != task.CodeInvalidArgument) {
				t.Errorf("%s: %v, want it refused for %q", c.name, out[0].Err, c.field)
			}
		})
	}
}

func parts(one, two task.SlotSet) []queues.Part {
	return []queues.Part{{Shard: 1, Slots: one, Next: one, Left: ^one}, {Shard: 2, Slots: two, Next: two, Left: ^two}}
}

// A shard that has no part of one queue of a call any more has said nothing about the tasks of others: it is asked again.
func TestStaleMapOfAnotherQueue(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		told := false
		s.Moved = func(shard uint32, _ task.Spec) bool {
			if s.Gone = nil; !told {
				told, s.Gone = true, forward.MovedTo(queues.Queue{Namespace: routertest.Namespace, Name: "gone", Shard: 3,
					Config: task.QueueConfig{Version: 9}})
			}
			return shard == 1
		}
		out, _, err := m.Enqueue(context.Background(), 2, routertest.Namespace,
			[]task.Spec{{Type: "job", Queue: "spread", Unique: &task.Unique{Key: "k"}}})
		// where it is now
		if got := s.Was(); got != "enqueue [job] in 1, place spread, enqueue [job] in 3" || err != nil || out[0].Err != nil {
			t.Errorf("calls %s, %+v, %v", got, out, err)
		}
	})
}

// If several shards respond, the caller gets the stamp of the shard that it named.
func TestStampOfNamedShard(t *testing.T) {
	for shard, want := range map[uint32][]uint32{1: {1}, 2: {2}, 3: {1, 2}} {
		for range 10 { // the shards answer in any order
			routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
				s.Moved = func(uint32, task.Spec) bool { return false }
				specs := []task.Spec{{Type: "a", Queue: "spread", RequestID: routertest.Asked}, {Type: "b", Queue: "spread", Key: "k"}}
				if _, stamp, err := m.Enqueue(context.Background(), shard, routertest.Namespace, specs); err != nil ||
					!slices.Contains(want, stamp.Shard) {
					t.Errorf("Enqueue to shard %d: stamp %+v, %v", shard, stamp, err)
				}
			})
		}
	}
}

// After a queue was spread a moment ago, only the tasks that their shard refused are sent again, each according to the queue's new
// placement.
func TestTasksOfMovedSlots(t *testing.T) {
	for _, c := range []struct {
		name  string
		comes time.Duration // when the slots arrive; negative: never
		time  time.Duration // of the caller; 0: unlimited
		most  time.Duration
	}{
		{"at once", 0, 0, 0}, {"a while later", time.Second, 0, 2 * time.Second}, {"in time", time.Second,
			5 * time.Second, 2 * time.Second},
		{"never", -1, 0, forward.SearchTime + time.Second}, {"never, for a caller with little time", -1, time.Second, time.Second},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.time > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.time)
				defer cancel()
			}
			began := time.Now()
			s.Moved = func(shard uint32, spec task.Spec) bool {
				there := c.comes >= 0 && time.Since(began) >= c.comes
				return spec.Type == "b" && (shard == 1 || !there)
			}
			fresh := m.Copy["spread"]
			fresh.Name, fresh.Config.Version = "one", 9
			m.Fleet.Queues["one"] = fresh
			specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "one", Key: "k"}, {Type: "c", Queue: "one"}}
			out, stamp, err := m.Enqueue(ctx, 1, routertest.Namespace, specs)
			took := time.Since(began)
			if came := c.comes >= 0; err != nil || came != (out[1].Err == nil) || !came && !errors.Is(out[1].Err, broker.ErrSlotMoved) ||
				took < c.comes || took > c.most || m.Fleet.Made() != 0 {
				t.Errorf("%s: second task %+v after %s, %v", c.name, out[1], took, err)
			}
			if out[0].ID != task.NewID(1, 1, 1) || out[2].ID != task.NewID(1, 1, 3) || stamp.Shard != 1 || specs[1].Routed != 9 ||
				specs[0].Routed != 7 {
				t.Errorf("%s: the other tasks are %+v and %+v at %+v, routed with versions %d and %d", c.name, out[0], out[2], stamp,
					specs[0].Routed, specs[1].Routed)
			}
			if got := s.Was(); c.comes == 0 && got != "enqueue [a b c] in 1, enqueue [b] in 2" {
				t.Errorf("%s: calls %s", c.name, got)
			}
		})
	}
}

// Tasks are delivered to the shards of their queues, each with its own result.
func TestTasksAreDelivered(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "none"}, {Type: "c", Queue: "one"}, {Type: "bad", Queue: "one"}}
		s.Refused["bad"] = routertest.ErrAway
		for i, want := range []uint32{1, 0, 1} { // without a call
			if got := m.ShardOf(routertest.Namespace, specs[i].Queue, 0); got != want {
				t.Errorf("ShardOf a task for %q = %d, want %d", specs[i].Queue, got, want)
			}
		}
		out := m.Deliver(context.Background(), routertest.Namespace, specs)
		calls := strings.Split(s.Was(), ", ")
		slices.Sort(calls)
		if got := strings.Join(calls, ", "); got != "enqueue [a c bad] in 1, place none" || out[0].ID != task.NewID(1, 1, 1) ||
			!errors.Is(out[1].Err, routertest.ErrAway) || out[2].ID != task.NewID(1, 1, 2) || !errors.Is(out[3].Err, routertest.ErrAway) {
			t.Errorf("calls %s: %+v", got, out)
		}
		s.Gone = task.Unavailable(time.Second, "gone")
		for i, got := range m.Deliver(context.Background(), routertest.Namespace, specs[:1]) {
			if !errors.Is(got.Err, task.ErrUnavailable) {
				t.Errorf("task %d for a shard that does not respond: %+v, want unavailable", i, got)
			}
		}
	})
}

// A message of another shard may be repeated for a day. So as long as a shard is asked about keys of a slot that it
// gave up, it is asked about messages; about other requests for a shorter time.
func TestMessagesAskTheOldShardOfTheirSlot(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		m.Copy["spread"] = queues.Queue{Namespace: routertest.Namespace, Name: "spread", Config: m.Copy["spread"].Config,
			Parts: []queues.Part{{Shard: 1, Left: task.AllSlots}, {Shard: 2, Slots: task.AllSlots, Next: task.AllSlots}}}
		s.Moved = func(shard uint32, _ task.Spec) bool { return shard == 1 }
		request := task.ID{6: 0x80, 8: 0x80, 15: 1}
		for ttl, want := range map[time.Duration]string{0: "enqueue [a] in 2", task.MessageWindow: "enqueue [a] in 1, enqueue [a] in 2"} {
			out := m.Deliver(context.Background(), routertest.Namespace,
				[]task.Spec{{Type: "a", Queue: "spread", RequestID: request, RequestTTL: ttl}})
			if got := s.Was(); got != want || out[0].Err != nil {
				t.Errorf("a request that is remembered for %v made the calls %s, want %s: %+v", ttl, got, want, out)
			}
		}
	})
}
