package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// A group is created in the shard of its first task, and its home gets the copies of queues that it needs. A repeated request is looked
// up where its slot was before.
func TestGroupHomeIsFirstTasksShard(t *testing.T) {
	tasks := func(queues ...string) (specs []task.Spec) {
		for _, q := range queues {
			specs = append(specs, task.Spec{Queue: q})
		}
		return specs
	}
	for _, c := range []struct {
		name  string
		group task.Group
		known map[uint32]error
		want  string
		err   error
	}{
		{"one task", task.Group{Tasks: tasks("two"), OnComplete: &task.Spec{Queue: "one"}}, nil, "make in 2 with [two]", nil},
		{"several queues", task.Group{Tasks: tasks("two", "one", "two")}, nil, "make in 2 with [two]", nil},
		{"a queue that can't be placed is no reason to wait", task.Group{Tasks: tasks("two", "none")}, nil,
			"place none, make in 2 with [two]", nil},
		{"none at the beginning", task.Group{OnComplete: &task.Spec{Queue: "one"}}, nil, "make in 1 with []", nil},
		{"nothing but a group", task.Group{Open: true}, nil, "place default, make in 3 with []", nil},
		{"its queue can't be placed", task.Group{Tasks: tasks("none")}, nil, "place none", routertest.ErrAway},
		{"its slot has moved", task.Group{Tasks: tasks("spread"), RequestID: routertest.Asked}, nil, "find in 1, make in 2 with [spread]",
			nil},
		{"and the request came before that", task.Group{Tasks: tasks("spread"), RequestID: routertest.Asked}, map[uint32]error{1: nil},
			"find in 1", nil},
		{"or nobody can say", task.Group{Tasks: tasks("spread"), RequestID: routertest.Asked}, map[uint32]error{1: routertest.ErrAway},
			"find in 1", routertest.ErrAway},
		{"nobody asks twice without a request", task.Group{Tasks: []task.Spec{{Queue: "spread", Key: "k"}}}, nil, "make in 2 with [spread]",
			nil},
		{"a queue in one shard", task.Group{Tasks: tasks("one"), RequestID: routertest.Asked}, nil, "make in 1 with [one]", nil},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			s.Known = c.known
			made, stamp, err := m.Groups.MakeGroup(context.Background(), routertest.Namespace, c.group)
			_, found := c.known[1]
			if got := s.Was(); got != c.want || !errors.Is(err, c.err) || made.Duplicate != (found && err == nil) ||
				err == nil && stamp.Index == 0 {
				t.Errorf("%s: calls %s, stamp %+v, error %v; want %s, %v", c.name, got, stamp, err, c.want, c.err)
			}
		})
	}
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		s.Fails, s.Joined = routertest.ErrAway, []broker.Joined{sent("job", "one")}
		if _, _, err := m.Groups.MakeGroup(context.Background(), routertest.Namespace, task.Group{Tasks: tasks("two")}); !errors.Is(err,
			routertest.ErrAway) || s.Was() != "make in 2 with [two]" {
			t.Errorf("MakeGroup that the home refused: %v", err)
		}
	})
}

