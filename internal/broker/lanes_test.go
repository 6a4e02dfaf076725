package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A new leader reads the lanes of many keys bit by bit. A claim for a task in an unread lane waits, changes nothing, and is served as soon
// as the lane is read, even if nothing else happens in the shard. A watch is notified then, although no round writes anything.
func TestClaimsWaitForLanesToBeRead(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		w.pass(5 * time.Second)
		var specs []task.Spec
		for i := range 4000 {
			specs = append(specs, task.Spec{Queue: "a", Type: "job", Key: fmt.Sprintf("key-%05d", i)})
		}
		specs = append(specs, task.Spec{Queue: "a", Type: "rare", Key: "last"})
		for len(specs) > 0 {
			n := min(len(specs), 1000)
			for i := range specs[:n] {
				specs[i].Fill()
			}
			got, _, err := w.Enqueue(ctx, two, ns, specs[:n])
			w.must(err)
			for _, e := range got {
				w.must(e.Err)
			}
			specs = specs[n:]
		}
		restart := func() {
			stop()
			stop = w.addShard(two)
			w.pass(5 * time.Second)
		}
		restart()
		defer func() { stop() }()
		c := call("a")
		c.Types = []string{"rare"}
		began := time.Now()
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := w.Await(wait, two, c); err != nil || time.Since(began) > time.Second {
			t.Errorf("the watch ended after %s with %v, want the rare task within a second", time.Since(began), err)
		}
		restart()
		began = time.Now()
		got, _, err := w.Claim(ctx, two, c, time.Minute)
		w.must(err)
		if len(got) != 1 || got[0].Type != "rare" || time.Since(began) > time.Second {
			t.Errorf("the claim got %v after %s, want the rare task within a second", got, time.Since(began))
		}
	})
}

// The age of a queue's oldest task is right even if the leader has not read its lane.
func TestOldestTaskInAnUnreadLane(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		w.pass(5 * time.Second)
		enqueue := func(keys ...string) {
			specs := make([]task.Spec, len(keys))
			for i, key := range keys {
				specs[i] = task.Spec{Queue: "a", Type: "job", Key: key}
				specs[i].Fill()
			}
			_, _, err := w.Enqueue(ctx, two, ns, specs)
			w.must(err)
		}
		enqueue("last")
		w.pass(time.Minute)
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprintf("key-%05d", i))
		}
		enqueue(keys...)
		stop()
		stop = w.addShard(two)
		defer func() { stop() }()
		w.pass(5 * time.Second)
		q := OnQueue{OnShard{two, ns}, "a"}
		out, err := DescribeQueue.Call(ctx, w, q)
		w.must(err)
		if age := out.Info.OldestReady; age < time.Minute || age > 2*time.Minute || out.At.Time == 0 {
			t.Errorf("the oldest task has been ready for %s at %+v, want a bit more than a minute", age, out.At)
		}
		_, err = PurgeQueue.Call(ctx, w, QueueCommand{OnQueue: q})
		w.must(err)
		if out, err = DescribeQueue.Call(ctx, w, q); err != nil || out.Info.OldestReady != 0 || out.At.Time == 0 {
			t.Errorf("an empty queue is %+v, %v", out, err)
		}
	})
}
