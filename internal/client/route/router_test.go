package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// rig is a router that was given n1, and the nodes n1 to n3, which have the same map.
type rig struct {
	*testing.T
	d     *Router
	pipes map[string]*bufconn.Listener // by address

	mu    sync.Mutex
	log   strings.Builder
	asked map[string]int // requests for the map, or whether it is this node, by node
	away  string         // a node whose address is unreachable
	hangs string         // one whose address takes connections, and sends nothing
	hold  chan struct{}  // answers to these requests wait for it
	says  func(node string, m *pawlv1.GetMapResponse)
}

func startRig(t *testing.T) *rig {
	r := &rig{T: t, pipes: map[string]*bufconn.Listener{}, asked: map[string]int{}}
	for _, name := range []string{"n1", "n2", "n3"} {
		l, s := bufconn.Listen(1<<16), grpc.NewServer()
		pawlv1.RegisterClusterServiceServer(s, rigNode{r: r, name: name})
		grpc_health_v1.RegisterHealthServer(s, rigNode{r: r, name: name})
		r.pipes[name+":1"] = l
		go s.Serve(l)
		t.Cleanup(s.Stop)
	}
	cfg := &Config{Log: slog.New(slog.NewTextHandler(r, nil)), Plaintext: true, Dialer: r.dial, Namespace: "team",
		Token: func() (string, error) { return "secret", nil }}
	conn, err := cfg.open("passthrough:///n1:1")
	if err != nil {
		t.Fatal(err)
	}
	r.d = newRouter(conn, cfg)
	t.Cleanup(func() { r.d.Close() })
	r.d.refresh(t.Context())
	return r
}

func (r *rig) dial(ctx context.Context, addr string) (net.Conn, error) {
	r.mu.Lock()
	away, hangs := r.away, r.hangs
	r.mu.Unlock()
	switch addr {
	case away + ":1":
		return nil, errors.New("nobody is there")
	case hangs + ":1":
		near, _ := net.Pipe()
		return near, nil
	}
	return r.pipes[addr].DialContext(ctx)
}

// Write receives a line of the log.
func (r *rig) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

type rigNode struct {
	pawlv1.UnimplementedClusterServiceServer
	grpc_health_v1.UnimplementedHealthServer
	r    *rig
	name string
}

func (n rigNode) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if md, _ := metadata.FromIncomingContext(ctx); len(md["authorization"])+len(md["pawl-namespace"]) > 0 {
		n.r.Errorf("node %s was shown %v before it was known", n.name, md)
	}
	m, err := n.GetMap(ctx, nil)
	switch {
	case err != nil:
		return nil, err
	case m.GetVersion() == waitsVersion:
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	case r.GetService() != pawlv1.NodeService(m.GetClusterId(), m.GetNode()):
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// waitsVersion is the version of the map of a node that does not serve yet.
const waitsVersion = 99

func (n rigNode) GetMap(context.Context, *pawlv1.GetMapRequest) (*pawlv1.GetMapResponse, error) {
	n.r.mu.Lock()
	n.r.asked[n.name]++
	hold, says := n.r.hold, n.r.says
	n.r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	m := &pawlv1.GetMapResponse{Node: n.name, ClusterId: "c1", Version: 1, Shards: []*pawlv1.MapShard{{Shard: 1, Leader: "n1"},
		{Shard: 2, Leader: "n2"}, {Shard: 3, Leader: "n3"}}}
	for _, name := range []string{"n1", "n2", "n3"} {
		m.Nodes = append(m.Nodes, &pawlv1.MapNode{Name: name, ApiAddress: name + ":1"})
	}
	if says != nil {
		says(n.name, m)
	}
	return m, nil
}

// wantAsked checks which nodes were asked for the map since the last check.
func (r *rig) wantAsked(what, want string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.TrimPrefix(fmt.Sprint(r.asked), "map"); got != want {
		r.Errorf("%s: requests by node %s, want %s", what, got, want)
	}
	clear(r.asked)
}

func inRig(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		r.wantAsked("at first", "[n1:1]")
		test(r)
	})
}

