package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// must enqueues a task, and fails the test if that takes any fake time.
func (c *nodes) must(client *pawl.Client, opts ...pawl.Option) *pawl.Ref {
	c.t.Helper()
	began := time.Now()
	ref, err := client.Enqueue(c.t.Context(), welcome{}, opts...)
	if took := time.Since(began); err != nil || took > 0 {
		c.t.Fatalf("enqueue: %v, after %s; the calls reached %s", err, took, c.took())
	}
	synctest.Wait() // let the background work finish
	return ref
}

func (c *nodes) wantTaken(what, want string) {
	c.t.Helper()
	if got := c.took(); got != want {
		c.t.Errorf("%s: the calls reached %q, want %q", what, got, want)
	}
}

// The first call is forwarded. Its response names the leader, and the next calls of any kind go there.
func TestCallsGoToLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		ref := c.must(client)
		c.wantTaken("the first call", "n1 Enqueue, n1 GetMap, n2 Check")
		c.must(client)
		if _, err := client.Task(t.Context(), ref.ID); err != nil {
			t.Error(err)
		}
		claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"default"}, Max: 2})
		if err != nil || len(claimed) != 2 {
			t.Fatal(claimed, err)
		}
		if _, err := claims.New(client).Extend(t.Context(), claimed[0], claims.Extension{}); err != nil {
			t.Error(err)
		}
		if err := claims.New(client).Ack(t.Context(), claimed[0]); err != nil {
			t.Error(err)
		}
		if _, err := claims.New(client).SettleAll(t.Context(), []claims.Settlement{{Claim: claimed[1]}}); err != nil {
			t.Error(err)
		}
		if _, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: welcome{}}, {Args: welcome{}}}); err != nil {
			t.Error(err)
		}
		c.wantTaken("further calls", "n2 Enqueue, n2 GetTask, n2 Claim, n2 Extend, n2 Ack, n2 Settle, n2 EnqueueBatch")
		if _, err := admin.New(client).Cluster().Server(t.Context()); err != nil {
			t.Error(err)
		}
		c.wantTaken("a call of no shard", "n1 GetServer")
		if got := c.dialled(); got != "n1:7295, n2:7295" {
			t.Errorf("the client dialed %s, want n1 and n2", got)
		}
	})
}

// The leader moves: the old one forwards one call, and the next calls go to the new one.
func TestLeaderMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		for range 3 {
			c.must(client)
		}
		c.took()
		c.lead(1, "n3")
		for range 3 {
			c.must(client)
		}
		c.wantTaken("to n3", "n2 Enqueue, n3 Check, n3 Enqueue, n3 Enqueue")
		c.lead(1, "n1")
		c.must(client)
		c.must(client)
		c.wantTaken("to the node that the client is at", "n3 Enqueue, n1 Enqueue")
		c.lead(1, "n2")
		c.must(client)
		c.must(client)
		c.wantTaken("back over the old line", "n1 Enqueue, n2 Enqueue")
	})
}

// The address of Dial now leads to another node. What is known about the previous one does not apply to it.
func TestDialAddressLeadsToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		behind := "n1:7295"
		c.reach = func(_ context.Context, addr string) (string, error) {
			if addr == "any:7295" {
				return behind, nil
			}
			return addr, nil
		}
		c.lead(1, "n2")
		client := c.client("any:7295")
		c.must(client)
		c.lead(1, "n1")
		c.must(client)
		c.must(client)
		c.set(func() { behind = "n3:7295" })
		c.kill("n1")
		c.start("n1")
		synctest.Wait()
		c.took()
		c.must(client)
		c.must(client)
		c.must(client)
		c.wantTaken("n3 in place of n1", "n2 Enqueue, n3 Enqueue, n1 Check, n1 Enqueue") // n2: until n3 is connected
	})
}

// Queues are in several shards, each led by another node.
func TestLeadersOfSeveralShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.set(func() {
			c.homes = map[string]uint32{"a": 1, "b": 2, "c": 300}
			c.leaders = map[uint32]string{1: "n1", 2: "n2", 300: "n3"}
		})
		client := c.client("n1:7295")
		ids := map[string]string{}
		for range 3 {
			for _, q := range []string{"a", "b", "c"} {
				ids[q] = c.must(client, pawl.Queue(q)).ID
			}
		}
		c.took()
		for _, q := range []string{"a", "b", "c"} {
			c.must(client, pawl.Queue(q))
			if _, err := admin.New(client).Tasks().Cancel(t.Context(), ids[q]); err != nil {
				t.Error(err)
			}
		}
		c.wantTaken("a, b, c", "n1 Enqueue, n1 CancelTask, n2 Enqueue, n2 CancelTask, n3 Enqueue, n3 CancelTask")
		c.set(func() { c.homes["a"] = 300 })
		c.must(client, pawl.Queue("a"))
		c.must(client, pawl.Queue("a"))
		c.wantTaken("a in another shard", "n1 Enqueue, n3 Enqueue")
	})
}

