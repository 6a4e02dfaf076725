package broker

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/task"
)

// A purge that takes several rounds leaves tasks alone that were enqueued after its first.
func TestPurgeEndsWithTheTasksOfItsStart(t *testing.T) {
	inGroup(t, func(g *group) {
		ctx := context.Background()
		leader, _ := g.leader()
		enqueue := func(n int) task.ID {
			specs := make([]task.Spec, n)
			for i := range specs {
				specs[i] = task.Spec{Type: "job", Queue: "a"}
				specs[i].Fill()
			}
			made, _, err := leader.Enqueue(ctx, one, ns, specs)
			if err != nil || made[0].Err != nil {
				t.Error(err, made)
				return task.ID{}
			}
			return made[0].ID
		}
		const before = purgeChunk + purgeChunk/2
		enqueue(before)
		g.pass(time.Second)

		// The first round waits for the followers while a task is enqueued, which then runs before the purge's second round.
		all := func(*pb.Message) bool { return true }
		g.loses.Store(&all)
		purged, late := make(chan Purged, 1), make(chan task.ID, 1)
		go func() {
			done, err := PurgeQueue.Call(ctx, leader, QueueCommand{OnQueue: OnQueue{OnShard{one, ns}, "a"}})
			if err != nil {
				t.Error(err)
			}
			purged <- done
		}()
		g.pass(100 * time.Millisecond)
		go func() { late <- enqueue(1) }()
		g.pass(100 * time.Millisecond)
		if len(purged)+len(late) > 0 {
			t.Fatal("a call ended without the followers")
		}
		g.loses.Store(nil)

		if done := receive(t, "the purge", purged); done.Done != before {
			t.Errorf("%d tasks were purged, want the %d that were there at the start", done.Done, before)
		}
		id := receive(t, "the enqueue", late)
		v, _, err := leader.Task(ctx, ns, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.Exec.State != task.Ready {
			t.Errorf("the task that was enqueued meanwhile is %v, want %v", v.Exec.State, task.Ready)
		}
	})
}
