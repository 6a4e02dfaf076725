package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// moving is a queue whose slots keep moving, while producers enqueue and repeat themselves, and workers run tasks.
type moving struct {
	*testing.T
	h    *testNode
	rpc  *rpc
	seed uint64
	rest time.Duration // maximum time between two moves

	mu   sync.Mutex
	want map[string]string // task id → its producer
	done map[string]int    // number of acks of each
}

const (
	movingShards    = 5
	movingProducers = 6
	movingTasks     = 60 // per producer
)

// Whatever moves, each key and each request stands for one task, each task is run, and none is lost.
func TestSlotsMove(t *testing.T) {
	dir := t.TempDir()
	for seed := range seeds(2, 3) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, movingShards, dir)
			m := &moving{T: t, h: h, rpc: newRPC(t, h), seed: seed, rest: 10 * time.Minute, want: map[string]string{},
				done: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			_, err := h.router.Queues.Place(ctx, namespace, "hot")
			must(t, err)
			var producers, others sync.WaitGroup
			for n := range movingProducers {
				producers.Go(func() { m.produce(ctx, n) })
			}
			for n := range 3 {
				others.Go(func() { m.work(ctx, n) })
			}
			others.Go(func() { m.move(ctx) })
			producers.Wait()
			for range 100 {
				if m.left() == 0 {
					break
				}
				time.Sleep(time.Minute)
			}
			stop()
			others.Wait()
			m.judge()
		})
	}
}

func (m *moving) rand(kind, n int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed, uint64(kind*100+n)))
}

// produce enqueues tasks, each with a key, a request id, both or neither, and repeats enqueues within the time that a request or a key is
// remembered.
func (m *moving) produce(ctx context.Context, n int) {
	rnd := m.rand(1, n)
	var repeats sync.WaitGroup
	defer repeats.Wait()
	for i := range movingTasks {
		who := fmt.Sprintf("%d/%d", n, i)
		spec := &pawlv1.TaskSpec{Type: "t", Queue: new("hot"), Payload: []byte(`"` + who + `"`)}
		known := 9 * time.Minute // less than a request is remembered
		switch rnd.IntN(5) {
		case 0:
			spec.IdempotencyKey, known = text(who), 2*time.Hour
		case 1:
			spec.Key, known = new(fmt.Sprint(rnd.IntN(9))), 2*time.Hour
			spec.IdempotencyKey = new(task.Beside(spec.GetKey(), who))
		case 2:
			spec.RequestId = new(uuid.Must(uuid.NewRandom()).String())
		case 3:
			spec.RequestId, spec.Key = new(task.NewID(0, time.Now().UnixMilli(), rnd.Uint64()).String()), new(fmt.Sprint(rnd.IntN(9)))
		default:
			spec.RequestId = new(task.NewID(0, time.Now().UnixMilli(), rnd.Uint64()).String())
		}
		first := m.enqueue(ctx, spec)
		m.mu.Lock()
		if by, taken := m.want[first]; taken {
			m.Errorf("seed %d: task %s was returned to %s and %s", m.seed, first, by, who)
		}
		m.want[first] = who
		m.mu.Unlock()
		waits := make([]time.Duration, rnd.IntN(4))
		for i := range waits {
			waits[i] = rand.N(known) / time.Duration(len(waits))
		}
		repeats.Go(func() {
			for _, wait := range waits {
				time.Sleep(wait)
				if again := m.enqueue(ctx, spec); again != first {
					m.Errorf("seed %d: the first enqueue of %s returned task %s, and its repeat task %s: %v", m.seed, who,
						first, again, spec)
				}
			}
		})
		time.Sleep(rand.N(2 * time.Minute))
	}
}

// enqueue enqueues one task, alone or in a batch, until it is accepted.
func (m *moving) enqueue(ctx context.Context, spec *pawlv1.TaskSpec) string {
	for {
		if rand.IntN(2) == 0 {
			r, err := m.rpc.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: spec})
			if err == nil {
				return r.GetTask().GetTaskId()
			}
			m.Logf("enqueue: %v", err)
		} else {
			r, err := m.rpc.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{spec}})
			if err == nil && r.GetResults()[0].GetError() == nil {
				return r.GetResults()[0].GetTask().GetTaskId()
			}
			m.Logf("enqueue batch: %v %v", err, r)
		}
		time.Sleep(time.Second)
	}
}

