package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/system/queues"
)

// ticking runs schedules whose tasks keep changing shards: their queue moves, and they are given other queues, while
// operators trigger them, each with two calls.
type ticking struct {
	*world
	rpc  *rpc
	seed uint64

	mu       sync.Mutex
	ran      map[string]map[string]string // task id → its headers
	answered map[string]bool              // task ids in the answers to triggers
}

const (
	tickingSchedules = 5
	tickingFor       = 3 * time.Minute
)

// Whatever moves, each tick creates one task, and the history has its id.
func TestTicksMove(t *testing.T) {
	dir := t.TempDir()
	for seed := range seeds(2, 3) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, 4, dir)
			rpc := newRPC(t, h)
			m := &ticking{world: &world{T: t, testNode: h, api: rpc}, rpc: rpc, seed: seed, ran: map[string]map[string]string{},
				answered: map[string]bool{}}
			for i := range tickingSchedules {
				m.schedule(m.named(i, "hot"))
			}
			working, stop := context.WithCancel(t.Context())
			moving, rest := context.WithTimeout(working, tickingFor)
			defer stop()
			defer rest()
			var movers, workers sync.WaitGroup
			movers.Go(func() { m.moveQueue(moving) })
			movers.Go(func() { m.moveSchedules(moving) })
			movers.Go(func() { m.trigger(moving) })
			workers.Go(func() { m.work(working) })
			movers.Wait()
			for i := range tickingSchedules {
				ok[scheduleInfo](m.world)(m.api.PauseSchedule(m.ctx(), m.named(i, "").Name, ""))
			}
			time.Sleep(2 * time.Minute) // for messages to arrive, and workers to claim the tasks
			stop()
			workers.Wait()
			m.judge()
		})
	}
}

// named returns the i-th schedule with a queue. Each has an interval of its own, some have jitter, some a key.
func (m *ticking) named(i int, queue string) schedule {
	s := schedule{Name: fmt.Sprint("s", i), Every: second * span(i+1), Task: spec{Type: "job", Queue: queue}}
	if i%2 == 1 {
		s.Jitter = 3 * second
	}
	if i < 3 {
		s.Task.Key = fmt.Sprint("k", i)
	}
	return s
}

func (m *ticking) moveQueue(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(m.seed, 1))
	moves := 0
	for ctx.Err() == nil {
		shards := rnd.Perm(4)[:1+rnd.IntN(3)]
		onto := make([]uint32, len(shards))
		for i, s := range shards {
			onto[i] = uint32(s + dataShard)
		}
		if _, err := m.testNode.router.Queues.Spread(ctx, directly, namespace, "hot", queues.SpreadTarget{Shards: onto}); err == nil {
			moves++
		}
		nap(ctx, rnd, 10*time.Second)
	}
	if moves < 10 {
		m.Errorf("seed %d: only %d moves, want at least 10", m.seed, moves)
	}
}

func (m *ticking) moveSchedules(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(m.seed, 2))
	for ctx.Err() == nil {
		m.schedule(m.named(rnd.IntN(tickingSchedules), []string{"hot", "cold", "hot"}[rnd.IntN(3)]))
		nap(ctx, rnd, 10*time.Second)
	}
}

// trigger triggers with two calls, the second one up to half a minute later.
func (m *ticking) trigger(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(m.seed, 3))
	var repeats sync.WaitGroup
	defer repeats.Wait()
	for ctx.Err() == nil {
		name, request := fmt.Sprint("s", 1), uuid.Must(uuid.NewV7()).String() // with a key, whose slot never changes
		first := m.triggered(name, request)
		m.mu.Lock()
		m.answered[first] = true
		m.mu.Unlock()
		wait := rand.N(30 * time.Second)
		repeats.Go(func() {
			time.Sleep(wait)
			if again := m.triggered(name, request); again != first {
				m.Errorf("seed %d: a trigger created task %s, and its repeat task %s", m.seed, first, again)
			}
		})
		nap(ctx, rnd, 10*time.Second)
	}
}

// triggered triggers until it is answered.
func (m *ticking) triggered(name, request string) string {
	for {
		a, err := m.rpc.schedule.TriggerSchedule(m.ctx(), &pawlv1.TriggerScheduleRequest{Name: name, RequestId: text(request)})
		if err == nil {
			return a.GetTaskId()
		}
		m.Logf("TriggerSchedule, which is repeated: %v", err)
		time.Sleep(time.Second)
	}
}

func (m *ticking) work(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := m.rpc.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}, {Queue: "cold"}}, Max: 20,
			Wait: durationpb.New(5 * time.Second), Worker: "w"})
		if err != nil {
			continue
		}
		for _, c := range r.GetTasks() {
			m.mu.Lock()
			m.ran[c.GetTaskId()] = c.GetHeaders()
			m.mu.Unlock()
			_, err := m.rpc.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
			must(m.T, err)
		}
	}
}

// judge compares the tasks that ran with the histories.
func (m *ticking) judge() {
	elsewhere, triggers := 0, 0
	for i := range tickingSchedules {
		s := m.named(i, "")
		home := m.shown(s.Name).ID[:13] // time and shard
		planned := time.Time{}
		for _, t := range m.historyBy(s.Name, 100) {
			headers := m.ran[t.TaskID]
			delete(m.ran, t.TaskID)
			if t.TaskID == "" || headers["pawl-schedule"] != s.Name {
				m.Errorf("seed %d: the task of entry %+v of %s has the headers %v", m.seed, t, s.Name, headers)
				continue
			}
			if t.TaskID[9:13] != home[9:13] {
				elsewhere++
			}
			if t.Outcome == "triggered" && m.answered[t.TaskID] {
				triggers++
				continue
			}
			if !planned.IsZero() && !t.PlannedAt.Equal(planned.Add(s.Every.std())) || t.Outcome != "fired" ||
				headers["pawl-scheduled-at"] != tickTime(t.PlannedAt) {
				m.Errorf("seed %d: entry %+v of %s does not follow the tick of %v", m.seed, t, s.Name, planned)
			}
			planned = t.PlannedAt
		}
	}
	if len(m.ran) > 0 || triggers != len(m.answered) || triggers < 10 || elsewhere < 50 {
		m.Errorf("seed %d: %d tasks are in no history; %d triggers, %d of them in the history; %d ticks went to another shard", m.seed,
			len(m.ran), len(m.answered), triggers, elsewhere)
	}
}

// nap waits for a random time.
func nap(ctx context.Context, rnd *rand.Rand, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
	}
}
