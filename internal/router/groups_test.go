package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// scripted is the broker of a node that leads all shards. It answers as a test says, and records what it was asked.
type scripted struct {
	fakeBroker
	answers verbtest.Answers
	known   map[uint32]error                        // by shard: what FindGroup returns
	joined  []broker.Joined                         // what a group's home answers
	fails   error                                   // of MakeGroup and AddToGroup
	refused map[string]error                        // by type: the error of a task; nil: it is created
	gone    error                                   // of Enqueue as a whole
	moved   func(shard uint32, spec task.Spec) bool // if set: tasks whose slots a shard does not take

	mu    sync.Mutex
	notes []string
}

// scriptedSystem is the system shard that goes with it.
type scriptedSystem struct {
	fakeControl
	*scripted
}

// inScript runs a test on one node with three data shards, whose queues are "one", "two" and "three" after them, and "spread", whose slots
// have moved from the first to the second.
func inScript(t *testing.T, test func(s *scripted, m *member)) {
	inFleet(t, 1, func(f *fleet) {
		m := f.nodes[1]
		synctest.Wait() // the router has called Draining
		s := &scripted{fakeBroker: fakeBroker{m: m}, answers: verbtest.Answers{}, refused: map[string]error{}}
		m.cfg.Broker, m.cfg.Control = s, scriptedSystem{fakeControl{m: m}, s}
		for i, name := range []string{"one", "two", "three"} {
			f.shard(uint32(i+1), 1)
			m.copy[name] = queues.Queue{Namespace: ns, Name: name, Shard: uint32(i + 1), Config: task.QueueConfig{Version: uint64(i + 7)}}
		}
		m.copy["spread"] = queues.Queue{Namespace: ns, Name: "spread", Parts: []queues.Part{{Shard: 1, Left: task.AllSlots, Recent: true}, {Shard: 2, Slots: task.AllSlots, Next: task.AllSlots}}}
		test(s, m)
	})
}

func (s *scripted) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// was returns what was asked since the last call.
func (s *scripted) was() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.notes = nil }()
	return strings.Join(s.notes, ", ")
}

func at(shard uint32) broker.Stamp { return broker.Stamp{Shard: shard, Index: 5, Term: 1} }

func (s *scripted) Do(ctx context.Context, c verb.Call) error { return s.answers.Do(ctx, c) }

func (s *scripted) MakeGroup(_ context.Context, shard uint32, _ string, _ task.Group, queues []string) (broker.GroupMade, broker.Stamp, error) {
	s.note("make in %d with %v", shard, queues)
	return broker.GroupMade{Tasks: slices.Clone(s.joined)}, at(shard), s.fails
}

func (s *scripted) FindGroup(_ context.Context, shard uint32, _ string, g task.Group) (broker.GroupMade, broker.Stamp, error) {
	s.note("find in %d", shard)
	err, known := s.known[shard]
	if !known {
		err = task.NotFound("group", g.RequestID.String())
	}
	return broker.GroupMade{Duplicate: err == nil}, at(shard), err
}

func (s *scripted) AddToGroup(_ context.Context, _ string, id task.ID, tasks []task.Spec, queues []string) ([]broker.Joined, broker.Stamp, error) {
	s.note("add %d in %d with %v", len(tasks), id.Shard(), queues)
	return slices.Clone(s.joined[:min(len(s.joined), len(tasks))]), at(id.Shard()), s.fails
}

func (s *scripted) Enqueue(_ context.Context, shard uint32, _ string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	types := make([]string, len(specs))
	out := make([]broker.Enqueued, len(specs))
	for i, spec := range specs {
		types[i] = spec.Type
		if out[i].Err = s.refused[spec.Type]; s.moved != nil && s.moved(shard, spec) {
			out[i].Err = broker.ErrSlotMoved
		}
		if out[i].Err == nil {
			out[i].ID, out[i].State = task.NewID(shard, 1, uint64(i+1)), task.Ready
		}
	}
	for i := range out { // another task has its unique key
		out[i].KeyTaken = strings.HasPrefix(types[i], "met")
	}
	s.note("enqueue %v in %d", types, shard)
	return out, at(shard), s.gone
}

