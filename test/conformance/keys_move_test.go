package conformance

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// keyed does random things with tasks that have keys, one after the other or several at once, while the slots of their
// queues move back and forth. It judges what it sees after each step.
type keyed struct {
	*testing.T
	h    *testNode
	rpc  *rpc
	seed uint64
	rnd  *rand.Rand

	parents []string // a queue in each shard, whose tasks have follow-ups in the queues that move
	held    []*pawlv1.ClaimedTask
	first   map[string]*pawlv1.Enqueued // by idempotency key: the answer that created its task
	order   map[string]int              // task id → its number among the tasks of callers that run in the order of their key
	started map[string]int              // by key and shard: the highest of these numbers that has started
	number  int                         // of the last of them
	deleted time.Time                   // when the other queue was deleted: it has forgotten its keys
	seen    map[string]int              // how often something happened
}

const (
	keyedShards = 3
	keyedSteps  = 130
)

// Whoever makes a task and wherever slots move: a unique key has one holder, an idempotency key one task, and the tasks
// of a key start in their order, as far as they are in one shard.
func TestKeysWhileSlotsMove(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]int{}
	for seed := range seeds(3, 5) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, keyedShards, filepath.Join(dir, fmt.Sprint(seed)))
			m := &keyed{T: t, h: h, rpc: newRPC(t, h), seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)),
				first: map[string]*pawlv1.Enqueued{}, order: map[string]int{}, started: map[string]int{}, seen: seen}
			m.begin()
			for step := range keyedSteps {
				if step == keyedSteps/2 && seed == 0 {
					time.Sleep(task.MovedMessageWindow + queues.RetireEvery) // the moves so far are forgotten
				}
				m.step()
				synctest.Wait()
				m.judge(step)
				if t.Failed() {
					return
				}
			}
		})
	}
	t.Logf("seen: %v", seen)
	for _, what := range []string{"tick", "follow-up", "member", "trigger", "move of slots", "task that waits behind another",
		"duplicate by idempotency key", "replay", "operation", "keys in different slots", "move of slots, at once", "follow-up, at once",
		"pause"} {
		if seen[what] == 0 && !t.Failed() {
			t.Errorf("%s: was never seen", what)
		}
	}
}

// begin creates a queue in each shard, and schedules that compete for unique keys with everybody else.
func (m *keyed) begin() {
	in := map[uint32]bool{}
	for i := 0; len(in) < keyedShards; i++ {
		q, err := m.h.router.Queues.Place(m.Context(), namespace, fmt.Sprint("parents-", i))
		if must(m.T, err); !in[q.Shard] {
			in[q.Shard] = true
			m.parents = append(m.parents, q.Name)
		}
	}
	for i, s := range []*pawlv1.ScheduleSpec{
		{Overlap: pawlv1.Overlap_OVERLAP_SKIP, Task: &pawlv1.TaskSpec{Type: "tick"}},
		{Task: &pawlv1.TaskSpec{Type: "tick", Unique: &pawlv1.Unique{Key: new("{a}u")}}},
		{Task: &pawlv1.TaskSpec{Type: "tick", Key: new("b"), Unique: &pawlv1.Unique{Key: new("{b}u"),
			OnConflict: pawlv1.OnConflict_ON_CONFLICT_KEEP_LAST}}},
	} {
		s.Name, s.Every, s.Task.Queue = fmt.Sprint("s", i), durationpb.New(time.Duration(20+7*i)*time.Minute), new("hot")
		_, err := m.rpc.schedule.PutSchedule(m.Context(), &pawlv1.PutScheduleRequest{Spec: s})
		must(m.T, err)
	}
}

