package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// TestGroupsThroughCrashes kills the server repeatedly while groups are created whose members are in two shards, fail,
// and have follow-up tasks, some in the other shard: each group counts each member once, completes, and enqueues its
// last task once; a group that is cancelled between two kills ends all its members and enqueues nothing.
func TestGroupsThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "2")
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	for i, queue := range []string{"one", "two"} {
		if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "first"}, pawl.Queue(queue)); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.New(client).Queues().Spread(t.Context(), queue, admin.SpreadOptions{Shards: []int{i + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	workers.Go(func() {
		worker := pawl.NewWorker(client, groupMux(), pawl.WorkerConfig{Queues: pawl.Weighted{"one": 1, "two": 1}, Concurrency: 8,
			Lease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer workers.Wait()
	defer stop()

	var mu sync.Mutex
	made := map[string]bool{} // true: it was cancelled
	making, rest := context.WithCancel(ctx)
	var makers sync.WaitGroup
	for n := range 2 {
		makers.Go(func() {
			for i := 0; making.Err() == nil; i++ {
				id, cancelled, err := makeSomeGroup(ctx, client, n, i)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				made[id] = cancelled
				mu.Unlock()
			}
		})
	}
	s.killOften(count(t, "PAWL_KILLS", 12) / 2)
	rest()
	makers.Wait()
	var why error
	t.Cleanup(func() {
		if why != nil {
			t.Log(why)
		}
	})
	eventually(t, "all groups are as they must be", 2*startLimit, func() bool {
		for id, cancelled := range made {
			if why = wholeGroup(t, client, id, cancelled); why != nil {
				return false
			}
		}
		return true
	})
	why = onceEach(t, client, made)
	if why != nil || len(made) < 4 {
		t.Errorf("%d groups were created: %v", len(made), why)
	}
	t.Logf("%d groups were created", len(made))
}

// groupMux fails the first attempt of every third task.
func groupMux() *pawl.Mux {
	mux := pawl.NewMux()
	for _, typ := range []string{"first", "member", "next", "done"} {
		mux.HandleFunc(typ, func(_ context.Context, c *pawl.Claim) error {
			if c.Attempt == 1 && c.ID[len(c.ID)-1]%3 == 0 {
				return errors.New("the first time it fails")
			}
			return c.SetResult(c.ID)
		})
	}
	return mux
}

// makeSomeGroup creates a group of six members, each with a follow-up task. Every fourth group consists of waiting tasks, and is cancelled.
func makeSomeGroup(ctx context.Context, client *pawl.Client, n, i int) (id string, cancelled bool, err error) {
	queue := func(i int) pawl.Option { return pawl.Queue([]string{"one", "two"}[i%2]) }
	retry := pawl.Retry(pawltype.RetryPolicy{Initial: 10 * time.Millisecond})
	g := pawl.GroupSpec{Name: strconv.Itoa(n) + "/" + strconv.Itoa(i), OnComplete: &pawl.Item{Args: pawl.RawTask{Type: "done"},
		Options: []pawl.Option{queue(i / 2), retry}}}
	cancelled = i%4 == 3
	for m := range 6 {
		opts := []pawl.Option{queue(m + i), retry, pawl.Then(pawl.RawTask{Type: "next"}, queue(m/2), retry)}
		if cancelled {
			opts = append(opts, pawl.In(time.Hour))
		}
		g.Tasks = append(g.Tasks, pawl.Item{Args: pawl.RawTask{Type: "member"}, Options: opts})
	}
	made, err := client.EnqueueGroup(ctx, g)
	if err != nil {
		return "", false, err
	}
	if cancelled {
		_, err = admin.New(client).Groups().Cancel(ctx, made.ID)
	}
	return made.ID, cancelled, err
}

// wholeGroup returns what is wrong with a group.
func wholeGroup(t *testing.T, client *pawl.Client, id string, cancelled bool) error {
	g, err := client.Group(t.Context(), id)
	if err != nil {
		return err
	}
	c := g.Counts
	if cancelled {
		if g.State != pawltype.GroupCancelled || c.Members != 6 || c.Cancelled != 6 || g.OnComplete.State != pawltype.FollowerDropped {
			return fmt.Errorf("the cancelled group is %+v, %+v", g, g.OnComplete)
		}
		return nil
	}
	if g.State != pawltype.GroupComplete || c.Members != 12 || c.Succeeded != 12 || g.OnComplete.State != pawltype.FollowerCreated {
		return fmt.Errorf("the group is %+v, %+v", g, g.OnComplete)
	}
	return nil
}

// onceEach returns an error if a group did not enqueue its last task exactly once.
func onceEach(t *testing.T, client *pawl.Client, made map[string]bool) error {
	times := map[string]int{}
	for info, err := range admin.New(client).Tasks().List(t.Context(), admin.Filter{Type: "done"}) {
		if err != nil {
			return err
		}
		times[info.Parent.GroupID]++
	}
	for id, cancelled := range made {
		if want := map[bool]int{false: 1, true: 0}[cancelled]; times[id] != want {
			return fmt.Errorf("group %s (cancelled: %t) enqueued its last task %d times", id, cancelled, times[id])
		}
	}
	return nil
}
