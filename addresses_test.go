package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// notReady makes some nodes answer like nodes that have no contact with their cluster.
func (c *nodes) notReady(names ...string) { c.unavailable("node_not_ready", names...) }

// unavailable makes some nodes refuse all calls for a reason, with a RetryAfter of a second.
func (c *nodes) unavailable(reason string, names ...string) {
	c.set(func() {
		c.before = func(node, _ string) error {
			if !slices.Contains(names, node) {
				return nil
			}
			st, err := status.New(codes.Unavailable, "not now").WithDetails(&pawlv1.Error{Code: "unavailable", Reason: reason, RetryAfter: durationpb.New(time.Second)})
			return errors.Join(err, st.Err())
		}
	})
}

// atOnce is longer than the pauses that a client makes by itself, and shorter than the requested one.
const atOnce = 300 * time.Millisecond

// A client with the addresses of several nodes moves on to another one when a node is not ready: within its own short pauses, whatever it
// calls, and however many calls find out at the same time. The same holds without direct connections.
func TestNodesThatAreNotReady(t *testing.T) {
	for _, opts := range [][]pawl.DialOptions{nil, {pawl.DialOptions{NoRouting: true}}} {
		for _, unready := range [][]string{{"n1"}, {"n2"}, {"n3"}, {"n1", "n2"}, {"n2", "n3"}, {"n1", "n3"}} {
			synctest.Test(t, func(t *testing.T) {
				c := startNodes(t)
				c.lead(1, "n1")
				c.notReady(unready...)
				client := c.client("n1:7295,n2:7295,n3:7295", opts...)
				var calls sync.WaitGroup
				began := time.Now()
				for range 50 {
					calls.Go(func() {
						if _, err := admin.New(client).Tasks().ListPage(t.Context(), admin.Filter{}, pawltype.PageRequest{}); err != nil {
							t.Errorf("%v not ready: %v", unready, err)
						}
					})
				}
				calls.Wait()
				if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
					t.Errorf("%v not ready: %v", unready, err)
				}
				dials := c.dialled()
				if took := time.Since(began); took > atOnce || strings.Count(dials, ":7295") > 4 {
					t.Errorf("%v not ready: answered after %s; dialled %s; the nodes took %s", unready, took, dials, c.took())
				}
			})
		}
	}
}

// A connected client stays where it is, until its node is no longer ready, as after a restart behind one address.
func TestOnlyANodeThatIsNotReadyIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		client := c.client("n1:7295,n2:7295,n3:7295", pawl.DialOptions{NoRouting: true})
		c.must(client)
		first, _, _ := strings.Cut(c.took(), " ")
		for range 5 {
			c.must(client)
			time.Sleep(time.Minute)
		}
		c.wantTaken("while it is ready", strings.TrimSuffix(strings.Repeat(first+" Enqueue, ", 5), ", "))
		c.notReady(first)
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		took := strings.Split(c.took(), ", ")
		second, _, _ := strings.Cut(took[len(took)-1], " ")
		if len(took) != 2 || took[0] != first+" Enqueue" || second == first {
			t.Errorf("not ready any more: the nodes took %v", took)
		}
		c.notReady(second)
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Fatal(err)
		}
		c.took()
		c.notReady("n1", "n2", "n3")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := client.Enqueue(ctx, welcome{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("none is ready: %v", err)
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			if asked := strings.Count(c.took(), n+" Enqueue"); asked > 30 {
				t.Errorf("none is ready: %s was asked %d times in 10 s", n, asked)
			}
		}
		c.notReady()
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Errorf("all are ready again: %v", err)
		}
		for _, left := range []string{"n1", "n2", "n3"} { // none was forgotten
			for _, n := range []string{"n1", "n2", "n3"} {
				if n != left {
					c.kill(n)
				}
			}
			if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
				t.Errorf("only %s is left: %v", left, err)
			}
			for _, n := range []string{"n1", "n2", "n3"} {
				if n != left {
					c.start(n)
				}
			}
		}
	})
}