// A group that a shard refuses, because its slot has moved since this node's map, is created where the slot is now.
// Shards learn by which version of the map they were chosen, and whether it says that the slot has left them.
func TestGroupFollowsItsSlot(t *testing.T) {
	for what, moves := range map[string]bool{"the slot has moved": true, "the slot moves for long": false} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			homes := "" // what the calls say of the groups' homes
			note := func(g task.Group) {
				homes += fmt.Sprintf("%s %t %d %t, ", g.Home.Queue, g.Home.RequestID == routertest.Asked, g.Home.Routed, g.Home.Left)
			}
			verbtest.On(m.Broker, enqueue.CreateGroup, func(ctx context.Context, q enqueue.NewGroup) (out enqueue.GroupCreated, err error) {
				note(q.Group)
				out, err = s.CreateGroup(ctx, q)
				if q.Shard == 2 { // its slots are in shard 3 now
					err = broker.ErrSlotMoved
				}
				return out, err
			})
			verbtest.On(m.Broker, enqueue.FindGroup, func(ctx context.Context, q enqueue.NewGroup) (enqueue.GroupCreated, error) {
				note(q.Group)
				return s.FindGroup(ctx, q)
			})
			old := m.Copy["spread"]
			old.Config.Version = 5
			m.Copy["spread"] = old
			now := old
			now.Config.Version = 6
			if moves {
				now.Parts = []queues.Part{{Shard: 2, Left: task.AllSlots, Recent: true}, {Shard: 3, Slots: task.AllSlots,
					Next: task.AllSlots}}
			}
			m.Fleet.With(func() { m.Fleet.Queues["spread"] = now })
			_, _, err := m.Groups.MakeGroup(context.Background(), routertest.Namespace,
				task.Group{Tasks: []task.Spec{{Queue: "spread", Payload: []byte("1")}}, RequestID: routertest.Asked})
			was := s.Was()
			if !moves {
				if !errors.Is(err, broker.ErrSlotMoved) || !strings.HasPrefix(was,
					"find in 1, make in 2 with [spread], find in 1, make in 2 with [spread]") {
					t.Errorf("%s: calls %s, %v", what, was, err)
				}
				return
			}
			want := "spread true 5 true, spread true 5 false, spread true 6 true, spread true 6 false, "
			if err != nil || was != "find in 1, make in 2 with [spread], find in 2, make in 3 with [spread]" || homes != want {
				t.Errorf("%s: calls %s for %s, %v; want %s", what, was, homes, err, want)
			}
		})
	}
}

// sent is a member that its group's home has put in its outbox.
func sent(typ, queue string) broker.Joined {
	return broker.Joined{Accepted: broker.Accepted{ID: routertest.Asked}, Message: &broker.OutboxMessage{Spec: task.Spec{Type: typ,
		Queue: queue, Priority: task.Normal}}}
}

// A member that another shard accepts or refuses gets that result. One that can't be delivered now stays in transit.
func TestMembersAreDelivered(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		s.Refused = map[string]error{"bad": task.Invalid("type", "is bad"), "full": &task.Error{Code: task.CodeQueueFull},
			"away": routertest.ErrAway, "odd": errors.New("odd")}
		here := broker.Joined{Accepted: broker.Accepted{ID: task.NewID(2, 2, 2), State: task.Claimed}}
		s.Joined = []broker.Joined{here, sent("job", "one"), sent("bad", "one"), sent("full", "one"), sent("away", "one"),
			sent("odd", "one"), sent("job", "three")}
		made, _, err := m.Groups.MakeGroup(context.Background(), routertest.Namespace, task.Group{Tasks: []task.Spec{{Queue: "two"}}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"00000002 claimed, <nil>", "00000001 ready, <nil>", "refused", "on its way",
			"on its way", "on its way", "00000003 ready, <nil>"} {
			j := made.Tasks[i]
			got := fmt.Sprintf("%08d %s, %v", j.ID.Shard(), j.State, j.Err)
			switch {
			case j.Message != nil:
				got = "on its way"
			case errors.Is(j.Err, task.ErrInvalidArgument):
				got = "refused"
			}
			if got != want || j.Message != nil && (j.Err != nil || j.ID != routertest.Asked) {
				t.Errorf("member %d: got %s, want %s: %+v", i, got, want, j)
			}
		}
	})
}