func (m *keyed) step() {
	switch m.rnd.IntN(31) {
	default:
		m.atOnce()
	case 23:
		m.discard()
	case 24:
		m.pause()
	case 25:
		m.delete()
	case 0, 1, 2:
		m.enqueue(1)
	case 3, 4, 5:
		m.enqueue(2 + m.rnd.IntN(3))
	case 6, 7:
		m.follow()
	case 8:
		m.group()
	case 9:
		_, err := m.rpc.schedule.TriggerSchedule(m.Context(), &pawlv1.TriggerScheduleRequest{Name: fmt.Sprint("s", m.rnd.IntN(3))})
		m.note("trigger", err)
	case 10, 11, 12:
		m.spread()
	case 13, 14:
		m.claim()
	case 15, 16, 17:
		m.settle()
	case 18:
		m.replay()
	case 19:
		m.operate()
	case 20:
		time.Sleep(time.Duration(m.rnd.IntN(30)) * time.Minute)
	case 21:
		time.Sleep(time.Duration(1+m.rnd.IntN(60)) * time.Second)
	case 22:
		time.Sleep(2 * time.Hour)
	}
}

// atOnce does several things at the same time. What it enqueues has no order.
func (m *keyed) atOnce() {
	var calls sync.WaitGroup
	all := make([]*keyed, 2+m.rnd.IntN(4))
	for i := range all {
		one := &keyed{T: m.T, h: m.h, rpc: m.rpc, seed: m.seed, rnd: rand.New(rand.NewPCG(m.seed, m.rnd.Uint64())),
			parents: m.parents, // #nosec G404
			first:   map[string]*pawlv1.Enqueued{}, order: map[string]int{}, seen: map[string]int{}}
		all[i] = one
		calls.Go(func() {
			time.Sleep(time.Duration(one.rnd.IntN(3)) * time.Millisecond)
			switch one.rnd.IntN(9) {
			case 0, 1:
				one.spread()
			case 2, 3:
				one.enqueue(1 + one.rnd.IntN(3))
			case 4, 5:
				one.follow()
			case 6:
				one.group()
			case 7:
				one.replay()
			case 8:
				one.operate()
			}
		})
	}
	calls.Wait()
	clear(m.order) // replayed tasks lose their places
	for _, one := range all {
		for what, n := range one.seen {
			m.seen[what] += n
			m.seen[what+", at once"] += n
		}
	}
}

// discard discards the dead letters.
func (m *keyed) discard() {
	for _, queue := range []string{"hot", "warm"} {
		m.discardDead(queue)
	}
}

// discardDead discards the dead letters of a queue, unless too many operations wait.
func (m *keyed) discardDead(queue string) {
	dead := filter{Queue: queue, States: []string{"dead"}}
	if o, err := m.rpc.StartOperation(m.Context(), operation{Action: "discard", Filter: dead}); err == nil {
		_, _ = m.rpc.Operation(m.Context(), o.ID, 20*second)
	}
}

// pause pauses or resumes a queue.
func (m *keyed) pause() {
	if m.rnd.IntN(3) > 0 {
		_, err := m.rpc.operator.PauseQueue(m.Context(), &pawlv1.PauseQueueRequest{Queue: "hot"})
		m.note("pause", err)
		m.spread()
	}
	_, _ = m.rpc.operator.ResumeQueue(m.Context(), &pawlv1.ResumeQueueRequest{Queue: "hot"})
}

// delete deletes the other queue. That frees its idempotency keys.
func (m *keyed) delete() {
	for _, t := range m.list(nil) {
		if t.GetQueue() == "warm" && t.GetEndedAt() == nil {
			_, _ = m.rpc.producer.CancelTask(m.Context(), &pawlv1.CancelTaskRequest{TaskId: t.GetTaskId()})
		}
	}
	m.discardDead("warm")
	if _, err := m.rpc.operator.DeleteQueue(m.Context(), &pawlv1.DeleteQueueRequest{Queue: "warm"}); err != nil {
		return
	}
	m.seen["deleted queue"]++
	m.deleted = time.Now()
	for name := range m.first {
		if strings.HasPrefix(name, "warm") {
			delete(m.first, name)
		}
	}
}

func (m *keyed) note(what string, err error) {
	if err == nil {
		m.seen[what]++
	}
}

