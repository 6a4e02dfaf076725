package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"

	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// fakeCluster is a fake server for calls of the cluster. It returns prepared responses and records requests.
type fakeCluster struct {
	pawlv1.UnimplementedClusterServiceServer

	mu       sync.Mutex
	asked    []string
	cluster  *pawlv1.GetClusterResponse
	verified map[uint32]*pawlv1.VerifyShardResponse
	hangs    bool         // VerifyShard doesn't return
	each     func() error // called at every Status, with the lock held
}

// newFakeCluster returns a cluster of two healthy nodes and a dead one, n3.
func newFakeCluster() *fakeCluster {
	o := &fakeCluster{verified: map[uint32]*pawlv1.VerifyShardResponse{}, cluster: &pawlv1.GetClusterResponse{
		Settings: &pawlv1.ClusterSettings{Replication: 3, Level: 1, DataShards: 2, AuditRetention: durationpb.New(90 * 24 * time.Hour)},
		Nodes: []*pawlv1.ClusterNode{
			{Name: "n1", Number: 1, State: "active", Answers: true, Alive: true, Reported: true, SilentSeconds: 0.2, Version: "0.1.0",
				PeerAddress: "10.0.0.1:7296", ApiAddress: "10.0.0.1:7295", DiskFreeBytes: 25 << 29, DiskTotalBytes: 50 << 30,
				ClockOffsetSeconds: 0.0015, Replicas: []uint32{0, 1, 2}, Leads: []uint32{0, 1}},
			{Name: "n2", Number: 2, State: "draining", Answers: true, Alive: true, Reported: true, PeerAddress: "10.0.0.2:7296"},
			{Name: "n3", Number: 3, State: "active", Reported: true, SilentSeconds: 180, Replicas: []uint32{0, 2}},
		},
		Shards: []*pawlv1.ClusterShard{
			{Shard: 0, Leader: "n1", Term: 2, Applied: 40, UnderReplicated: true, Members: []*pawlv1.ShardMember{
				{Node: "n1", Voter: true, Answers: true},
				{Node: "n3", Voter: true, Lag: 12, Leaving: true}}},
			{Shard: 1, Leader: "n1", Preferred: "n2", Term: 2, Applied: 50, Problem: "waits for a voter", LastStep: "node n1 should lead",
				Members: []*pawlv1.ShardMember{{Node: "n1", Voter: true, Answers: true}, {Node: "n2", Answers: true, Snapshotting: true}}},
			{Shard: 2, UnderReplicated: true, Members: []*pawlv1.ShardMember{{Node: "n3", Voter: true}}},
		},
		Node:     "n2",
		Problems: []string{"no answer from node n3, last heard from 3m0s ago", "shard 2: no leader answers"},
	}}
	for shard := range uint32(3) {
		o.verified[shard] = &pawlv1.VerifyShardResponse{Shard: shard, Index: 100, Rows: 7, Equal: true,
			Replicas: []*pawlv1.ReplicaHash{{Node: "n1", Hash: "00000000000000aa"}, {Node: "n2", Hash: "00000000000000aa"}}}
	}
	return o
}

func (o *fakeCluster) ask(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, fmt.Sprintf(format, args...))
}

func (o *fakeCluster) GetCluster(context.Context, *pawlv1.GetClusterRequest) (*pawlv1.GetClusterResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.each != nil {
		if err := o.each(); err != nil {
			return nil, err
		}
	}
	return o.cluster, nil
}

func (o *fakeCluster) DrainNode(_ context.Context, r *pawlv1.DrainNodeRequest) (*pawlv1.DrainNodeResponse, error) {
	o.ask("drain %s undo %t", r.GetNode(), r.GetUndo())
	if r.GetNode() == "none" {
		st, _ := grpcstatus.New(codes.NotFound, `node "none": not found`).WithDetails(&pawlv1.Error{Code: "not_found",
			Message: `node "none": not found`})
		return nil, st.Err()
	}
	return &pawlv1.DrainNodeResponse{}, nil
}

