package pawltest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

type part struct{ N int }

func (part) TaskType() string { return "part" }

type sum struct{}

func (sum) TaskType() string { return "sum" }

// A group of parts, each of which adds another, is summed up when all have ended. The follow-up task of the sum runs an hour later.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		total, told := 0, make(chan int, 1)
		mux := pawl.NewMux()
		pawl.Handle(mux, func(ctx context.Context, c *pawl.Task[part]) error {
			if c.Args.N < 10 {
				if _, err := client.Enqueue(ctx, part{10 * c.Args.N}, pawl.InGroup(c.GroupID)); err != nil {
					return err
				}
			}
			return c.SetResult(c.Args.N)
		})
		pawl.Handle(mux, func(ctx context.Context, c *pawl.Task[sum]) error {
			var counts pawltype.GroupCounts
			if err := c.ParentResult(&counts); err != nil {
				return err
			}
			for m, err := range client.GroupMembers(ctx, counts.GroupID) {
				n := 0
				if err != nil || m.DecodeResult(&n) != nil {
					return err
				}
				total += n
			}
			return c.SetResult(total)
		})
		mux.HandleFunc("tell", func(_ context.Context, c *pawl.Claim) error {
			n := 0
			err := c.ParentResult(&n)
			told <- n
			return err
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 2}).Run(ctx) }()
		began := time.Now()
		_, err := client.EnqueueGroup(ctx, pawl.GroupSpec{Tasks: []pawl.Item{{Args: part{1}}, {Args: part{2}}, {Args: part{3}}},
			OnComplete: &pawl.Item{Args: sum{}, Options: []pawl.Option{pawl.Then(pawl.RawTask{Type: "tell"}, pawl.In(time.Hour))}}})
		if err != nil {
			t.Fatal(err)
		}
		if n := <-told; n != 66 || time.Since(began) < time.Hour {
			t.Errorf("the follow-up task got the sum %d after %s, want 66 after an hour", n, time.Since(began))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// One invalid task doesn't affect the others that are added with it.
func TestBadMemberAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		g, err := client.EnqueueGroup(t.Context(), pawl.GroupSpec{Open: true})
		if err != nil {
			t.Fatal(err)
		}
		bad := pawl.Item{Args: part{2}, Options: []pawl.Option{pawl.Priority("urgent")}}
		got, err := client.AddToGroup(t.Context(), g.ID, []pawl.Item{{Args: part{1}}, bad, {Args: part{3}}})
		if err != nil || len(got) != 3 || got[0].Err != nil || !errors.Is(got[1].Err, pawltype.ErrInvalidArgument) || got[2].Err != nil {
			t.Fatalf("adding a valid, an invalid and a valid task: %+v, %v", got, err)
		}
		if got, err := client.AddToGroup(t.Context(), g.ID, []pawl.Item{bad}); err != nil || len(got) != 1 || got[0].Err == nil {
			t.Errorf("adding only an invalid task: %+v, %v", got, err)
		}
		for i, want := range map[int]string{0: `{"N":1}`, 2: `{"N":3}`} {
			if info, err := client.Task(t.Context(), got[i].Ref.ID); err != nil || string(info.Payload) != want || info.GroupID != g.ID {
				t.Errorf("item %d is %+v, %v", i, info, err)
			}
		}
	})
}