func (s scriptedSystem) Place(_ context.Context, _, name string) (queues.Queue, error) {
	s.note("place %s", name)
	if name == "none" {
		return queues.Queue{}, errAway
	}
	return queues.Queue{Name: name, Shard: 3}, nil
}

var (
	errAway = task.Unavailable(time.Second, "nobody leads")
	asked   = task.NewID(9, 9, 9)
)

// A group is created where its first task goes, and its home gets the copies of queues that it needs. A repeated request is looked for
// where its slot was before.
func TestAGroupIsMadeWhereItsFirstTaskGoes(t *testing.T) {
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
		{"a queue that can't be placed is no reason to wait", task.Group{Tasks: tasks("two", "none")}, nil, "place none, make in 2 with [two]", nil},
		{"none at the beginning", task.Group{OnComplete: &task.Spec{Queue: "one"}}, nil, "make in 1 with []", nil},
		{"nothing but a group", task.Group{Open: true}, nil, "place default, make in 3 with []", nil},
		{"its queue can't be placed", task.Group{Tasks: tasks("none")}, nil, "place none", errAway},
		{"its slot has moved", task.Group{Tasks: tasks("spread"), RequestID: asked}, nil, "find in 1, make in 2 with [spread]", nil},
		{"and the request came before that", task.Group{Tasks: tasks("spread"), RequestID: asked}, map[uint32]error{1: nil}, "find in 1", nil},
		{"or nobody can say", task.Group{Tasks: tasks("spread"), RequestID: asked}, map[uint32]error{1: errAway}, "find in 1", errAway},
		{"nobody asks twice without a request", task.Group{Tasks: []task.Spec{{Queue: "spread", Key: "k"}}}, nil, "make in 2 with [spread]", nil},
		{"a queue in one shard", task.Group{Tasks: tasks("one"), RequestID: asked}, nil, "make in 1 with [one]", nil},
	} {
		inScript(t, func(s *scripted, m *member) {
			s.known = c.known
			made, stamp, err := m.MakeGroup(context.Background(), ns, c.group)
			_, found := c.known[1]
			if got := s.was(); got != c.want || !errors.Is(err, c.err) || made.Duplicate != (found && err == nil) || err == nil && stamp.Index == 0 {
				t.Errorf("%s: %s, at %+v, %v; want %s, %v", c.name, got, stamp, err, c.want, c.err)
			}
		})
	}
	inScript(t, func(s *scripted, m *member) {
		s.fails, s.joined = errAway, []broker.Joined{sent("job", "one")}
		if _, _, err := m.MakeGroup(context.Background(), ns, task.Group{Tasks: tasks("two")}); !errors.Is(err, errAway) || s.was() != "make in 2 with [two]" {
			t.Errorf("a group that was not made: %v", err)
		}
	})
}

// sent is a member that its group's home has put in transit.
func sent(typ, queue string) broker.Joined {
	return broker.Joined{Accepted: broker.Accepted{ID: asked}, Message: &broker.OutboxMessage{Spec: task.Spec{Type: typ, Queue: queue, Priority: task.Normal}}}
}

// A member that another shard takes or refuses gets that result; one that can't be delivered now stays in transit.
func TestMembersAreBroughtToTheirShards(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		s.refused = map[string]error{"bad": task.Invalid("type", "is bad"), "full": &task.Error{Code: task.CodeQueueFull}, "away": errAway, "odd": errors.New("odd")}
		here := broker.Joined{Accepted: broker.Accepted{ID: task.NewID(2, 2, 2), State: task.Claimed}}
		s.joined = []broker.Joined{here, sent("job", "one"), sent("bad", "one"), sent("full", "one"), sent("away", "one"), sent("odd", "one"), sent("job", "three")}
		made, _, err := m.MakeGroup(context.Background(), ns, task.Group{Tasks: []task.Spec{{Queue: "two"}}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"00000002 claimed, <nil>", "00000001 ready, <nil>", "refused", "on its way", "on its way", "on its way", "00000003 ready, <nil>"} {
			j := made.Tasks[i]
			got := fmt.Sprintf("%08d %s, %v", j.ID.Shard(), j.State, j.Err)
			switch {
			case j.Message != nil:
				got = "on its way"
			case errors.Is(j.Err, task.ErrInvalidArgument):
				got = "refused"
			}
			if got != want || j.Message != nil && (j.Err != nil || j.ID != asked) {
				t.Errorf("member %d: %s, want %s: %+v", i, got, want, j)
			}
		}
	})
}