func (m *moving) work(ctx context.Context, n int) {
	rnd := m.rand(2, n)
	for ctx.Err() == nil {
		r, err := m.rpc.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}},
			Order: pawlv1.Order_ORDER_STRICT, Max: int32(1 + rnd.IntN(5)), Wait: durationpb.New(30 * time.Second),
			Worker: fmt.Sprint("w", n)})
		if err != nil {
			continue
		}
		for _, c := range r.GetTasks() {
			time.Sleep(rand.N(3 * time.Second))
			if _, err := m.rpc.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()}); err == nil {
				m.mu.Lock()
				m.done[c.GetTaskId()]++
				m.mu.Unlock()
			}
		}
	}
}

func (m *moving) move(ctx context.Context) {
	rnd := m.rand(3, 0)
	moves := 0
	for ctx.Err() == nil {
		shards := rnd.Perm(movingShards)[:1+rnd.IntN(movingShards)]
		onto := make([]uint32, len(shards))
		for i, s := range shards {
			onto[i] = uint32(s + dataShard)
		}
		if _, err := m.h.router.Queues.Spread(ctx, task.Author{}, namespace, "hot", queues.SpreadTarget{Shards: onto}); err == nil {
			moves++
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(m.rest)):
		}
	}
	if moves < 5 {
		m.Errorf("seed %d: only %d moves, want at least 5", m.seed, moves)
	}
}

// left returns the number of tasks that are not done.
func (m *moving) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.want) - len(m.done)
}

func (m *moving) judge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, who := range m.want {
		if m.done[id] != 1 {
			m.Errorf("seed %d: task %s of %s was acked %d times", m.seed, id, who, m.done[id])
		}
	}
	for id := range m.done {
		if m.want[id] == "" {
			m.Errorf("seed %d: task %s ran, but no producer enqueued it", m.seed, id)
		}
	}
	shards := map[uint32]int{}
	for text := range m.want {
		id, err := task.ParseID(text)
		must(m.T, err)
		shards[id.Shard()]++
	}
	if len(shards) != movingShards {
		m.Errorf("seed %d: tasks were only in the shards %v", m.seed, shards)
	}
}

// A node whose map is two moves old sends a task to a shard that has its slot again: an earlier result of the request
// in another shard is found all the same.
func TestSlotsReturn(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := build(t, 3, dir)
		ctx := t.Context()
		now := h.router.Queues
		q, err := now.Place(ctx, namespace, "hot")
		must(t, err)
		here, there := 1+q.Shard%3, 1+(q.Shard+1)%3 // where it has not been yet
		move := func(to uint32) queues.Queue {
			q, err := now.Spread(ctx, task.Author{}, namespace, "hot", queues.SpreadTarget{Shards: []uint32{to}})
			must(t, err)
			return q
		}
		old := cluster.NewCopy(nil)
		old.Learned(move(here))
		parts := &verb.Parts{}
		router.Serve(h.broker, parts)
		h.control.Serve(parts)
		behind := router.New(router.Config{Node: 1, Parts: parts, Broker: router.Local(h.broker), Map: onlyMap{old, []uint32{1, 2, 3}},
			SystemLeader: func() uint32 { return 1 }})
		defer behind.Close()

		request, err := task.ParseID(uuid.Must(uuid.NewV7()).String())
		must(t, err)
		enqueue := func(r *router.Router, shard uint32) broker.Enqueued {
			spec := task.Spec{Type: "t", Queue: "hot", Payload: []byte("1"), RequestID: request}
			spec.Fill()
			got, _, err := r.Enqueue(ctx, shard, namespace, []task.Spec{spec})
			must(t, err)
			must(t, got[0].Err)
			return got[0]
		}
		move(there)
		first := enqueue(h.router, there)
		move(here)
		again := enqueue(behind, here)
		if again.ID != first.ID || !again.Duplicate || first.ID.Shard() != there {
			t.Errorf("one request returned %+v, then %+v", first, again)
		}
	})
}