var errNodeNotReady = func() error {
	st, _ := status.New(codes.Unavailable, "").WithDetails(&pawlv1.Error{Code: "unavailable", Reason: "node_not_ready"})
	return st.Err()
}()

// A channel that is retired is closed when the last of its calls ends; one without calls, immediately.
func TestChannelsCloseWithTheirLastCall(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		d.HasSeveralNodes()
		for _, calls := range []int{0, 1, 2} {
			if !d.Reach(r.Context(), "n2") || !d.Knows(OfShard(2)) {
				r.Fatal("n2 could not be reached")
			}
			var l *channel
			for range calls {
				l = d.pick(OfShard(2))
			}
			d.mu.Lock()
			n := d.nodes["n2"]
			if l == nil {
				l = n.channel
			}
			if l != n.channel || len(d.channels) != 1 {
				r.Fatalf("a call to n2 uses the channel %+v, and there are %d channels", l, len(d.channels))
			}
			d.retireLocked(n)
			d.retireLocked(n) // again, which is a no-op
			d.mu.Unlock()
			for left := calls; left > 0; left-- {
				synctest.Wait()
				if got := l.conn.GetState(); got == connectivity.Shutdown {
					r.Errorf("%d of %d calls are still running, but the channel was closed", left, calls)
				}
				d.release(l)
			}
			synctest.Wait()
			if got := l.conn.GetState(); got != connectivity.Shutdown || len(d.channels) != 0 {
				r.Errorf("after %d calls the channel is %s, and %d channels are left", calls, got, len(d.channels))
			}
		}
		for range 3 {
			d.release(d.any)
		}
		if d.any.conn.GetState() == connectivity.Shutdown {
			r.Error("the channel of Dial was closed")
		}
	})
}

// A call that ends while its channel is in use leaves it open.
func TestChannelsStayOpen(t *testing.T) {
	inRig(t, func(r *rig) {
		r.d.HasSeveralNodes()
		r.d.Reach(r.Context(), "n2")
		l := r.d.pick(OfShard(2))
		r.d.release(l)
		synctest.Wait()
		if l.conn.GetState() != connectivity.Ready || l.calls.Load() != 0 || r.d.pick(OfShard(2)) != l {
			r.Errorf("after a call the channel is %s with %d calls", l.conn.GetState(), l.calls.Load())
		}
	})
}

// Calls avoid a node that is not ready for a second, and go to it if no other works.
func TestUnreadyNodesAreAvoided(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		d.HasSeveralNodes()
		d.Reach(r.Context(), "n2")
		at := func(shard uint32) string {
			l := d.pick(OfShard(shard))
			d.release(l)
			return l.name
		}
		n2 := d.nodes["n2"].channel
		n2.backOff(errors.New("anything else"))
		if got := at(2); got != "n2" {
			r.Errorf("calls go to %q after an unrelated error, want n2", got)
		}
		n2.backOff(errNodeNotReady)
		time.Sleep(900 * time.Millisecond)
		n2.backOff(errNodeNotReady) // only the first one counts
		if got := at(2); got != "" {
			r.Errorf("calls go to %q while n2 is not ready, want the channel of Dial", got)
		}
		time.Sleep(101 * time.Millisecond)
		if got := at(2); got != "n2" {
			r.Errorf("calls go to %q a second later, want n2", got)
		}
		d.any.backOff(errNodeNotReady)
		if here, away := at(1), at(9); here != "n2" || away != "n2" {
			r.Errorf("calls go to %q and %q while n1 is not ready, want n2", here, away)
		}
		n2.backOff(errNodeNotReady)
		if here := at(1); here != "" {
			r.Errorf("calls go to %q while no node is ready, want the channel of Dial", here)
		}
	})
}