// spec returns a random task. Most have keys in one slot, as a queue in several shards requires.
func (m *keyed) spec() *pawlv1.TaskSpec {
	tag := string(rune('a' + m.rnd.IntN(3)))
	s := &pawlv1.TaskSpec{Type: "t", Queue: new("hot"), Payload: []byte("1"), Retention: durationpb.New(5 * time.Hour)}
	if m.rnd.IntN(8) == 0 {
		s.Queue = new("warm")
	}
	if m.rnd.IntN(2) == 0 {
		s.Key = text(tag)
	}
	if m.rnd.IntN(2) == 0 {
		s.Unique = &pawlv1.Unique{Key: new(fmt.Sprintf("{%s}u", tag)), OnConflict: pawlv1.OnConflict(1 + m.rnd.IntN(4))}
		if m.rnd.IntN(12) == 0 {
			s.Unique.Key = new("u")
		}
	}
	if m.rnd.IntN(3) == 0 {
		s.IdempotencyKey = new(fmt.Sprintf("{%s}%d", tag, m.rnd.IntN(3)))
		if m.rnd.IntN(12) == 0 {
			s.IdempotencyKey = new("i0")
		}
		s.IdempotencyTtl = durationpb.New(m.known(s.GetIdempotencyKey()))
	}
	return s
}

// known returns how long an idempotency key is remembered: less than a task is kept.
func (m *keyed) known(key string) time.Duration {
	return time.Duration(1+int(key[len(key)-1])%3) * 30 * time.Minute
}

// enqueue enqueues a batch, half of the time one of a single key.
func (m *keyed) enqueue(n int) {
	specs := make([]*pawlv1.TaskSpec, n)
	for i := range specs {
		if specs[i] = m.spec(); i > 0 && m.rnd.IntN(2) == 0 {
			specs[i].Queue, specs[i].Key = specs[0].Queue, specs[0].Key
		}
		if slices.ContainsFunc(specs[:i], func(s *pawlv1.TaskSpec) bool { return s.GetIdempotencyKey() == specs[i].GetIdempotencyKey() }) {
			specs[i].IdempotencyKey, specs[i].IdempotencyTtl = nil, nil
		}
	}
	out, err := m.rpc.producer.EnqueueBatch(m.Context(), &pawlv1.EnqueueBatchRequest{Tasks: specs})
	must(m.T, err)
	for i, r := range out.GetResults() {
		m.enqueued(specs[i], r.GetTask(), r.GetError())
	}
}

func (m *keyed) enqueued(s *pawlv1.TaskSpec, got *pawlv1.Enqueued, refused *pawlv1.Error) {
	first := m.first[s.GetQueue()+s.GetIdempotencyKey()]
	live := s.GetIdempotencyKey() != "" && first != nil && time.Since(first.GetCreatedAt().AsTime()) < s.GetIdempotencyTtl().AsDuration()
	switch {
	case refused.GetCode() == "invalid_argument":
		m.seen["keys in different slots"]++
	case refused.GetCode() == "conflict":
	// the shard that its slot has left has the holder
	case refused.GetCode() == "unavailable" && s.GetUnique() != nil && s.GetIdempotencyKey() != "":
	case refused != nil:
		m.Errorf("seed %d: %v is refused: %v", m.seed, s, refused)
	case live && (got.GetTaskId() != first.GetTaskId() || !got.GetDuplicate()):
		m.Errorf("seed %d: idempotency key %q stands for task %s, and again for %v: %v", m.seed, s.GetIdempotencyKey(),
			first.GetTaskId(), got, s)
	case live:
		m.seen["duplicate by idempotency key"]++
	case got.GetDuplicate(): // by its unique key, or an idempotency key of another task that the broker made
	default:
		if s.GetIdempotencyKey() != "" {
			m.first[s.GetQueue()+s.GetIdempotencyKey()] = got
		}
		if s.GetKey() != "" && s.GetUnique() == nil {
			m.number++
			m.order[got.GetTaskId()] = m.number
		}
	}
}