// A claim that waits on several shards gets the task whose key has a free slot again.
func TestLimitsInParts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := build(t, 3, dir)
		r := newRPC(t, h)
		ctx := t.Context()
		_, err := r.operator.PutQueue(ctx, &pawlv1.PutQueueRequest{Queue: "hot", Settings: &pawlv1.QueueSettings{
			PerKey: &pawlv1.KeyRules{MaxRunning: 1}}})
		must(t, err)
		_, err = r.operator.SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "hot", Parts: 3})
		must(t, err)
		for range 2 {
			_, err := r.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"), Key: new("k"),
				Payload: []byte("1")}})
			must(t, err)
		}
		claim := func(wait time.Duration) []*pawlv1.ClaimedTask {
			got, err := r.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}}, Max: 5,
				Wait: durationpb.New(wait), Worker: "w"})
			must(t, err)
			return got.GetTasks()
		}
		first := claim(0)
		if len(first) != 1 {
			t.Fatalf("%d tasks of the key were claimed at once, want 1", len(first))
		}
		acked := make(chan error, 1)
		time.AfterFunc(5*time.Second, func() {
			_, err := r.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: first[0].GetTaskId(), ClaimToken: first[0].GetClaimToken()})
			acked <- err
		})
		began := time.Now()
		if second := claim(20 * time.Second); len(second) != 1 || time.Since(began) > 5100*time.Millisecond {
			t.Errorf("after the ack %d tasks were claimed in %s, want 1 in about 5 s", len(second), time.Since(began))
		}
		must(t, <-acked) // the claim may be answered first
	})
}

// A queue that is spread while its tasks run stays within its limits, even if it has more shards than it may run tasks. The tasks of each
// shard have their turn, and waiting claims get them.
func TestLimitsOfSpreadQueue(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const tasks, workers = 60, 5
		h := build(t, 4, dir)
		r := newRPC(t, h)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		limit := func(n int32) {
			_, err := r.operator.PutQueue(ctx, &pawlv1.PutQueueRequest{Queue: "hot", Settings: &pawlv1.QueueSettings{MaxRunning: n,
				MaxLength: tasks}})
			must(t, err)
		}
		limit(3)
		enqueue := func(n int) (refused int) {
			for i := range n {
				_, err := r.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"),
					Key: new(fmt.Sprint(i)), Payload: []byte("1")}})
				if status.Code(err) == codes.ResourceExhausted {
					refused++
				} else {
					must(t, err)
				}
			}
			return refused
		}
		enqueue(tasks / 3)
		var mu sync.Mutex
		most, running, done := 3, 0, map[uint32]int{}
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					got, err := r.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}}, Max: 2,
						Wait: durationpb.New(20 * time.Second), Worker: "w"})
					if err != nil {
						continue
					}
					mu.Lock()
					if running += len(got.GetTasks()); running > most {
						t.Errorf("%d tasks run, want at most %d", running, most)
					}
					mu.Unlock()
					time.Sleep(time.Second)
					for _, c := range got.GetTasks() {
						mu.Lock()
						running--
						id, _ := task.ParseID(c.GetTaskId())
						done[id.Shard()]++
						mu.Unlock()
						_, _ = r.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
					}
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		_, err := r.operator.SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "hot", Parts: 4})
		must(t, err)
		if refused := enqueue(2 * tasks); refused < tasks {
			t.Errorf("%d tasks more than the queue may have were refused, want at least %d", refused, tasks)
		}
		limit(1)
		time.Sleep(5 * time.Second) // what ran has ended
		mu.Lock()
		most = 1
		mu.Unlock()
		time.Sleep(5 * time.Minute)
		stop()
		all.Wait()
		for shard := range uint32(4) {
			if done[shard+1] < 3 {
				t.Errorf("the shards' tasks ran %v times", done)
			}
		}
	})
}