// A client with one address that has learned of the other nodes goes to these; so does one whose direct connection leads to a node that is not ready.
func TestOneAddressThatIsNotReady(t *testing.T) {
	for _, x := range []struct{ leader, unready string }{{"n2", "n1"}, {"n2", "n2"}} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, x.leader)
			client := c.client("n1:7295")
			for range 3 {
				c.must(client)
			}
			c.notReady(x.unready)
			c.took()
			began := time.Now()
			for i := range 20 {
				for _, queue := range []string{"default", fmt.Sprint("q", i)} { // the shard of one of them is known
					if _, err := client.Enqueue(t.Context(), welcome{}, pawl.Queue(queue)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if took := time.Since(began); took > atOnce {
				t.Errorf("%s not ready, %s leads: 40 calls took %s", x.unready, x.leader, took)
			}
			if took := c.took(); strings.Count(took, x.unready+" Enqueue") > 3 {
				t.Errorf("%s not ready, %s leads: the nodes took %s", x.unready, x.leader, took)
			}
			time.Sleep(2 * time.Second)
			c.took()
			for range 10 { // not for a shard
				if _, err := admin.New(client).Cluster().Status(t.Context()); errors.Is(err, pawltype.ErrUnavailable) { // the fake has no such method
					t.Fatal(err)
				}
			}
			if took := c.took(); strings.Count(took, x.unready+" GetCluster") > 1 {
				t.Errorf("%s not ready, %s leads: the nodes took %s", x.unready, x.leader, took)
			}
		})
	}
}

// A node that is unavailable for another reason is not left, and the requested pause is kept: another node would ask the same shard.
func TestOtherRefusalsMoveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		client := c.client("n1:7295,n2:7295,n3:7295", pawl.DialOptions{NoRouting: true})
		c.must(client)
		first, _, _ := strings.Cut(c.took(), " ")
		c.unavailable("", first)
		began := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { c.notReady() })
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("repeated after %s, though two pauses of 1 s were asked for", took)
		}
		c.wantTaken("a refusal that is not of the node", strings.TrimSuffix(strings.Repeat(first+" Enqueue, ", 3), ", "))
	})
}

// Many callers of a cluster that is not ready, or refuses them all, cause no storm. Beyond the budget, those that wait too long for it
// return about every two seconds, and those refused by a node that was not ready return three times right away.
func TestNoStormOnNodesThatAreNotReady(t *testing.T) {
	inTwoSeconds := func(t *testing.T, reason string) int {
		c := startNodes(t)
		c.unavailable(reason, "n1", "n2", "n3")
		client := c.client("n1:7295,n2:7295,n3:7295")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if _, err := admin.New(client).Tasks().ListPage(ctx, admin.Filter{}, pawltype.PageRequest{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("none is ready: %v", err)
				}
			})
		}
		calls.Wait()
		return strings.Count(c.took(), "ListTasks")
	}
	for reason, most := range map[string]int{"": 50 + 10 + 10, "node_not_ready": 50 + 50*3 + 10 + 10} {
		synctest.Test(t, func(t *testing.T) {
			if n := inTwoSeconds(t, reason); n > most {
				t.Errorf("reason %q: 50 callers made %d tries in 2 s, want %d at most", reason, n, most)
			}
		})
	}
}

// A worker's stream is reopened at another node.
func TestAWorkerLeavesANodeThatIsNotReady(t *testing.T) {
	for _, unready := range slices.Repeat([]string{"n1", "n2", "n3"}, 10) { // which address a client uses is random
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.notReady(unready)
			client := c.client("n1:7295,n2:7295,n3:7295")
			done := make(chan struct{}, 1)
			_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { done <- struct{}{}; return nil }), pawl.WorkerConfig{})
			defer stop()
			began := time.Now()
			if _, err := c.client("n1:7295,n2:7295,n3:7295").Enqueue(t.Context(), welcome{}); err != nil { // this client finds out for itself
				t.Fatal(err)
			}
			select {
			case <-done:
			case <-time.After(time.Minute):
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s not ready: the task ran after %s", unready, took)
			}
		})
	}
}