func (o *fakeCluster) RemoveNode(_ context.Context, r *pawlv1.RemoveNodeRequest) (*pawlv1.RemoveNodeResponse, error) {
	o.ask("remove %s force %t", r.GetNode(), r.GetForce())
	return &pawlv1.RemoveNodeResponse{}, nil
}

func (o *fakeCluster) MoveReplica(_ context.Context, r *pawlv1.MoveReplicaRequest) (*pawlv1.MoveReplicaResponse, error) {
	o.ask("move %d %s %s", r.GetShard(), r.GetFrom(), r.GetTo())
	return &pawlv1.MoveReplicaResponse{}, nil
}

func (o *fakeCluster) TransferLeader(_ context.Context, r *pawlv1.TransferLeaderRequest) (*pawlv1.TransferLeaderResponse, error) {
	o.ask("transfer %d %q", r.GetShard(), r.GetTo())
	return &pawlv1.TransferLeaderResponse{}, nil
}

func (o *fakeCluster) AddShards(_ context.Context, r *pawlv1.AddShardsRequest) (*pawlv1.AddShardsResponse, error) {
	o.ask("shards %d", r.GetTotal())
	return &pawlv1.AddShardsResponse{}, nil
}

func (o *fakeCluster) SetAuditRetention(_ context.Context, r *pawlv1.SetAuditRetentionRequest) (*pawlv1.SetAuditRetentionResponse, error) {
	o.ask("audit retention %v", r.GetRetention().AsDuration())
	return &pawlv1.SetAuditRetentionResponse{}, nil
}

func (o *fakeCluster) SetReplication(_ context.Context, r *pawlv1.SetReplicationRequest) (*pawlv1.SetReplicationResponse, error) {
	o.ask("replication %d", r.GetReplication())
	return &pawlv1.SetReplicationResponse{}, nil
}

func (o *fakeCluster) RaiseLevel(context.Context, *pawlv1.RaiseLevelRequest) (*pawlv1.RaiseLevelResponse, error) {
	o.ask("level")
	return &pawlv1.RaiseLevelResponse{Level: 2}, nil
}

func (o *fakeCluster) VerifyShard(ctx context.Context, r *pawlv1.VerifyShardRequest) (*pawlv1.VerifyShardResponse, error) {
	o.ask("verify %d", r.GetShard())
	if o.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.verified[r.GetShard()]
	if v == nil {
		st, _ := grpcstatus.New(codes.FailedPrecondition, "").WithDetails(&pawlv1.Error{Code: "wrong_state", Message: "no leader"})
		return nil, st.Err()
	}
	return v, nil
}

// serve serves on a listener until the test ends.
func (o *fakeCluster) serve(t *testing.T, l net.Listener) {
	s := grpc.NewServer()
	pawlv1.RegisterClusterServiceServer(s, o)
	go s.Serve(l)
	t.Cleanup(s.Stop)
}

// command runs a command line on a terminal.
func (o *fakeCluster) command(t *testing.T, line ...string) (stdout, stderr string, exit int, asked string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.serve(t, l)
	var out, errs bytes.Buffer
	exit = run(append(line, "--server", l.Addr().String()), strings.NewReader(""), &out, &errs)
	o.mu.Lock()
	defer o.mu.Unlock()
	return out.String(), errs.String(), exit, strings.Join(o.asked, "; ")
}