// If a server's responses name no other node, the client fetches no map and dials no other address. The same holds for
// a client with NoRouting.
func TestNoUnneededDials(t *testing.T) {
	for _, leader := range []string{"n1", "n2"} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, leader)
			var opts []pawl.DialOptions
			if leader != "n1" {
				opts = append(opts, pawl.DialOptions{NoRouting: true})
			}
			client := c.client("n1:7295", opts...)
			for range 3 {
				c.must(client)
				time.Sleep(time.Hour)
			}
			if got, dialled := c.took(), c.dialled(); strings.Contains(got, "GetMap") || strings.Contains(got, "n2") ||
				strings.Contains(dialled, "n2") {
				t.Errorf("leader %s: the calls reached %q, and the client dialed %q", leader, got, dialled)
			}
		})
	}
}

// A node dies: another node forwards calls, which then go to the new leader directly. The same happens when the dead
// node is back and leads.
func TestNodeDies(t *testing.T) {
	for _, told := range []string{"n1:7295", "n2:7295", "n2:7295,n1:7295"} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, "n2")
			client := c.client(told)
			c.homes["away"], c.leaders[2] = 2, "n3"
			for range 3 {
				c.must(client)
				c.must(client, pawl.Queue("away"))
			}
			c.lead(1, "n3")
			c.kill("n2")
			for range 20 {
				if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			c.took()
			c.must(client)
			c.wantTaken("told "+told+", n2 dead", "n3 Enqueue")
			c.start("n2")
			c.lead(1, "n2")
			for range 3 {
				c.must(client)
				time.Sleep(2 * time.Minute) // the pause between attempts has grown
			}
			c.took()
			c.must(client)
			c.wantTaken("told "+told+", n2 back", "n2 Enqueue")
		})
	}
}

// A node that no longer leads and doesn't know the leader is not called again and again: the retry goes to another node.
func TestPartitionedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		for range 3 {
			c.must(client)
		}
		c.took()
		c.set(func() {
			c.leaders[1] = "n3"
			c.before = func(node, method string) error {
				if node == "n2" && method == "Enqueue" {
					return errUnavailable
				}
				return nil
			}
		})
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		c.must(client)
		c.wantTaken("n2 is cut off", "n2 Enqueue, n1 Enqueue, n3 Check, n3 Enqueue")
	})
}

// Calls in flight at a node that drains finish there, and new ones go elsewhere.
func TestNodeDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		ref := c.must(client)
		c.must(client)
		c.must(client)
		waited := make(chan error, 1)
		go func() { _, err := client.Wait(t.Context(), ref.ID); waited <- err }()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { c.servers["n2"].GracefulStop(); close(stopped) }()
		synctest.Wait()
		c.took()
		c.lead(1, "n1")
		c.must(client)
		if got := c.took(); !strings.HasPrefix(got, "n1 Enqueue") {
			t.Errorf("the calls reached %s, want n1 first", got)
		}
		claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"default"}})
		if err != nil || len(claimed) != 1 || claimed[0].ID != ref.ID {
			t.Fatal(claimed, err)
		}
		if err := claims.New(client).Ack(t.Context(), claimed[0]); err != nil {
			t.Error(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("the call in flight at n2: %v", err)
		}
		<-stopped
		if got := c.took(); strings.Contains(got, "n1 GetTask") {
			t.Errorf("the call in flight was repeated at n1: %s", got)
		}
	})
}

// If the leader can't be reached, or another server answers in its place, calls go through the node of Dial, without
// delay or errors. This is logged once.
func TestUnreachableLeader(t *testing.T) {
	away := func(to func(ctx context.Context) (string, error)) func(*nodes) {
		return func(c *nodes) {
			c.reach = func(ctx context.Context, addr string) (string, error) {
				if addr == "n2:7295" {
					return to(ctx)
				}
				return addr, nil
			}
		}
	}
	advertised := func(addr string) func(*nodes) {
		return func(c *nodes) { c.addrs["n2"] = addr }
	}
	for what, prepare := range map[string]func(*nodes){
		"nobody is there":  away(func(context.Context) (string, error) { return "", errors.New("no route to host") }),
		"nobody answers":   away(func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }),
		"another node":     away(func(context.Context) (string, error) { return "n3:7295", nil }),
		"the node of Dial": away(func(context.Context) (string, error) { return "n1:7295", nil }),
		"another cluster": func(c *nodes) {
			c.editMap = func(node string, m *pawlv1.GetMapResponse) {
				if node == "n2" {
					m.ClusterId = "c2"
				}
			}
		},
		"no address":   advertised(""),
		"a socket":     advertised("unix:///run/pawl.sock"),
		"no port":      advertised("n2"),
		"anywhere":     advertised("0.0.0.0:7295"),
		"a long name":  advertised(strings.Repeat("n", 1000) + ":7295"),
		"not a name":   advertised("n2/../%zz\x00:7295"),
		"no such node": func(c *nodes) { delete(c.addrs, "n2") },
		"a server without a name": func(c *nodes) {
			c.editMap = func(_ string, m *pawlv1.GetMapResponse) { m.Node, m.ClusterId = "", "" }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, "n2")
			prepare(c)
			client := c.client("n1:7295")
			for range 100 {
				c.must(client)
				time.Sleep(5 * time.Second)
			}
			if got := c.took(); strings.Contains(got, "n2 Enqueue") || strings.Contains(got, "n3 Enqueue") || strings.Count(got, "GetMap")+
				strings.Count(got, "Check") > 220 {
				t.Errorf("%s: the calls reached %s", what, got)
			}
			if n := strings.Count(c.dialled(), "n2:7295"); n > 30 {
				t.Errorf("%s: the client dialed n2 %d times in 500 s, want at most 30", what, n)
			}
			if n := strings.Count(c.logged(), "level="); n > 1 || strings.Contains(c.logged(), "WARN") {
				t.Errorf("%s: the log has\n%s", what, c.logged())
			}
		})
	}
}