// Each new member has its own result.
func TestMembersOfAGroup(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		group := task.NewID(2, 1, 1)
		seen := &broker.GroupView{}
		var unseen error
		verbtest.On(m.Broker, broker.ShowGroup, func(_ context.Context, q broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
			s.Note("group in %d", q.TargetShard())
			return broker.Shown[*broker.GroupView]{View: seen, Stamped: broker.Stamped{At: routertest.At(2)}}, unseen
		})
		s.Refused = map[string]error{"away": routertest.ErrAway}
		before := m.Fleet.Shards[3].Add()
		m.Fleet.Shards[3].Tasks[before].State = task.Cancelled
		double := func(id task.ID) broker.Joined {
			return broker.Joined{Accepted: broker.Accepted{ID: id, Duplicate: true, State: task.Ready}}
		}
		s.Joined = []broker.Joined{sent("away", "one"), {Err: routertest.ErrAway}, double(before), double(task.NewID(3, 1, 77)),
			double(task.NewID(2, 1, 8)), {Accepted: broker.Accepted{ID: before, State: task.Ready}}}
		specs := make([]task.Spec, len(s.Joined))
		for i := range specs {
			specs[i].Queue = "two"
		}
		out, stamp, err := m.Groups.AddToGroup(context.Background(), routertest.Namespace, group, specs)
		if err != nil || stamp.Shard != 2 || s.Was() != "add 6 in 2 with [two], enqueue [away] in 1" {
			t.Fatalf("AddToGroup: stamp %+v, %v", stamp, err)
		}
		if e := out[0].Err; !errors.Is(e, task.ErrUnavailable) || !strings.Contains(e.Error(), "on its way to queue \"two\"") ||
			out[0].ID != routertest.Asked {
			t.Errorf("member in transit: %+v, want an error that says so", out[0])
		}
		if out[1].Err == nil {
			t.Errorf("member that the home refused: %+v, want its error", out[1])
		}
		for i, want := range map[int]task.State{2: task.Cancelled, 3: task.Ready, 4: task.Ready, 5: task.Ready} {
			if out[i].Err != nil || out[i].State != want {
				t.Errorf("member %d: %+v, want state %s", i, out[i], want)
			}
		}

		// A queue that does not exist is created for a group that still accepts members.
		for _, c := range []struct {
			ended broker.Time
			err   error
			want  string
		}{
			{0, nil, "group in 2, place new, add 2 in 2 with [two]"}, {7, nil, "group in 2, add 2 in 2 with []"},
			{0, routertest.ErrAway, "group in 2"},
		} {
			delete(m.Copy, "new")
			seen.EndedAt, unseen = c.ended, c.err
			_, stamp, err := m.Groups.AddToGroup(context.Background(), routertest.Namespace, group,
				[]task.Spec{{Queue: "two"}, {Queue: "new"}})
			if got := s.Was(); !strings.HasPrefix(got, c.want) || !errors.Is(err, c.err) || stamp.Shard != 2 {
				t.Errorf("group ended at %d: calls %s, stamp %+v, error %v; want %s", c.ended, got, stamp, err, c.want)
			}
		}
		s.Fails = routertest.ErrAway
		if out, stamp, err := m.Groups.AddToGroup(context.Background(), routertest.Namespace, group, specs); !errors.Is(err,
			routertest.ErrAway) || out != nil || stamp.Shard != 2 {
			t.Errorf("AddToGroup without a response from the home: %v, stamp %+v, %v", out, stamp, err)
		}
		s.Was()
		if _, _, err := m.Groups.AddToGroup(context.Background(), routertest.Namespace, task.NewID(77, 1, 1), specs); !errors.Is(err,
			task.ErrNotFound) || s.Was() != "" {
			t.Errorf("AddToGroup for a group in a shard that does not exist: %v, want not found", err)
		}
	})
}