// Every command makes the right call, reports it, and asks for confirmation before it does anything irreversible.
func TestClusterCommands(t *testing.T) {
	for _, c := range []struct {
		line  string
		asked string
		exit  int
		says  string // in either output
	}{
		{"cluster drain n2", "drain n2 undo false", 0, `node "n2" is draining`},
		{"cluster drain n2 --wait -o json", "drain n2 undo false", 0, `"state": "drained"`},
		{"cluster drain n2 --undo", "drain n2 undo true", 0, `node "n2" is active`},
		{"cluster drain n2 --undo --wait", "", 2, "--wait and --undo exclude each other"},
		{"cluster drain none", "drain none undo false", 1, `node "none": not found`},
		{"cluster remove n3", "", 1, `node "n3" will be removed permanently, and holds replicas of shards 0,2: not confirmed: add --yes`},
		{"cluster remove n3 --force --yes", "remove n3 force true", 0, `node "n3" is removed`},
		{"cluster move 1 --from n3 --to n2", "move 1 n3 n2", 0, `shard 1 moves from node "n3" to "n2"`},
		{"cluster move 1 --from n3", "", 2, "--from and --to are required"},
		{"cluster move one --from n3 --to n2", "", 2, `SHARD "one" is not the number of a shard`},
		{"cluster transfer 0 --to n2", `transfer 0 "n2"`, 0, `shard 0 should be led by "n2"`},
		{"cluster transfer 1", `transfer 1 ""`, 0, "any node"},
		{"cluster add-shards 4", "", 1, "there will be 4 data shards instead of 2, and the number can't be reduced: not confirmed"},
		{"cluster add-shards 4 -y", "shards 4", 0, "4 data shards"},
		{"cluster add-shards 2", "shards 2", 0, "2 data shards"},
		{"cluster add-shards many", "", 2, `TOTAL "many" is not a whole number`},
		{"cluster replication 5 -o yaml", "replication 5", 0, "replication: 5"},
		{"cluster audit-retention 365d -o yaml", "audit retention 8760h0m0s", 0, "audit_retention: 8760h"},
		{"cluster audit-retention 30d", "", 1, "audit entries older than 30d will be removed; so far they are kept for 90d: not confirmed"},
		{"cluster audit-retention 30d -y", "audit retention 720h0m0s", 0, "audit entries are kept for 30d"},
		{"cluster audit-retention 5m", "audit retention 5m0s", 0, ""}, // no confirmation, since the server refuses it
		{"cluster audit-retention soon", "", 2, `PERIOD "soon"`},
		{"cluster raise-level", "", 1, "the feature level, now 1, will be raised to the highest that 3 nodes support, and " +
			"can't be lowered again: not confirmed"},
		{"cluster raise-level --yes", "level", 0, "the feature level is 2"},
		{"cluster add", "", 0, "pawl serve --node n4 --data ./pawl-data --listen HOST:7295 --peer-listen HOST:7296 --join " +
			"10.0.0.1:7296,10.0.0.2:7296 "},
		{"cluster add n3", "", 0, `node "n3" is not reachable: the new one takes its place`},
		{"cluster add n1", "", 1, `node "n1" is running as number 1`},
		{"cluster add x -o json", "", 0, `"join": [`},
		{"verify", "verify 0; verify 1; verify 2", 0, "sound"},
		{"verify --shard 2", "verify 2", 0, "sound"},
		{"verify --shard x", "", 2, `--shard`},
		{"verify --timeout 0s", "", 2, "--timeout 0s is not positive"},
	} {
		o := newFakeCluster()
		stdout, stderr, exit, asked := o.command(t, strings.Fields(c.line)...)
		if exit != c.exit || asked != c.asked || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("pawl %s: status %d, server calls %q, want %d, %q\n%s%s", c.line, exit, asked, c.exit, c.asked, stdout, stderr)
		}
	}
}

// If no node has an address for other nodes, the cluster can't grow, and the command says what to do.
func TestClusterAddWithoutPeers(t *testing.T) {
	o := newFakeCluster()
	o.cluster.Nodes = []*pawlv1.ClusterNode{{Name: "n1", Alive: true, Reported: true}}
	if _, stderr, exit, _ := o.command(t, "cluster", "add"); exit != 1 || !strings.Contains(stderr, "--peer-listen") {
		t.Errorf("pawl cluster add: status %d, %s", exit, stderr)
	}
}

