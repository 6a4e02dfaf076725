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
	"github.com/pawlq/pawl/internal/task"
)

// grouping runs groups and chains whose queues keep moving between shards, while workers fail, operators replay, and
// every call that creates a group is made twice.
type grouping struct {
	*world
	rpc  *rpc
	seed uint64

	mu     sync.Mutex
	groups map[string]int    // group id → number of members that it was created with, including their follow-up tasks
	ran    map[string]int    // task id → number of successes
	behind map[string]int    // task id or group id of the parent → number of follow-up tasks
	kept   map[string]string // task id → its result
}

const groupingFor = 2 * time.Minute

// Whatever moves, each group counts each member once, and enqueues its tasks once.
func TestGroupsMove(t *testing.T) {
	dir := t.TempDir()
	for seed := range seeds(2, 3) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, 4, dir)
			rpc := newRPC(t, h)
			m := &grouping{world: &world{T: t, testNode: h, api: rpc}, rpc: rpc, seed: seed, groups: map[string]int{},
				ran: map[string]int{}, behind: map[string]int{}, kept: map[string]string{}}
			working, stop := context.WithCancel(t.Context())
			defer stop()
			moving, rest := context.WithTimeout(working, groupingFor)
			defer rest()
			var movers, workers sync.WaitGroup
			movers.Go(func() { m.moveQueue(moving, 1, "hot") })
			movers.Go(func() { m.moveQueue(moving, 2, "warm") })
			movers.Go(func() { m.make(moving) })
			workers.Go(func() { m.work(working) })
			movers.Wait()
			time.Sleep(2 * time.Minute) // for messages to arrive, and workers to claim the tasks
			for id := range m.groups {
				m.replay(id)
			}
			time.Sleep(2 * time.Minute)
			stop()
			workers.Wait()
			m.judge()
		})
	}
}

func (m *grouping) moveQueue(ctx context.Context, salt uint64, queue string) {
	rnd := rand.New(rand.NewPCG(m.seed, salt))
	for ctx.Err() == nil {
		shards := rnd.Perm(4)[:1+rnd.IntN(3)]
		onto := make([]uint32, len(shards))
		for i, s := range shards {
			onto[i] = uint32(s + dataShard)
		}
		_, _ = m.testNode.router.Queues.Spread(ctx, task.Author{}, namespace, queue, queues.SpreadTarget{Shards: onto})
		nap(ctx, rnd, 6*time.Second)
	}
}

// make creates groups, each with two calls, the second one up to ten seconds later.
func (m *grouping) make(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(m.seed, 3))
	var repeats sync.WaitGroup
	defer repeats.Wait()
	queue := func() string { return []string{"hot", "warm", "cold"}[rnd.IntN(3)] }
	for ctx.Err() == nil {
		req := &pawlv1.CreateGroupRequest{RequestId: new(uuid.Must(uuid.NewV7()).String()), OnComplete: &pawlv1.TaskSpec{Type: "done",
			Queue: new(queue())}}
		members := 0
		for range 1 + rnd.IntN(6) {
			t := &pawlv1.TaskSpec{Type: "job", Queue: new(queue()), MaxAttempts: 1}
			if rnd.IntN(2) == 0 {
				t.Key = new(fmt.Sprint("k", rnd.IntN(8)))
			}
			members++
			for range rnd.IntN(3) {
				t.Then = append(t.Then, &pawlv1.TaskSpec{Type: "next", Queue: new(queue())})
				members++
			}
			req.Tasks = append(req.Tasks, t)
		}
		id := m.made(req)
		m.mu.Lock()
		m.groups[id] = members
		m.mu.Unlock()
		wait := rand.N(10 * time.Second)
		repeats.Go(func() {
			time.Sleep(wait)
			if again := m.made(req); again != id {
				m.Errorf("seed %d: a request created group %s, and its repeat group %s", m.seed, id, again)
			}
		})
		nap(ctx, rnd, 3*time.Second)
	}
}

