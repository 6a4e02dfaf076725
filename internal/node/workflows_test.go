package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

const (
	chains     = 6
	chainSteps = 5
)

// Whichever leaders die, and while the home of groups has none, each step of a chain is enqueued once with its parent's result,
// each member's end counts once, and each group enqueues its callbacks once.
func TestWorkflowsSurviveElections(t *testing.T) {
	bySameGoroutines(t, "TestOperationsSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newTwoShards(t)
		for i, queue := range []string{"one", "two"} {
			w.place(queue, admin.QueueSettings{Lease: 5 * time.Second, Retry: pawltype.RetryPolicy{Initial: time.Second}}, i+1)
		}
		f := &flows{twoShards: w}
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for _, queue := range []string{"one", "two"} { // one each, so that a worker waiting for a shard without a leader delays no other
			cfg := pawl.WorkerConfig{Queues: pawl.Strict{queue}, Concurrency: 8, Name: queue, Logger: slog.New(slog.DiscardHandler)}
			worker := pawl.NewWorker(w.client, flowMux(), cfg)
			workers.Go(func() {
				if err := worker.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		// Members end in shard 1, and its leader dies, while their group's home, shard 2, has no leader. Nothing else happens
		// there: the next leader of shard 1 must report by itself.
		lonely := f.startLonelyGroup()
		w.loseShard2()
		w.inTheEnd("the members in shard 1 have ended", f.ended("one"))
		w.crashLeader(1, func() {})
		pass(5 * time.Second)
		w.healShard2()
		w.inTheEnd("their group is complete", func() error { return f.complete(lonely, pawltype.GroupCounts{Members: 5, Succeeded: 5}) })

		var cancels sync.WaitGroup
		for n := range chains {
			f.startChain(n)
		}
		for round := range uint32(3) {
			f.startGroup()
			pass(time.Second)
			id := f.startSlowGroup()
			f.cancelled = append(f.cancelled, id)
			cancels.Go(func() { f.cancel(id) })
			w.crashLeader(2-round%2, func() { f.startGroup() })
			w.until("three voters each", w.replicated(3))
		}
		cancels.Wait()
		w.inTheEnd("all groups are whole", f.wholeGroups)
		w.inTheEnd("all chains are whole", f.wholeChains)
		stop()
		workers.Wait()
		f.onceEach()
		w.sound()
	})
}

// flows is what was started.
type flows struct {
	*twoShards
	roots     []string
	groups    []string
	cancelled []string
}

// flowMux handles steps, each of which adds its number to its parent's result; members, of which some die; and tasks that run until
// they are cancelled. One in three fails at first.
func flowMux() *pawl.Mux {
	mux := pawl.NewMux()
	mux.Use(func(next pawl.Handler) pawl.Handler {
		return func(ctx context.Context, c *pawl.Claim) error {
			if c.Attempt == 1 && c.ID[len(c.ID)-1]%3 == 0 {
				return errors.New("the first time it fails")
			}
			return next(ctx, c)
		}
	})
	mux.HandleFunc("step", func(_ context.Context, c *pawl.Claim) error {
		before := ""
		if c.Parent != nil {
			if err := c.ParentResult(&before); err != nil {
				return pawl.DeadLetter(err)
			}
		}
		return c.SetResult(before + "/" + string(c.Payload))
	})
	for _, typ := range []string{"lonely", "member", "next", "done", "died"} {
		mux.HandleFunc(typ, func(context.Context, *pawl.Claim) error { return nil })
	}
	mux.HandleFunc("mortal", func(context.Context, *pawl.Claim) error { return pawl.DeadLetter(errors.New("for good")) })
	mux.HandleFunc("slow", func(ctx context.Context, _ *pawl.Claim) error { <-ctx.Done(); return context.Cause(ctx) })
	return mux
}

// startChain enqueues a chain whose steps alternate between the shards.
func (f *flows) startChain(n int) {
	f.t.Helper()
	queue := func(step int) pawl.Option { return pawl.Queue([]string{"one", "two"}[(n+step)%2]) }
	step := func(i int) pawl.RawTask { return pawl.RawTask{Type: "step", Payload: fmt.Append(nil, i)} }
	opts := []pawl.Option{queue(chainSteps - 1)}
	for i := chainSteps - 1; i > 0; i-- { // each takes a while, so that leaders die in the middle
		opts = []pawl.Option{queue(i - 1), pawl.Then(step(i), append(opts, pawl.In(6*time.Second))...)}
	}
	ref, err := f.client.Enqueue(f.t.Context(), step(0), opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.roots = append(f.roots, ref.ID)
}

// startLonelyGroup creates a group whose home is shard 2, with one member there and four in shard 1.
func (f *flows) startLonelyGroup() string {
	f.t.Helper()
	var g pawl.GroupSpec
	for _, queue := range []string{"two", "one", "one", "one", "one"} {
		g.Tasks = append(g.Tasks, pawl.Item{Args: pawl.RawTask{Type: "lonely"}, Options: []pawl.Option{pawl.Queue(queue),
			pawl.In(3 * time.Second)}})
	}
	made, err := f.client.EnqueueGroup(f.t.Context(), g)
	if err != nil {
		f.t.Fatal(err)
	}
	return made.ID
}

// startGroup creates a group whose home is shard 2, with members in both: one dies, two have a follow-up task in the other shard.
func (f *flows) startGroup() {
	f.t.Helper()
	item := func(typ, queue string, more ...pawl.Option) pawl.Item {
		return pawl.Item{Args: pawl.RawTask{Type: typ}, Options: append(more, pawl.Queue(queue))}
	}
	next := func(queue string) pawl.Option { return pawl.Then(pawl.RawTask{Type: "next"}, pawl.Queue(queue)) }
	g, err := f.client.EnqueueGroup(f.t.Context(), pawl.GroupSpec{
		Tasks: []pawl.Item{item("member", "two"), item("member", "one"), item("member", "two", next("one")),
			item("member", "one", next("two")), item("mortal", "one"), item("member", "two")},
		OnComplete: &pawl.Item{Args: pawl.RawTask{Type: "done"}, Options: []pawl.Option{pawl.Queue("one")}},
		OnDeath:    &pawl.Item{Args: pawl.RawTask{Type: "died"}, Options: []pawl.Option{pawl.Queue("two")}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.groups = append(f.groups, g.ID)
}

// startSlowGroup creates a group whose members don't end by themselves: two run, one in each shard, others wait.
func (f *flows) startSlowGroup() string {
	f.t.Helper()
	g := pawl.GroupSpec{OnComplete: &pawl.Item{Args: pawl.RawTask{Type: "done"}}}
	for i := range 6 {
		item := pawl.Item{Args: pawl.RawTask{Type: "slow"}, Options: []pawl.Option{pawl.Queue([]string{"two", "one"}[i%2])}}
		if i >= 2 {
			item.Options = append(item.Options, pawl.In(time.Hour), pawl.Then(pawl.RawTask{Type: "next"}))
		}
		g.Tasks = append(g.Tasks, item)
	}
	made, err := f.client.EnqueueGroup(f.t.Context(), g)
	if err != nil {
		f.t.Fatal(err)
	}
	return made.ID
}

func (f *flows) cancel(id string) {
	if _, err := admin.New(f.client).Groups().Cancel(f.t.Context(), id); err != nil {
		f.t.Error(err)
	}
}

// complete returns an error unless a group has ended with the given counts, and has enqueued its callbacks.
func (f *flows) complete(id string, want pawltype.GroupCounts) error {
	g, err := f.client.Group(f.t.Context(), id)
	if err != nil {
		return err
	}
	if g.Counts != want || g.State != pawltype.GroupComplete {
		return fmt.Errorf("group %s is %s: %+v", id, g.State, g.Counts)
	}
	for _, point := range []*pawltype.Follower{g.OnComplete, g.OnDeath} {
		if point != nil && point.State != pawltype.FollowerCreated {
			return fmt.Errorf("of group %s task %s is %s", id, point.Type, point.State)
		}
	}
	return nil
}

// wholeGroups returns an error unless all groups have ended as they must.
func (f *flows) wholeGroups() error {
	for _, id := range f.groups {
		if err := f.complete(id, pawltype.GroupCounts{Members: 8, Succeeded: 7, Dead: 1}); err != nil {
			return err
		}
	}
	for _, id := range f.cancelled {
		g, err := f.client.Group(f.t.Context(), id)
		if err != nil {
			return err
		}
		if g.Counts != (pawltype.GroupCounts{Members: 6, Cancelled: 6}) || g.State != pawltype.GroupCancelled ||
			g.OnComplete.State != pawltype.FollowerDropped {
			return fmt.Errorf("group %s is %s: %+v, %+v", id, g.State, g.Counts, g.OnComplete)
		}
	}
	return nil
}

// wholeChains returns an error unless all chains have ended, step by step.
func (f *flows) wholeChains() error {
	for _, id := range f.roots {
		parent, path := "", ""
		for step := range chainSteps {
			info, err := f.client.Task(f.t.Context(), id)
			if err != nil {
				return err
			}
			result := ""
			if info.State != pawltype.StateSucceeded {
				return fmt.Errorf("step %d of a chain, task %s, is %s (%v)", step, id, info.State, info.LastFailure())
			}
			if err := info.DecodeResult(&result); err != nil {
				return err
			}
			if path += fmt.Sprintf("/%d", step); result != path || step > 0 && info.Parent.TaskID != parent {
				f.t.Errorf("step %d, task %s behind %s, came to %q, want %q behind %s", step, id, info.Parent.TaskID, result, path, parent)
			}
			if parent = id; step == chainSteps-1 {
				break
			}
			if len(info.Then) != 1 || info.Then[0].State != pawltype.FollowerCreated {
				return fmt.Errorf("what follows step %d is %+v", step, info.Then)
			}
			id = info.Then[0].TaskID
		}
	}
	return nil
}

// onceEach fails the test if any task exists twice.
func (f *flows) onceEach() {
	times := map[string]int{} // by type, and by parent
	for _, queue := range []string{"one", "two"} {
		for _, info := range f.tasks(queue) {
			times[info.Type]++
			if p := info.Parent; p != nil {
				times[info.Type+" of "+p.TaskID+p.GroupID]++
			}
		}
	}
	n := len(f.groups)
	for typ, want := range map[string]int{"lonely": 5, "step": chains * chainSteps, "member": 5 * n, "mortal": n,
		"next": 2 * n, "done": n, "died": n, "slow": 6 * len(f.cancelled)} {
		if times[typ] != want {
			f.t.Errorf("%d tasks %q, want %d", times[typ], typ, want)
		}
		delete(times, typ)
	}
	for what, n := range times {
		if n != 1 {
			f.t.Errorf("%s: %d times", what, n)
		}
	}
}