// A question about a queue in several parts is answered for all of them.
func TestQueueInParts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := build(t, 3, dir)
		r := newRPC(t, h)
		ctx := t.Context()
		_, err := h.router.Queues.Place(ctx, namespace, "hot")
		must(t, err)
		spread, err := r.operator.SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "hot", Parts: 3})
		must(t, err)
		slots := int32(0)
		for _, p := range spread.GetQueue().GetParts() {
			slots += p.GetSlots()
		}
		if n := len(spread.GetQueue().GetParts()); n != 3 || slots != task.SlotCount {
			t.Fatalf("the queue has %d parts with %d slots", n, slots)
		}

		const tasks = 60
		for i := range tasks {
			_, err := r.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"),
				Key: new(fmt.Sprint(i)), Payload: []byte("1")}})
			must(t, err)
		}
		queue := func() *pawlv1.Queue {
			got, err := r.operator.GetQueue(ctx, &pawlv1.GetQueueRequest{Queue: "hot"})
			must(t, err)
			return got.GetQueue()
		}
		sum := int64(0)
		for _, p := range queue().GetParts() {
			if sum += p.GetDepth().GetReady(); p.GetDepth().GetReady() < tasks/10 {
				t.Errorf("shard %d has only %d ready tasks of %d", p.GetShard(), p.GetDepth().GetReady(), tasks)
			}
		}
		if got := queue().GetDepth().GetReady(); got != tasks || sum != tasks {
			t.Errorf("%d tasks are ready, %d in the parts, want %d", got, sum, tasks)
		}

		killed := killSome(t, r, 20)
		groups, err := r.operator.GroupDead(ctx, &pawlv1.GroupDeadRequest{Queue: new("hot")})
		if must(t, err); len(groups.GetGroups()) != 1 || groups.GetGroups()[0].GetCount() != 20 {
			t.Errorf("the groups of dead letters are %v, want one of 20", groups)
		}
		if listed := listDead(t, r); !slices.Equal(listed, killed) {
			t.Errorf("dead letters listed as\n%v\nwant\n%v", listed, killed)
		}
		dead := filter{Queue: "hot", States: []string{"dead"}}
		for _, c := range []struct {
			do   operation
			want string
		}{
			{operation{Action: "replay", Filter: dead, Max: 15}, "done: 15 of 15, 15 done"},
			{operation{Action: "discard", Filter: dead}, "done: 5 of 5, 5 done"},
		} {
			o, err := r.StartOperation(ctx, c.do)
			must(t, err)
			if o, err = r.Operation(ctx, o.ID, 20*second); err != nil || o.counts() != c.want {
				t.Errorf("%s: %s, %v, want %s", c.do.Action, o.counts(), err, c.want)
			}
		}
		purged, err := r.operator.PurgeQueue(ctx, &pawlv1.PurgeQueueRequest{Queue: "hot"})
		if must(t, err); purged.GetDiscarded() != tasks-5 {
			t.Errorf("PurgeQueue = %v", purged)
		}
		page, err := r.producer.ListTasks(ctx, &pawlv1.ListTasksRequest{Filter: &pawlv1.Filter{Queue: new("hot")}, Limit: 100})
		if must(t, err); len(page.GetItems()) != tasks {
			t.Errorf("%d tasks are listed, want %d", len(page.GetItems()), tasks)
		}
		wakesAll(t, r)
		_, err = r.operator.DeleteQueue(ctx, &pawlv1.DeleteQueueRequest{Queue: "hot"})
		must(t, err)
	})
}

// killSome claims n tasks one by one and ends each as dead, a second apart. It returns them newest first.
func killSome(t *testing.T, r *rpc, n int) (ids []string) {
	for i := range n {
		got, err := r.worker.Claim(t.Context(), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}}, Worker: "w"})
		must(t, err)
		c := got.GetTasks()[0]
		_, err = r.worker.Fail(t.Context(), &pawlv1.FailRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken(),
			Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DEAD, Error: &pawlv1.TaskError{Message: fmt.Sprintf("boom %d", i)}})
		must(t, err)
		ids = append(ids, c.GetTaskId())
		time.Sleep(time.Second)
	}
	slices.Reverse(ids)
	return ids
}

// listDead reads the dead letters in small pages.
func listDead(t *testing.T, r *rpc) (ids []string) {
	for cursor := ""; ; {
		page, err := r.operator.ListDead(t.Context(), &pawlv1.ListDeadRequest{Filter: &pawlv1.Filter{Queue: new("hot")},
			Limit: 7, Cursor: cursor})
		must(t, err)
		for _, item := range page.GetItems() {
			ids = append(ids, item.GetTaskId())
		}
		if cursor = page.GetNextCursor(); cursor == "" {
			return ids
		}
	}
}

// wakesAll makes a worker wait, and a task of each slot wake it.
func wakesAll(t *testing.T, r *rpc) {
	for slot := range 12 {
		got := make(chan *pawlv1.ClaimResponse, 1)
		go func() {
			resp, _ := r.worker.Claim(t.Context(), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}, {Queue: "other"}},
				Worker: "w", Wait: durationpb.New(time.Minute)})
			got <- resp
		}()
		synctest.Wait()
		made, err := r.producer.Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"),
			Key: new(fmt.Sprint(slot)), Payload: []byte("1")}})
		must(t, err)
		began := time.Now()
		resp := <-got
		if len(resp.GetTasks()) != 1 || time.Since(began) > time.Second {
			t.Fatalf("after %s the waiting worker got %v, want task %s", time.Since(began), resp, made.GetTask().GetTaskId())
		}
		_, err = r.worker.Ack(t.Context(), &pawlv1.AckRequest{TaskId: resp.GetTasks()[0].GetTaskId(),
			ClaimToken: resp.GetTasks()[0].GetClaimToken()})
		must(t, err)
	}
}