// follow enqueues a task in some shard and acks it, which creates two tasks here or elsewhere.
func (m *keyed) follow() {
	queue := m.parents[m.rnd.IntN(keyedShards)]
	spec := &pawlv1.TaskSpec{Type: "parent", Queue: text(queue), Then: []*pawlv1.TaskSpec{m.spec(), m.spec()}}
	_, err := m.rpc.producer.Enqueue(m.Context(), &pawlv1.EnqueueRequest{Task: spec})
	must(m.T, err)
	got, err := m.rpc.worker.Claim(m.Context(), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: queue}}, Max: 1, Worker: "w"})
	must(m.T, err)
	for _, c := range got.GetTasks() {
		_, err = m.rpc.worker.Ack(m.Context(), &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
		m.note("follow-up", err)
	}
}

// group creates a group in some shard whose members go to the queues that move, and their follow-ups too.
func (m *keyed) group() {
	home := &pawlv1.TaskSpec{Type: "member", Queue: new(m.parents[m.rnd.IntN(keyedShards)])}
	_, err := m.rpc.group.CreateGroup(m.Context(), &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{home, m.spec(), m.spec()},
		OnDeath: m.spec()})
	m.note("member", err)
}

func (m *keyed) spread() {
	var onto []uint32
	for _, shard := range m.rnd.Perm(keyedShards)[:1+m.rnd.IntN(keyedShards)] {
		onto = append(onto, uint32(shard+dataShard)) // #nosec G115 -- a few
	}
	queue := "hot"
	if m.rnd.IntN(8) == 0 {
		queue = "warm"
	}
	_, err := m.h.router.Queues.Spread(m.Context(), task.Author{}, namespace, queue, queues.SpreadTarget{Shards: onto, Force: true})
	m.note("move of slots", err)
}

func (m *keyed) claim() {
	got, err := m.rpc.worker.Claim(m.Context(), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}, {Queue: "warm"}},
		Max: int32(1 + m.rnd.IntN(4)), Worker: "w", Lease: durationpb.New(time.Duration(1+m.rnd.IntN(200)) * time.Minute)})
	must(m.T, err)
	for _, c := range got.GetTasks() {
		m.start(c)
		m.held = append(m.held, c)
	}
}

// start checks the order of a key within a shard. A task that ran before has lost its place.
func (m *keyed) start(c *pawlv1.ClaimedTask) {
	n, ordered := m.order[c.GetTaskId()]
	if !ordered {
		return
	}
	delete(m.order, c.GetTaskId())
	id, err := task.ParseID(c.GetTaskId())
	must(m.T, err)
	at := fmt.Sprint(c.GetQueue(), c.GetKey(), id.Shard())
	if n < m.started[at] {
		m.Errorf("seed %d: task %s of key %q starts after a later one", m.seed, c.GetTaskId(), c.GetKey())
	}
	m.started[at] = n
}

// settle ends some claims. Those that are too old are refused.
func (m *keyed) settle() {
	for len(m.held) > 0 && m.rnd.IntN(4) > 0 {
		i := m.rnd.IntN(len(m.held))
		c := m.held[i]
		m.held = slices.Delete(m.held, i, i+1)
		ctx := m.Context()
		switch m.rnd.IntN(5) {
		case 0, 1:
			_, _ = m.rpc.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
		case 2:
			_, _ = m.rpc.worker.Release(ctx, &pawlv1.ReleaseRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
		default:
			_, _ = m.rpc.worker.Fail(ctx, &pawlv1.FailRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken(),
				Outcome: pawlv1.FailOutcome(1 + m.rnd.IntN(3)), Error: &pawlv1.TaskError{Message: "boom"}})
		}
	}
}