// While the address of Dial takes connections but does not answer, calls go to another node at once, and come back when it answers.
func TestCallsDoNotWaitForAConnection(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		d.HasSeveralNodes()
		d.Reach(r.Context(), "n2")
		at := func() string {
			l := d.pick(OfShard(1))
			d.release(l)
			return l.name
		}
		if got := at(); got != "" {
			r.Errorf("calls go to %q, want the channel of Dial", got)
		}
		hang := func(node string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.hangs = node
		}
		hang("n1")
		p := d.any.conn.prober
		p.mu.Lock()
		_ = p.raw.Close()
		p.mu.Unlock()
		for range 20 {
			synctest.Wait()
			if got := at(); got != "n2" {
				r.Errorf("while n1 does not answer, and the connection is %s, calls go to %q, want n2", d.any.conn.GetState(), got)
			}
			time.Sleep(time.Second)
		}
		hang("")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := at(); got != "" {
			r.Errorf("when n1 answers again, calls go to %q, want the channel of Dial", got)
		}
	})
}

// What a router learns from an answer, and what it prepares for the next call.
func TestRouterLearns(t *testing.T) {
	mail := Destination{queue: "mail", whole: true}
	for what, x := range map[string]struct {
		from  string
		of    stamp
		err   error
		shard uint32 // where mail is believed to be; 3 before
		known string // its known leader
		asked string
	}{
		"a leader elsewhere":      {"", stamp{2, true, "n3"}, nil, 2, "n3", "[n3:1]"},
		"the one that is known":   {"", stamp{3, true, "n3"}, nil, 3, "n3", "[]"},
		"the node itself":         {"", stamp{2, true, ""}, nil, 2, "n1", "[]"},
		"one that answered":       {"n2", stamp{1, true, ""}, nil, 1, "n2", "[]"},
		"no shard":                {"n3", stamp{}, nil, 3, "", "[]"},
		"not reached":             {"n3", stamp{}, errNodeNotReady, 3, "", "[]"},
		"refused":                 {"n3", stamp{}, status.Error(codes.InvalidArgument, ""), 3, "n3", "[]"},
		"another did not answer":  {"n2", stamp{}, nil, 3, "n3", "[]"},
		"the node of Dial didn't": {"", stamp{}, nil, 3, "n3", "[]"},
	} {
		inRig(t, func(r *rig) {
			d := r.d
			d.HasSeveralNodes()
			d.Reach(r.Context(), "n2")
			d.mu.Lock()
			d.topology.queues["mail"] = 3
			d.mu.Unlock()
			r.wantAsked("n2", "[n2:1]")
			from := d.any
			if x.from != "" {
				from = &channel{name: x.from}
			}
			d.learn(mail, from, x.of, x.err)
			r.wantAsked(what, x.asked)
			if shard, leader := d.topology.queues["mail"], d.topology.leader(mail); shard != x.shard || leader != x.known {
				r.Errorf("%s: the queue is in shard %d, led by %q, want %d, %q", what, shard, leader, x.shard, x.known)
			}
		})
	}
	// If a server has never named another node, only the shards of queues are learned.
	inRig(t, func(r *rig) {
		if shard, known := r.d.OnlyShardOf("mail"); known {
			r.Errorf("before any answer the queue is in shard %d", shard)
		}
		r.d.learn(mail, r.d.any, stamp{3, true, ""}, nil)
		if r.d.clustered.Load() || r.d.pick(OfShard(2)) != r.d.any {
			r.Error("a router with a single node learned of others from an answer")
		}
		if shard, known := r.d.OnlyShardOf("mail"); shard != 3 || !known {
			r.Errorf("after an answer from shard 3 the queue is in %d, known %v", shard, known)
		}
		r.wantAsked("a single node", "[]")
		delete(r.d.topology.queues, "mail")
		r.d.learn(mail, r.d.any, stamp{3, true, "n3"}, nil)
		if r.d.topology.queues["mail"] != 3 || !r.d.clustered.Load() {
			r.Error("a router did not learn from an answer that names another node")
		}
	})
}