// Tasks that become members of groups are sent to the groups' homes. The other tasks of the call are enqueued at the same time.
func TestMembersAmongOtherTasks(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		one, two := task.NewID(2, 1, 1), task.NewID(3, 1, 1)
		member := func(group, ref task.ID) task.Spec {
			return task.Spec{Type: "member", Queue: "one", Member: &task.Member{Group: group, Ref: ref}}
		}
		s.Joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(2, 1, 7)}}, {Err: routertest.ErrAway}}
		for _, c := range []struct {
			specs []task.Spec
			want  string
			at    uint32
		}{
			{[]task.Spec{member(one, task.ID{}), {Type: "job", Queue: "one"}, member(one, task.ID{}), {Type: "job", Queue: "one"}},
				"add 2 in 2 with [], enqueue [job job] in 1", 1},
			{[]task.Spec{member(two, task.ID{})}, "add 1 in 3 with []", 3},
			{[]task.Spec{member(one, routertest.Asked)}, "enqueue [member] in 1", 1}, // its group has already given it a reference
		} {
			out, stamp, err := m.Enqueue(context.Background(), 1, routertest.Namespace, c.specs)
			calls := strings.Split(s.Was(), ", ")
			slices.Sort(calls)
			if got := strings.Join(calls, ", "); got != c.want || stamp.Shard != c.at || err != nil {
				t.Errorf("calls %s, stamp %+v, error %v; want calls %s", got, stamp, err, c.want)
			}
			for i := range out {
				if (out[i].Err != nil) != (i == 2) || out[i].Err == nil && (out[i].ID.Shard() == 1) == enqueue.IsNewMember(c.specs[i]) {
					t.Errorf("%s: task %d = %+v", c.want, i, out[i])
				}
			}
		}
		s.Gone = routertest.ErrAway
		if out, _, err := m.Enqueue(context.Background(), 1, routertest.Namespace, []task.Spec{{Type: "job", Queue: "one"},
			member(one, task.ID{})}); err != nil || !errors.Is(out[0].Err, routertest.ErrAway) || out[1].Err != nil {
			t.Errorf("Enqueue when the shard of the other tasks fails: %+v, %v", out, err)
		}
	})
}

// Messages of all kinds are sent to where they belong, and each gets its result.
func TestOutboxIsSent(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		errs := map[uint32]error{3: routertest.ErrAway}
		verbtest.On(m.Broker, broker.RecordNotices, func(_ context.Context, q broker.GroupNotices) (verb.Nothing, error) {
			s.Note("%d notices in %d", len(q.Notices), q.Shard)
			return verb.Nothing{}, errs[q.Shard]
		})
		verbtest.On(m.Broker, broker.OperateTask, func(_ context.Context, q broker.TaskCommand) (out broker.Shown[*broker.View],
			err error) {
			s.Note("%s by %d in %d", q.Verb, q.Message[15], q.ID.Shard())
			return out, errs[q.ID.Shard()]
		})
		notice := func(shard uint32) *broker.OutboxMessage {
			return &broker.OutboxMessage{Notice: &broker.Notice{Group: task.NewID(shard, 1, 1)}}
		}
		job := func(typ string) *broker.OutboxMessage {
			return &broker.OutboxMessage{Spec: task.Spec{Type: typ, Queue: "one"}}
		}
		s.Refused["bad"], s.Fails = routertest.ErrAway, routertest.ErrAway
		order := func(request byte, shard uint32) *broker.OutboxMessage {
			return &broker.OutboxMessage{Request: task.ID{15: request}, Cancel: task.NewID(shard, 1, 1)}
		}
		messages := []*broker.OutboxMessage{notice(2), job("job"), order(8, 2), notice(3), {Notification: &task.Notification{}}, job("bad"),
			notice(2), order(9, 3)}
		out := m.Outbox.Send(context.Background(), routertest.Namespace, messages)
		all := strings.Split(s.Was(), ", ")
		slices.Sort(all)
		const want = "1 notices in 3, 1 notifications, 2 notices in 2, cancel by 8 in 2, cancel by 9 in 3, enqueue [job bad] in 1"
		if got := strings.Join(all, ", "); got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
		for i := range out {
			if refused := slices.Contains([]int{3, 4, 5, 7}, i); (out[i].Err != nil) != refused || i == 1 && out[i].ID.Shard() != 1 {
				t.Errorf("message %d: %+v", i, out[i])
			}
		}
		s.Fails = nil
		if out := m.Outbox.Send(context.Background(), routertest.Namespace, messages[4:5]); out[0].Err != nil ||
			s.Was() != "1 notifications" {
			t.Errorf("sending one notification: %v", out[0].Err)
		}
		if m.Outbox.Send(context.Background(), routertest.Namespace, messages[2:3]); s.Was() != "cancel by 8 in 2" {
			t.Error("sending one cancel made other calls too")
		}
	})
}
