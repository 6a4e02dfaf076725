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
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Script is the broker of a node that leads all shards. It answers as a test configures it, and records the calls it gets.
type Script struct {
	FakeBroker
	Answers verbtest.Answers
	Known   map[uint32]error                        // by shard: what FindGroup returns
	Joined  []broker.Joined                         // what a group's home returns
	Fails   error                                   // of MakeGroup and AddToGroup
	Refused map[string]error                        // by type: the error of a task; nil: it is created
	Gone    error                                   // of Enqueue as a whole
	Moved   func(shard uint32, spec task.Spec) bool // if set, reports which tasks a shard refuses because their slots have moved

	mu    sync.Mutex
	notes []string
}

// ScriptControl is the matching system shard.
type ScriptControl struct {
	FakeControl
	*Script
}

// InScript runs a test in fake time, on one node with three data shards. The queues "one", "two" and "three" are in one shard each, in this
// order. The slots of "spread" have moved from the first shard to the second.
func InScript(t *testing.T, test func(s *Script, m *Member)) {
	InFleet(t, 1, func(f *Fleet) {
		m := f.Nodes[1]
		synctest.Wait() // the router has called Draining
		s := &Script{FakeBroker: FakeBroker{M: m}, Answers: verbtest.Answers{}, Refused: map[string]error{}}
		m.UseBroker(s)
		m.UseControl(ScriptControl{FakeControl{M: m}, s})
		for i, name := range []string{"one", "two", "three"} {
			f.AddShard(uint32(i+1), 1)
			m.Copy[name] = queues.Queue{Namespace: Namespace, Name: name, Shard: uint32(i + 1), Config: task.QueueConfig{Version: uint64(i + 7)}}
		}
		m.Copy["spread"] = queues.Queue{Namespace: Namespace, Name: "spread", Parts: []queues.Part{{Shard: 1, Left: task.AllSlots, Recent: true},
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

func (s *Script) Do(ctx context.Context, c verb.Call) error { return s.Answers.Do(ctx, c) }

func (s ScriptControl) Do(ctx context.Context, c verb.Call) error { return s.FakeControl.Do(ctx, c) }

func (s *Script) MakeGroup(_ context.Context, shard uint32, _ string, _ task.Group, queues []string) (broker.GroupMade,
	broker.Stamp, error) {
	s.Note("make in %d with %v", shard, queues)
	return broker.GroupMade{Tasks: slices.Clone(s.Joined)}, At(shard), s.Fails
}

func (s *Script) FindGroup(_ context.Context, shard uint32, _ string, g task.Group) (broker.GroupMade, broker.Stamp, error) {
	s.Note("find in %d", shard)
	err, known := s.Known[shard]
	if !known {
		err = task.NotFound("group", g.RequestID.String())
	}
	return broker.GroupMade{Duplicate: err == nil}, At(shard), err
}

func (s *Script) AddToGroup(_ context.Context, _ string, id task.ID, tasks []task.Spec, queues []string) ([]broker.Joined,
	broker.Stamp, error) {
	s.Note("add %d in %d with %v", len(tasks), id.Shard(), queues)
	return slices.Clone(s.Joined[:min(len(s.Joined), len(tasks))]), At(id.Shard()), s.Fails
}

func (s *Script) Enqueue(_ context.Context, shard uint32, _ string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	types := make([]string, len(specs))
	out := make([]broker.Enqueued, len(specs))
	for i, spec := range specs {
		types[i] = spec.Type
		if out[i].Err = s.Refused[spec.Type]; s.Moved != nil && s.Moved(shard, spec) {
			out[i].Err = broker.ErrSlotMoved
		}
		if out[i].Err == nil {
			out[i].ID, out[i].State = task.NewID(shard, 1, uint64(i+1)), task.Ready
		}
	}
	for i := range out { // another task has its unique key
		out[i].KeyTaken = strings.HasPrefix(types[i], "met")
	}
	s.Note("enqueue %v in %d", types, shard)
	return out, At(shard), s.Gone
}

func (s ScriptControl) Place(_ context.Context, _, name string) (queues.Queue, error) {
	s.Note("place %s", name)
	if name == "none" {
		return queues.Queue{}, ErrAway
	}
	return queues.Queue{Name: name, Shard: 3}, nil
}

// ErrAway is the error of what can't be reached, and Asked is the id of a request.
var (
	ErrAway = task.Unavailable(time.Second, "nobody leads")
	Asked   = task.NewID(9, 9, 9)
)

func (s ScriptControl) TakeNotifications(_ context.Context, _ string, notifications []*task.Notification) error {
	s.Note("%d notifications", len(notifications))
	return s.Fails
}