// A node with a new address is found there.
func TestNodeChangesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		for range 3 {
			c.must(client)
		}
		c.kill("n2")
		c.start("n2")
		c.set(func() {
			c.pipes["new:7295"] = c.pipes["n2:7295"]
			delete(c.pipes, "n2:7295")
			c.addrs["n2"], c.version = "new:7295", 2
		})
		for range 5 {
			if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		c.took()
		c.must(client)
		c.wantTaken("at its new address", "n2 Enqueue")
	})
}

// Unused connections are closed, and reopened when they are needed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		client := c.client("n1:7295")
		for range 2 {
			c.must(client)
			c.must(client)
			got := strings.Split(c.dialled(), ", ")
			if slices.Sort(got); !slices.Equal(got, []string{"n1:7295", "n2:7295"}) {
				t.Errorf("the client dialed %s, want n1 and n2 once each", got)
			}
			time.Sleep(29 * time.Minute)
			c.must(client)
			if got := c.dialled(); got != "" {
				t.Errorf("the client dialed %s after 29 minutes, want no new connection", got)
			}
			time.Sleep(31 * time.Minute)
		}
	})
}

// Addresses that Dial would refuse are refused from a map, too: no token is sent in plaintext to another machine.
func TestNoTokenInPlaintextByAMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		c.set(func() {
			c.pipes["127.0.0.1:7295"] = c.pipes["n1:7295"]
			c.addrs["n2"] = "192.0.2.1:7295"
			c.pipes["192.0.2.1:7295"] = c.pipes["n2:7295"]
		})
		for _, plaintext := range []bool{false, true} {
			opts := []pawl.DialOptions{{Logger: slog.New(slog.DiscardHandler), Token: "secret",
				GRPC: []grpc.DialOption{grpc.WithContextDialer(c.dial)}}}
			want := "127.0.0.1:7295"
			if plaintext {
				opts, want = append(opts, pawl.DialOptions{Plaintext: true}), want+", 192.0.2.1:7295"
			}
			client, err := pawl.Dial("127.0.0.1:7295", opts...)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				c.must(client)
			}
			client.Close()
			if got := c.dialled(); got != want {
				t.Errorf("plaintext %v: the client dialed %s, want %s", plaintext, got, want)
			}
		}
	})
}

// Trailers may contain anything.
func TestGarbageTrailers(t *testing.T) {
	for _, garbage := range []metadata.MD{
		metadata.Pairs("pawl-shard", "-1", "pawl-leader", "n2"), metadata.Pairs("pawl-shard", "4096", "pawl-leader", "n2"),
		metadata.Pairs("pawl-shard", "1, 2", "pawl-leader", "n2"), metadata.Pairs("pawl-leader", "n2"), metadata.Pairs("pawl-shard", "1",
			"pawl-leader", strings.Repeat("n", 1000)),
		metadata.Pairs("pawl-shard", "1", "pawl-shard", "2", "pawl-leader", "n2"), metadata.Pairs("pawl-shard", "1", "pawl-leader", "n2",
			"pawl-leader", "n3"), nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, "n2")
			c.trailers = func(metadata.MD) metadata.MD { return garbage }
			client := c.client("n1:7295")
			for range 3 {
				c.must(client)
			}
			c.wantTaken(fmt.Sprint(garbage), "n1 Enqueue, n1 Enqueue, n1 Enqueue")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.trailers = func(metadata.MD) metadata.MD { return metadata.Pairs("pawl-shard", "1", "pawl-leader", "nobody") }
		client := c.client("n1:7295")
		for range 100 {
			c.must(client)
			time.Sleep(time.Second)
		}
		if n := strings.Count(c.took(), "GetMap"); n < 5 || n > 50 {
			t.Errorf("with an unknown leader the map was requested %d times in 100 s, want 5 to 50", n)
		}
	})
}