// Fetches of the map don't overlap, are spaced out, and end with the router.
func TestMapFetchesAreSpaced(t *testing.T) {
	inRig(t, func(r *rig) {
		d, now := r.d, time.Now()
		may := func(after time.Duration) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.mayRefreshLocked(now.Add(after), refreshSoon)
		}
		d.jitter = 1.5
		d.refreshed = now
		if may(7499 * time.Millisecond) {
			r.Error("a refresh was allowed too early")
		}
		if !may(7500 * time.Millisecond) {
			r.Error("a refresh was not allowed when it was due")
		}
		if d.jitter < 0.5 || d.jitter > 1.5 {
			r.Errorf("the next interval is stretched by %v, want 0.5 to 1.5", d.jitter)
		}
		if may(time.Hour) {
			r.Error("a refresh was allowed while another was running")
		}
		d.refresh(r.Context())
		d.mu.Lock()
		d.jitter = 1
		d.mu.Unlock()
		if may(12 * time.Second) {
			r.Error("a refresh was allowed too early after the last one")
		}
		d.closed = true
		if may(time.Hour) {
			r.Error("a refresh was allowed after the router was closed")
		}
	})
}

// An unreachable node is tried again, less and less often, and the log says so once.
func TestUnreachableNodes(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		r.away = "n2"
		for i := range 3 {
			for range 2 {
				if d.Reach(r.Context(), "n2") {
					r.Fatal("an unreachable node was reached")
				}
			}
			if i == 0 {
				r.wantAsked("its address may be another", "[n1:1]")
			}
			time.Sleep(time.Minute)
		}
		if n := d.nodes["n2"]; n.tries != 3 || n.dialing || strings.Count(r.log.String(), "level=INFO") != 1 {
			r.Errorf("%d tries, want 3, dialing %v, log:\n%s", n.tries, n.dialing, r.log.String())
		}
		r.mu.Lock()
		r.away = ""
		r.mu.Unlock()
		if !d.Reach(r.Context(), "n2") || d.nodes["n2"].tries != 0 || !d.Reach(r.Context(), "n2") || !d.Reach(r.Context(), "n1") ||
			d.Reach(r.Context(), "n9") {
			r.Errorf("after n2 was reachable again: %+v", d.nodes["n2"])
		}
		d.mu.Lock()
		d.retireLocked(d.nodes["n2"])
		d.mu.Unlock()
		r.mu.Lock()
		r.away = "n2"
		r.mu.Unlock()
		for range 2 {
			time.Sleep(time.Minute)
			if d.Reach(r.Context(), "n2") {
				r.Error("it is reached although it is away again")
			}
		}
		if n := strings.Count(r.log.String(), "level=INFO"); n != 2 {
			r.Errorf("it was away twice, and the log says so %d times:\n%s", n, r.log.String())
		}
	})
}

// A call for a node without a channel prepares one; a call for the node of Dial, or for no node, does not.
func TestCallsBeginChannels(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		d.HasSeveralNodes()
		for _, shard := range []uint32{1, 9} {
			if d.pick(OfShard(shard)) != d.any {
				r.Errorf("shard %d: the call does not use the channel of Dial", shard)
			}
			r.wantAsked(fmt.Sprint("shard ", shard), "[]")
		}
		if d.pick(OfShard(3)) != d.any {
			r.Error("shard 3: the call does not use the channel of Dial")
		}
		r.wantAsked("shard 3", "[n3:1]")
		if l := d.pick(OfShard(3)); l.name != "n3" {
			r.Errorf("shard 3: the call goes to %q, want n3", l.name)
		}
	})
}