// New members each have their own result.
func TestMembersOfAGroup(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		group := task.NewID(2, 1, 1)
		seen := &broker.GroupView{}
		var unseen error
		verbtest.On(s.answers, broker.ShowGroup, func(_ context.Context, q *broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
			s.note("group in %d", q.TargetShard())
			return broker.Shown[*broker.GroupView]{View: seen, Stamped: broker.Stamped{At: at(2)}}, unseen
		})
		s.refused = map[string]error{"away": errAway}
		before := m.f.shards[3].add()
		m.f.shards[3].tasks[before].state = task.Cancelled
		double := func(id task.ID) broker.Joined {
			return broker.Joined{Accepted: broker.Accepted{ID: id, Duplicate: true, State: task.Ready}}
		}
		s.joined = []broker.Joined{sent("away", "one"), {Err: errAway}, double(before), double(task.NewID(3, 1, 77)), double(task.NewID(2, 1, 8)), {Accepted: broker.Accepted{ID: before, State: task.Ready}}}
		specs := make([]task.Spec, len(s.joined))
		for i := range specs {
			specs[i].Queue = "two"
		}
		out, stamp, err := m.AddToGroup(context.Background(), ns, group, specs)
		if err != nil || stamp.Shard != 2 || s.was() != "add 6 in 2 with [two], enqueue [away] in 1" {
			t.Fatalf("at %+v, %v", stamp, err)
		}
		if e := out[0].Err; !errors.Is(e, task.ErrUnavailable) || !strings.Contains(e.Error(), "on its way to queue \"two\"") || out[0].ID != asked {
			t.Errorf("one on its way: %+v", out[0])
		}
		if out[1].Err == nil {
			t.Errorf("one that was refused: %+v", out[1])
		}
		for i, want := range map[int]task.State{2: task.Cancelled, 3: task.Ready, 4: task.Ready, 5: task.Ready} {
			if out[i].Err != nil || out[i].State != want {
				t.Errorf("member %d: %+v, want it %s", i, out[i], want)
			}
		}

		// A queue that does not exist is created for a group that takes members.
		for _, c := range []struct {
			ended broker.Time
			err   error
			want  string
		}{
			{0, nil, "group in 2, place new, add 2 in 2 with [two]"}, {7, nil, "group in 2, add 2 in 2 with []"}, {0, errAway, "group in 2"},
		} {
			delete(m.copy, "new")
			seen.EndedAt, unseen = c.ended, c.err
			_, stamp, err := m.AddToGroup(context.Background(), ns, group, []task.Spec{{Queue: "two"}, {Queue: "new"}})
			if got := s.was(); !strings.HasPrefix(got, c.want) || !errors.Is(err, c.err) || stamp.Shard != 2 {
				t.Errorf("ended at %d: %s, at %+v, %v; want %s", c.ended, got, stamp, err, c.want)
			}
		}
		s.fails = errAway
		if out, stamp, err := m.AddToGroup(context.Background(), ns, group, specs); !errors.Is(err, errAway) || out != nil || stamp.Shard != 2 {
			t.Errorf("the home gives no answer: %v, at %+v, %v", out, stamp, err)
		}
		s.was()
		if _, _, err := m.AddToGroup(context.Background(), ns, task.NewID(77, 1, 1), specs); !errors.Is(err, task.ErrNotFound) || s.was() != "" {
			t.Errorf("a group in a shard that nobody has: %v", err)
		}
	})
}