func TestClusterStatus(t *testing.T) {
	const want = `3 nodes, 2 data shards, replication 3, feature level 1, audit kept for 90d; node n2 answered

NODE  STATE    HEALTH       VERSION  CLIENTS AT     NODES AT       DISK FREE      CLOCK   REPLICAS  LEADS
n1    active   alive        0.1.0    10.0.0.1:7295  10.0.0.1:7296  12.5GiB (25%)  +1.5ms  3 (0-2)   2 (0-1)
n2    drained  alive        -        -              10.0.0.2:7296  -              +0.0ms  0         0
n3    active   no answer for 3m   -        -              -              -              +0.0ms  2 (0,2)   0

SHARD  LEADER                TERM  APPLIED  REPLICAS                        LAST STEP
0      n1                    2     40       n1 n3(no answer, leaves, 12 behind)  -
`
	out, _, exit, _ := newFakeCluster().command(t, "cluster", "status")
	if exit != 0 {
		t.Fatal(out)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if !strings.HasPrefix(squeeze(out), squeeze(want)) {
		t.Errorf("pawl cluster status printed\n%s\nwant it to begin with\n%s", out, want)
	}
	for _, says := range []string{
		"n1 (should be n2)", "n2(learns, gets a snapshot)", "2 - - - n3(no answer)", "node n1 should lead",
		"problems:\n  no answer from node n3, last heard from 3m0s ago\n  shard 2: no leader answers\n",
	} {
		if !strings.Contains(squeeze(out), squeeze(says)) {
			t.Errorf("the status lacks %q:\n%s", says, out)
		}
	}
	out, _, _, _ = newFakeCluster().command(t, "cluster", "status", "-o", "json")
	for _, says := range []string{`"data_shards": 2`, `"silent_seconds": 0.2`, `"disk_free_bytes": 13421772800`, `"under_replicated": true`,
		`"preferred": "n2"`, `"lag": 12`} {
		if !strings.Contains(out, says) {
			t.Errorf("the status as JSON lacks %q:\n%s", says, out)
		}
	}
}

// The status says in the same words as the web UI whether a node is alive, and for how long it has not been.
func TestWhetherNodesAreAlive(t *testing.T) {
	for _, c := range []struct {
		node admin.Node
		want string
	}{
		{admin.Node{Answers: true, Alive: true}, "alive"},
		{admin.Node{Answers: true, Alive: true, Silent: 9 * time.Second}, "alive"},
		{admin.Node{Answers: true, Silent: 10 * time.Second}, "no report for 10s"},
		{admin.Node{Silent: time.Second}, "no answer for 1s"},
	} {
		if got := healthText(c.node); got != c.want {
			t.Errorf("alive %v, silent for %s: %q, want %q", c.node.Alive, c.node.Silent, got, c.want)
		}
	}
}

func TestClusterWithoutProblems(t *testing.T) {
	o := newFakeCluster()
	o.cluster.Nodes, o.cluster.Shards, o.cluster.Problems = o.cluster.Nodes[:2], o.cluster.Shards[1:2], nil
	o.cluster.Shards[0].Problem = ""
	if out, _, _, _ := o.command(t, "cluster", "status"); !strings.HasSuffix(out, "\nno problems\n") {
		t.Errorf("the status of a healthy cluster is %s, want no problems", out)
	}
}

// Replicas that are damaged, or that were not checked completely, are named and change the exit status.
func TestVerifyNamesDamagedReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[uint32]*pawlv1.VerifyShardResponse)
		says   []string
	}{
		"replicas differ": {func(v map[uint32]*pawlv1.VerifyShardResponse) {
			v[1].Equal, v[1].Replicas[1].Hash = false, "00000000000000ab"
		},
			[]string{"BROKEN: replicas differ", "shard 1: after entry 100 n1 has 00000000000000aa, n2 has 00000000000000ab",
				"pawl: broken: shard 1\n"}},
		"numbers": {func(v map[uint32]*pawlv1.VerifyShardResponse) { v[0].Problems = []string{"queue \"a\" counts 1"} },
			[]string{"BROKEN: numbers do not agree", `shard 0: queue "a" counts 1`, "pawl: broken: shard 0\n"}},
		"no hash": {func(v map[uint32]*pawlv1.VerifyShardResponse) { v[2].Replicas[1].Hash = "" },
			[]string{"not compared with n2", "pawl: not verified in full: shard 2\n"}},
		"no leader, and broken": {func(v map[uint32]*pawlv1.VerifyShardResponse) { delete(v, 1); v[2].Equal = false },
			[]string{"not verified", "shard 1: verify shard 1: wrong_state: no leader",
				"pawl: broken: shard 2; not verified in full: shard 1\n"}},
	} {
		o := newFakeCluster()
		c.change(o.verified)
		stdout, stderr, exit, asked := o.command(t, "verify")
		if exit != cli.ExitRefused || asked != "verify 0; verify 1; verify 2" {
			t.Errorf("%s: status %d, server calls %s", name, exit, asked)
		}
		for _, says := range c.says {
			if !strings.Contains(stdout+stderr, says) {
				t.Errorf("%s: the output lacks %q:\n%s%s", name, says, stdout, stderr)
			}
		}
	}
}