// A node must identify itself, and its channel is dropped if its address changes.
func TestNodesIdentifyThemselves(t *testing.T) {
	for what, says := range map[string]func(node string, m *pawlv1.GetMapResponse){
		"another node":      func(_ string, m *pawlv1.GetMapResponse) { m.Node = "n3" },
		"another cluster":   func(_ string, m *pawlv1.GetMapResponse) { m.ClusterId = "c2" },
		"a node that waits": func(_ string, m *pawlv1.GetMapResponse) { m.Version = waitsVersion },
	} {
		inRig(t, func(r *rig) {
			r.says = says
			if r.d.Reach(r.Context(), "n2") || len(r.d.channels) != 0 {
				r.Errorf("%s was reached, and there are %d channels", what, len(r.d.channels))
			}
		})
	}
	for what, says := range map[string]func(node string, m *pawlv1.GetMapResponse){
		"moves":      func(_ string, m *pawlv1.GetMapResponse) { m.Nodes[1].ApiAddress = "elsewhere:1" },
		"is gone":    func(_ string, m *pawlv1.GetMapResponse) { m.Nodes[1].Name = "n4" },
		"is staying": func(string, *pawlv1.GetMapResponse) {},
	} {
		inRig(t, func(r *rig) {
			r.d.Reach(r.Context(), "n2")
			r.says = says
			r.d.refresh(r.Context())
			synctest.Wait()
			want := 0
			if what == "is staying" {
				want = 1
			}
			if len(r.d.channels) != want || len(r.d.nodes) != want {
				r.Errorf("n2 %s: %d channels to %d nodes, want %d", what, len(r.d.channels), len(r.d.nodes), want)
			}
		})
	}
}

// If a node's address changes, or the node is removed, while a channel to it is made, the channel is dropped; concurrent dials
// don't wait for each other.
func TestNodesChangeDuringDial(t *testing.T) {
	for _, closed := range []bool{false, true} {
		inRig(t, func(r *rig) {
			d := r.d
			r.hold = make(chan struct{})
			done := make(chan bool, 1)
			go func() { done <- d.Reach(r.Context(), "n2") }()
			synctest.Wait()
			if d.Reach(r.Context(), "n2") {
				r.Error("Reach succeeded while another call was still dialing")
			}
			d.mu.Lock()
			old := d.nodes["n2"]
			if d.closed = closed; !closed {
				d.nodes["n2"] = &node{name: "n2", addr: "elsewhere:1"}
			}
			d.mu.Unlock()
			close(r.hold)
			if <-done || old.channel != nil || old.dialing || len(d.channels) != 0 {
				r.Errorf("closed %v: the replaced node has the channel %v, and %d channels are open", closed, old.channel, len(d.channels))
			}
			d.mu.Lock()
			d.closed = true
			n := d.dialLocked("n3", "n3:1", time.Now())
			d.closed = false
			d.mu.Unlock()
			if n != nil {
				r.Error("a closed router dialed a node")
			}
		})
	}
}

// A router knows a stream's place if the leader is on its own node, or can be reached directly. It does not know what it has forgotten.
func TestStreamDestinations(t *testing.T) {
	inRig(t, func(r *rig) {
		d := r.d
		knows := func() string {
			return fmt.Sprint(d.Knows(OfShard(1)), d.Knows(OfShard(2)), d.Knows(OfShard(3)), d.Knows(OfShard(9)))
		}
		if got := knows(); got != "true false false false" {
			r.Errorf("Knows for shards 1, 2, 3 and 9: %s", got)
		}
		d.Reach(r.Context(), "n3")
		if got := knows(); got != "true false true false" {
			r.Errorf("Knows with n3 reached: %s", got)
		}
		d.Forget(OfShard(1))
		d.Forget(OfShard(3))
		if got := knows(); got != "false false false false" {
			r.Errorf("Knows after Forget: %s", got)
		}
		r.wantAsked("so far", "[n3:1]")
		time.Sleep(2 * refreshSoon)
		if a, b := d.LeaderNow(r.Context(), 3), d.LeaderNow(r.Context(), 9); a != "n3" || b != "" {
			r.Errorf("LeaderNow returned %q for shard 3 and %q for shard 9", a, b)
		}
		r.wantAsked("at the first question alone", "[n1:1]")
	})
}
