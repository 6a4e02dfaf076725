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
			st, err := status.New(codes.Unavailable, "not now").WithDetails(&pawlv1.Error{Code: "unavailable", Reason: reason,
				RetryAfter: durationpb.New(time.Second)})
			return errors.Join(err, st.Err())
		}
	})
}

// atOnce is longer than the pauses that a client makes by itself, and shorter than the requested one.
const atOnce = 300 * time.Millisecond

// A client with the addresses of several nodes moves on to another one when a node is not ready: within its own short pauses, whatever it
// calls, and however many calls find out at the same time. The same holds without direct connections.
func TestClientLeavesUnreadyNode(t *testing.T) {
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
							t.Errorf("%v not ready: listing tasks: %v", unready, err)
						}
					})
				}
				calls.Wait()
				if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
					t.Errorf("%v not ready: enqueuing: %v", unready, err)
				}
				dials := c.dialled()
				if took := time.Since(began); took > atOnce || strings.Count(dials, ":7295") > 4 {
					t.Errorf("%v not ready: the calls took %s, dialed %s, and reached %s", unready, took, dials, c.took())
				}
			})
		}
	}
}

// A connected client stays with its node until the node is no longer ready, for example after a restart behind one address.
func TestClientStaysWithReadyNode(t *testing.T) {
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
			t.Errorf("after the node was no longer ready, the calls reached %v, want one retry at another node", took)
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
			t.Errorf("with no node ready: %v, want DeadlineExceeded", err)
		}
		called := c.took()
		for _, n := range []string{"n1", "n2", "n3"} {
			if asked := strings.Count(called, n+" Enqueue"); asked == 0 || asked > 30 {
				t.Errorf("with no node ready, %s was called %d times in 10 s, want 1 to 30", n, asked)
			}
		}
		c.notReady()
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Errorf("after all nodes are ready again: %v", err)
		}
		for _, left := range []string{"n1", "n2", "n3"} { // the client forgot none of them
			for _, n := range []string{"n1", "n2", "n3"} {
				if n != left {
					c.kill(n)
				}
			}
			if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
				t.Errorf("only %s is running: %v", left, err)
			}
			for _, n := range []string{"n1", "n2", "n3"} {
				if n != left {
					c.start(n)
				}
			}
		}
	})
}

// A client with one address that has discovered the other nodes switches to these, and so does one whose direct
// connection leads to a node that is not ready.
func TestUnreadyNodeAtTheOnlyAddress(t *testing.T) {
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
				for _, queue := range []string{"default", fmt.Sprint("q", i)} { // the shard of one of the two is known
					if _, err := client.Enqueue(t.Context(), welcome{}, pawl.Queue(queue)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if took := time.Since(began); took > atOnce {
				t.Errorf("%s not ready, leader %s: 40 calls took %s", x.unready, x.leader, took)
			}
			if took := c.took(); strings.Count(took, x.unready+" Enqueue") > 3 {
				t.Errorf("%s not ready, leader %s: the calls reached %s, the first node too often", x.unready, x.leader, took)
			}
			time.Sleep(2 * time.Second)
			c.took()
			for range 10 { // calls that are not for a shard
				// the fake has no such method
				if _, err := admin.New(client).Cluster().Status(t.Context()); errors.Is(err, pawltype.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			if took := c.took(); strings.Count(took, x.unready+" GetCluster") > 1 {
				t.Errorf("%s not ready, leader %s: the calls reached %s, the first node too often", x.unready, x.leader, took)
			}
		})
	}
}

// A client does not leave a node that is unavailable for another reason, and respects the requested pause: another node
// would ask the same shard.
func TestClientStaysAfterOtherRefusals(t *testing.T) {
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
			t.Errorf("the call returned after %s, want at least the two requested pauses of 1 s", took)
		}
		c.wantTaken("a refusal that is not of the node", strings.TrimSuffix(strings.Repeat(first+" Enqueue, ", 3), ", "))
	})
}

// Many callers of a cluster that is not ready, or that refuses all calls, cause no retry storm. Beyond the budget,
// calls that wait too long for it are retried about every two seconds, and calls refused by a node that was not ready
// are retried three times immediately.
func TestNoRetryStormOnUnreadyCluster(t *testing.T) {
	inTwoSeconds := func(t *testing.T, reason string) int {
		c := startNodes(t)
		c.unavailable(reason, "n1", "n2", "n3")
		client := c.client("n1:7295,n2:7295,n3:7295")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if _, err := admin.New(client).Tasks().ListPage(ctx, admin.Filter{}, pawltype.PageRequest{}); !errors.Is(err,
					context.DeadlineExceeded) {
					t.Errorf("with no node ready: %v, want DeadlineExceeded", err)
				}
			})
		}
		calls.Wait()
		return strings.Count(c.took(), "ListTasks")
	}
	for reason, most := range map[string]int{"": 50 + 10 + 10, "node_not_ready": 50 + 50*3 + 10 + 10} {
		synctest.Test(t, func(t *testing.T) {
			if n := inTwoSeconds(t, reason); n > most {
				t.Errorf("reason %q: 50 callers made %d attempts in 2 s, want at most %d", reason, n, most)
			}
		})
	}
}

// A worker's stream is reopened at another node.
func TestWorkerLeavesUnreadyNode(t *testing.T) {
	for _, unready := range slices.Repeat([]string{"n1", "n2", "n3"}, 10) { // the address that a client uses is random
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.notReady(unready)
			client := c.client("n1:7295,n2:7295,n3:7295")
			done := make(chan struct{}, 1)
			_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { done <- struct{}{}; return nil }),
				pawl.WorkerConfig{})
			defer stop()
			began := time.Now()
			// this client has to discover the nodes itself
			if _, err := c.client("n1:7295,n2:7295,n3:7295").Enqueue(t.Context(), welcome{}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-done:
			case <-time.After(time.Minute):
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s not ready: the task ran after %s, want at most 2s", unready, took)
			}
		})
	}
}