// A shard that doesn't answer is named, and doesn't block the command forever.
func TestVerifyDoesNotBlock(t *testing.T) {
	o := newFakeCluster()
	o.hangs = true
	stdout, stderr, exit, _ := o.command(t, "verify", "--shard", "1", "--timeout", "50ms")
	if exit != cli.ExitRefused || !strings.Contains(stdout, "shard 1 did not answer within 50ms") ||
		!strings.Contains(stderr, "not verified in full: shard 1") {
		t.Errorf("pawl verify of a hanging shard: status %d:\n%s%s", exit, stdout, stderr)
	}
}

// waiting runs drain --wait against a fake cluster.
func waiting(t *testing.T, o *fakeCluster) (took time.Duration, said string, err error) {
	l := bufconn.Listen(1 << 16)
	o.serve(t, l)
	client, err := pawl.Dial("cluster", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}, Logger: slog.New(slog.DiscardHandler), RetryFor: cli.RetryFor})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var errs bytes.Buffer
	a := &app{&cli.App{Out: io.Discard, Err: &errs}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	start := time.Now()
	err = a.waitDrained(ctx, a.Admin(client), "n1")
	return time.Since(start), errs.String(), err
}

// --wait returns when the node holds nothing, reports once what blocks each remainder, and tolerates that the system shard's leader moves.
func TestWaitUntilDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeCluster()
		start := time.Now()
		o.each = func() error {
			switch now := time.Since(start); {
			case now > time.Minute:
				o.cluster.Nodes[0].Replicas = nil
			case now > 40*time.Second:
				return grpcstatus.Error(codes.Unavailable, "no leader")
			case now > 20*time.Second:
				o.cluster.Nodes[0].Replicas = []uint32{1}
			}
			return nil
		}
		took, said, err := waiting(t, o)
		if err != nil || took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("waiting took %v, %v, want about a minute", took, err)
		}
		// for all that it holds, and again for the remainder
		if said != "shard 1: waits for a voter\nshard 2: no leader answers\nshard 1: waits for a voter\n" {
			t.Errorf("the command reported %q", said)
		}
	})
}

func TestWaitEndsWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFakeCluster()
		o.each = func() error { return grpcstatus.Error(codes.Unavailable, "no leader") }
		if took, _, err := waiting(t, o); err == nil || took < drainAnswerTimeout || took > drainAnswerTimeout+10*time.Second {
			t.Errorf("waiting without a server took %v, %v, want an error after drainAnswerTimeout", took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if took, _, err := waiting(t, newFakeCluster()); err == nil || !strings.Contains(err.Error(), `node "n1" still holds shards 0-2`) ||
			took != 2*time.Minute {
			t.Errorf("waiting until the deadline took %v, %v, want an error with the remaining shards", took, err)
		}
	})
}

// Shards with the same problem share a line.
func TestShardProblems(t *testing.T) {
	got := shardProblems([]admin.ShardStatus{{Shard: 0, Leader: "n1", Problem: "x"}, {Shard: 1, Problem: "x"}, {Shard: 2, Leader: "n1"},
		{Shard: 3, Leader: "n1", Problem: "x"}, {Shard: 4}})
	if want := []string{"shards 0,3: x", "shard 1: no leader answers: x", "shard 4: no leader answers"}; !slices.Equal(got, want) {
		t.Errorf("shardProblems = %q, want %q", got, want)
	}
}