// Tasks that are to become members of groups go through the groups' homes; others go along with them.
func TestMembersAmongOthers(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		one, two := task.NewID(2, 1, 1), task.NewID(3, 1, 1)
		member := func(group, ref task.ID) task.Spec {
			return task.Spec{Type: "member", Queue: "one", Member: &task.Member{Group: group, Ref: ref}}
		}
		s.joined = []broker.Joined{{Accepted: broker.Accepted{ID: task.NewID(2, 1, 7)}}, {Err: errAway}}
		for _, c := range []struct {
			specs []task.Spec
			want  string
			at    uint32
		}{
			{[]task.Spec{member(one, task.ID{}), {Type: "job", Queue: "one"}, member(one, task.ID{}), {Type: "job", Queue: "one"}}, "enqueue [job job] in 1, add 2 in 2 with []", 1},
			{[]task.Spec{member(two, task.ID{})}, "add 1 in 3 with []", 3},
			{[]task.Spec{member(one, asked)}, "enqueue [member] in 1", 1}, // its group has given it a reference
		} {
			out, stamp, err := m.Enqueue(context.Background(), 1, ns, c.specs)
			if got := s.was(); got != c.want || stamp.Shard != c.at || err != nil {
				t.Errorf("%s, at %+v, %v; want %s", got, stamp, err, c.want)
			}
			for i := range out {
				if (out[i].Err != nil) != (i == 2) || out[i].Err == nil && (out[i].ID.Shard() == 1) == isNewMember(c.specs[i]) {
					t.Errorf("%s: task %d is %+v", c.want, i, out[i])
				}
			}
		}
		s.gone = errAway
		if out, _, err := m.Enqueue(context.Background(), 1, ns, []task.Spec{{Type: "job", Queue: "one"}, member(one, task.ID{})}); err != nil || !errors.Is(out[0].Err, errAway) || out[1].Err != nil {
			t.Errorf("without the shard of the others: %+v, %v", out, err)
		}
	})
}

func (s scriptedSystem) TakeNotifications(_ context.Context, _ string, news []*task.Notification) error {
	s.note("%d notifications", len(news))
	return s.fails
}

// Messages of all kinds go where they belong, and each gets its result.
func TestAnOutboxIsSent(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		deaf := map[uint32]error{3: errAway}
		verbtest.On(s.answers, broker.RecordNotices, func(_ context.Context, q *broker.GroupNotices) (broker.Nothing, error) {
			s.note("%d notices in %d", len(q.Notices), q.Shard)
			return broker.Nothing{}, deaf[q.Shard]
		})
		verbtest.On(s.answers, broker.OperateTask, func(_ context.Context, q *broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
			s.note("%v in %d", q.Verb == broker.Cancel, q.ID.Shard())
			return out, deaf[q.ID.Shard()]
		})
		notice := func(shard uint32) *broker.OutboxMessage {
			return &broker.OutboxMessage{Notice: &broker.Notice{Group: task.NewID(shard, 1, 1)}}
		}
		job := func(typ string) *broker.OutboxMessage {
			return &broker.OutboxMessage{Spec: task.Spec{Type: typ, Queue: "one"}}
		}
		s.refused["bad"], s.fails = errAway, errAway
		messages := []*broker.OutboxMessage{notice(2), job("job"), {Cancel: task.NewID(2, 1, 1)}, notice(3), {Notification: &task.Notification{}},
			job("bad"), notice(2), {Cancel: task.NewID(3, 1, 1)}}
		out := m.SendOutbox(context.Background(), ns, messages)
		all := strings.Split(s.was(), ", ")
		slices.Sort(all)
		if want := "1 notices in 3, 1 notifications, 2 notices in 2, enqueue [job bad] in 1, true in 2, true in 3"; strings.Join(all, ", ") != want {
			t.Errorf("asked %q, want %s", all, want)
		}
		for i := range out {
			if refused := slices.Contains([]int{3, 4, 5, 7}, i); (out[i].Err != nil) != refused || i == 1 && out[i].ID.Shard() != 1 {
				t.Errorf("message %d: %+v", i, out[i])
			}
		}
		s.fails = nil
		if out := m.SendOutbox(context.Background(), ns, messages[4:5]); out[0].Err != nil || s.was() != "1 notifications" {
			t.Errorf("a notification alone: %v", out[0].Err)
		}
		if m.SendOutbox(context.Background(), ns, messages[2:3]); s.was() != "true in 2" {
			t.Error("a cancel alone brings others along")
		}
	})
}