// replay cancels a task, or replays one that has ended.
func (m *keyed) replay() {
	items := m.list(nil)
	for _, i := range m.rnd.Perm(len(items)) {
		t := items[i]
		if t.GetUnique() != nil && m.rnd.IntN(3) > 0 { // most replays of these are refused
			continue
		}
		switch {
		case t.GetState() == pawlv1.State_STATE_DEAD, t.GetState() == pawlv1.State_STATE_CANCELLED:
			_, err := m.rpc.operator.RetryTask(m.Context(), &pawlv1.RetryTaskRequest{TaskId: t.GetTaskId()})
			m.note("replay", err)
			return
		case t.GetEndedAt() == nil && m.rnd.IntN(2) == 0:
			delete(m.order, t.GetTaskId()) // it may be replayed
			_, _ = m.rpc.producer.CancelTask(m.Context(), &pawlv1.CancelTaskRequest{TaskId: t.GetTaskId()})
			return
		}
	}
}

// operate replays all dead tasks, or moves those that wait to the other queue.
func (m *keyed) operate() {
	from, to := "hot", "warm"
	if m.rnd.IntN(2) == 0 {
		from, to = to, from
	}
	clear(m.order) // a task that comes back loses its place
	spec := &pawlv1.OperationSpec{Action: pawlv1.Action_ACTION_MOVE, ToQueue: text(to), Filter: &pawlv1.Filter{Queue: text(from)}}
	if m.rnd.IntN(2) == 0 {
		spec = &pawlv1.OperationSpec{Action: pawlv1.Action_ACTION_REPLAY, Filter: &pawlv1.Filter{Queue: text(from)}}
	}
	_, err := m.rpc.mass.StartOperation(m.Context(), &pawlv1.StartOperationRequest{Spec: spec})
	m.note("operation", err)
	if m.rnd.IntN(2) == 0 {
		m.spread()
	}
}

func (m *keyed) list(states []pawlv1.State) (items []*pawlv1.Task) {
	for _, queue := range []string{"hot", "warm"} {
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := m.rpc.producer.ListTasks(m.Context(), &pawlv1.ListTasksRequest{Filter: &pawlv1.Filter{Queue: text(queue),
				States: states},
				Limit: 1000, Cursor: cursor})
			must(m.T, err)
			items, cursor = append(items, page.GetItems()...), page.GetNextCursor()
		}
	}
	return items
}

// judge looks for unique keys of two tasks, and after every few steps for idempotency keys of two.
func (m *keyed) judge(step int) {
	if step%20 == 19 {
		m.judgeIdempotency()
	}
	holders, next := map[string]*pawlv1.Task{}, map[string]*pawlv1.Task{}
	for _, t := range m.list([]pawlv1.State{pawlv1.State_STATE_SCHEDULED, pawlv1.State_STATE_READY, pawlv1.State_STATE_CLAIMED,
		pawlv1.State_STATE_RETRYING}) {
		if t.GetUnique() == nil {
			continue
		}
		if t.GetType() == "tick" {
			m.seen["tick"]++
		}
		at, roles := t.GetQueue()+t.GetUnique().GetKey(), holders
		if t.GetWaitsFor() != "" {
			m.seen["task that waits behind another"]++
			roles = next
		}
		if other := roles[at]; other != nil {
			m.Errorf("seed %d: unique key %q of queue %q has two tasks: %v and %v", m.seed, t.GetUnique().GetKey(), t.GetQueue(), t, other)
		}
		roles[at] = t
	}
}

func (m *keyed) judgeIdempotency() {
	keys := map[string][]*pawlv1.Task{}
	for _, t := range m.list(nil) {
		key := t.GetIdempotencyKey()
		switch {
		case key == "",
			t.GetQueue() == "warm" && !t.GetCreatedAt().AsTime().After(m.deleted):
			continue
		}
		at := t.GetQueue() + key
		for _, other := range keys[at] {
			if d := t.GetCreatedAt().AsTime().Sub(other.GetCreatedAt().AsTime()).Abs(); d < m.known(key) {
				m.Errorf("seed %d: idempotency key %q has two tasks, created within %s: %v and %v", m.seed, key, d, t, other)
			}
		}
		keys[at] = append(keys[at], t)
	}
}