// made creates a group, repeating the call until it is answered.
func (m *grouping) made(req *pawlv1.CreateGroupRequest) string {
	for {
		a, err := m.rpc.group.CreateGroup(m.ctx(), req)
		if err == nil {
			return a.GetGroup().GetGroupId()
		}
		m.Logf("CreateGroup, which is repeated: %v", err)
		time.Sleep(time.Second)
	}
}

func (m *grouping) work(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(m.seed, 4))
	for ctx.Err() == nil {
		r, err := m.rpc.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"},
			{Queue: "warm"}, {Queue: "cold"}},
			Max: 20, Wait: durationpb.New(5 * time.Second), Worker: "w"})
		if err != nil {
			continue
		}
		for _, c := range r.GetTasks() {
			if p := c.GetParent(); p != nil && c.GetAttempt() == 1 {
				m.behind[p.GetTaskId()+p.GetGroupId()]++
				if want := m.kept[p.GetTaskId()]; p.GetTaskId() != "" && string(p.GetResult()) != want {
					m.Errorf("seed %d: task %s got its parent's result as %q, want %q", m.seed, c.GetTaskId(), p.GetResult(), want)
				}
			}
			if c.GetType() == "job" && c.GetAttempt() == 1 && rnd.IntN(5) == 0 {
				_, err := m.rpc.worker.Fail(ctx, &pawlv1.FailRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
				must(m.T, err)
				continue
			}
			said := fmt.Sprintf("%q", c.GetTaskId())
			m.kept[c.GetTaskId()] = said
			m.ran[c.GetTaskId()]++
			_, err := m.rpc.worker.Ack(ctx, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken(), Result: []byte(said)})
			must(m.T, err)
		}
	}
}

// replay replays the dead members of a completed group.
func (m *grouping) replay(id string) {
	g, err := m.rpc.group.GetGroup(m.ctx(), &pawlv1.GetGroupRequest{GroupId: id})
	must(m.T, err)
	if g.GetGroup().GetState() != pawlv1.GroupState_GROUP_STATE_COMPLETE {
		m.Errorf("seed %d: group %s is %v, want it complete", m.seed, id, g.GetGroup())
	}
	for _, t := range m.membersOf(id) {
		if t.GetState() == pawlv1.State_STATE_DEAD {
			_, err := m.rpc.operator.RetryTask(m.ctx(), &pawlv1.RetryTaskRequest{TaskId: t.GetTaskId()})
			must(m.T, err)
		}
	}
}

func (m *grouping) membersOf(id string) (all []*pawlv1.GroupMember) {
	for cursor := ""; ; {
		r, err := m.rpc.group.ListGroupMembers(m.ctx(), &pawlv1.ListGroupMembersRequest{GroupId: id, Limit: 3, Cursor: cursor})
		must(m.T, err)
		all = append(all, r.GetItems()...)
		if cursor = r.GetNextCursor(); cursor == "" {
			return all
		}
	}
}

func (m *grouping) judge() {
	elsewhere := 0
	for id, members := range m.groups {
		g, err := m.rpc.group.GetGroup(m.ctx(), &pawlv1.GetGroupRequest{GroupId: id})
		must(m.T, err)
		c := g.GetGroup().GetCounts()
		if c.GetMembers() != int64(members) || c.GetSucceeded() != int64(members) || c.GetPending() != 0 {
			m.Errorf("seed %d: group %s was created with %d members and has the counts %v", m.seed, id, members, c)
		}
		if m.behind[id] != 1 {
			m.Errorf("seed %d: the follow-up task of group %s was enqueued %d times, want once", m.seed, id, m.behind[id])
		}
		for _, t := range m.membersOf(id) {
			if m.ran[t.GetTaskId()] != 1 || string(t.GetResult()) != m.kept[t.GetTaskId()] {
				m.Errorf("seed %d: member %v ran %d times with result %s", m.seed, t, m.ran[t.GetTaskId()], m.kept[t.GetTaskId()])
			}
			if t.GetTaskId()[14:18] != id[14:18] {
				elsewhere++
			}
		}
	}
	if len(m.groups) < 20 || elsewhere < 50 {
		m.Errorf("seed %d: only %d groups, and %d members in other shards", m.seed, len(m.groups), elsewhere)
	}
}
