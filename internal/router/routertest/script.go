package routertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Script is a node that leads all shards, and the system shard. It answers as a test configures it, and records the calls it gets.
type Script struct {
	Known   map[uint32]error                        // by shard: what FindGroup returns
	Joined  []broker.Joined                         // what a group's home returns
	Fails   error                                   // of CreateGroup and AddToGroup
	Refused map[string]error                        // by type: the error of a task; nil: it is created
	Gone    error                                   // of Enqueue as a whole
	Moved   func(shard uint32, spec task.Spec) bool // if set, reports which tasks a shard refuses because their slots have moved

	mu    sync.Mutex
	notes []string
}

// InScript runs a test in fake time, on one node with three data shards. The queues "one", "two" and "three" are in one shard each, in this
// order. The slots of "spread" have moved from the first shard to the second.
func InScript(t *testing.T, test func(s *Script, m *Member)) {
	InFleet(t, 1, func(f *Fleet) {
		m := f.Nodes[1]
		synctest.Wait() // the router has called Draining
		s := &Script{Refused: map[string]error{}}
		verbtest.On(m.Broker, enqueue.EnqueueTasks, s.Enqueue)
		verbtest.On(m.Broker, enqueue.CreateGroup, s.CreateGroup)
		verbtest.On(m.Broker, enqueue.FindGroup, s.FindGroup)
		verbtest.On(m.Broker, enqueue.AddToGroup, s.AddToGroup)
		verbtest.On(m.Control, queues.Place, s.place)
		verbtest.On(m.Control, webhooks.TakeNotifications, s.takeNotifications)
		for i, name := range []string{"one", "two", "three"} {
			f.AddShard(uint32(i+1), 1)
			m.Copy[name] = queues.Queue{Namespace: Namespace, Name: name, Shard: uint32(i + 1),
				Config: task.QueueConfig{Version: uint64(i + 7)}}
		}
		m.Copy["spread"] = queues.Queue{Namespace: Namespace, Name: "spread",
			Parts: []queues.Part{{Shard: 1, Left: task.AllSlots, Recent: true},
				{Shard: 2, Slots: task.AllSlots, Next: task.AllSlots}}}
		test(s, m)
	})
}

// Note records a call.
func (s *Script) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// Was returns the calls since Was was last called.
func (s *Script) Was() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.notes = nil }()
	return strings.Join(s.notes, ", ")
}

// At returns a stamp of a shard.
func At(shard uint32) broker.Stamp { return broker.Stamp{Shard: shard, Index: 5, Term: 1} }

// CreateGroup answers the verb of that name, as the methods below do.
func (s *Script) CreateGroup(_ context.Context, q enqueue.NewGroup) (out enqueue.GroupCreated, err error) {
	s.Note("make in %d with %v", q.Shard, q.Queues)
	out.Made.Tasks, out.At = slices.Clone(s.Joined), At(q.Shard)
	return out, s.Fails
}

func (s *Script) FindGroup(_ context.Context, q enqueue.NewGroup) (out enqueue.GroupCreated, err error) {
	s.Note("find in %d", q.Shard)
	err, known := s.Known[q.Shard]
	if !known {
		err = task.NotFound("group", q.Group.RequestID.String())
	}
	out.Made.Duplicate, out.At = err == nil, At(q.Shard)
	return out, err
}

func (s *Script) AddToGroup(_ context.Context, q enqueue.NewMembers) (out enqueue.MembersAdded, err error) {
	s.Note("add %d in %d with %v", len(q.Tasks), q.ID.Shard(), q.Queues)
	out.Joined, out.At = slices.Clone(s.Joined[:min(len(s.Joined), len(q.Tasks))]), At(q.ID.Shard())
	return out, s.Fails
}

func (s *Script) Enqueue(_ context.Context, q enqueue.Enqueueing) (out enqueue.TasksEnqueued, err error) {
	types := make([]string, len(q.Specs))
	out.Out, out.At = make([]broker.Enqueued, len(q.Specs)), At(q.Shard)
	for i, spec := range q.Specs {
		types[i] = spec.Type
		to := &out.Out[i]
		if to.Err = s.Refused[spec.Type]; s.Moved != nil && s.Moved(q.Shard, spec) {
			to.Err = broker.ErrSlotMoved
		}
		if to.Err == nil {
			to.ID, to.State = task.NewID(q.Shard, 1, uint64(i+1)), task.Ready
		}
		to.KeyTaken = strings.HasPrefix(spec.Type, "met") // another task has its unique key
	}
	s.Note("enqueue %v in %d", types, q.Shard)
	return out, s.Gone
}

func (s *Script) place(_ context.Context, q queues.Name) (queues.Queue, error) {
	s.Note("place %s", q.Name)
	if q.Name == "none" {
		return queues.Queue{}, ErrAway
	}
	return queues.Queue{Name: q.Name, Shard: 3}, nil
}

func (s *Script) takeNotifications(_ context.Context, q webhooks.Notifications) (none verb.Nothing, err error) {
	s.Note("%d notifications", len(q.All))
	return none, s.Fails
}

// ErrAway is the error of what can't be reached, and Asked is the id of a request.
var (
	ErrAway = task.Unavailable(time.Second, "nobody leads")
	Asked   = task.NewID(9, 9, 9)
)

// Hang returns a function for verbtest.Answers.Before: one shard does not answer, and the others do; 0: no shard does.
func Hang(shard uint32) func(context.Context, verb.Call) error {
	return func(ctx context.Context, c verb.Call) error {
		if shard != 0 && c.Shard() != shard {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}
