package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeAdmin manages a cluster of three nodes that never changes, and records the calls it gets.
type fakeAdmin struct {
	mu       sync.Mutex
	asked    []string
	faults   *faults // of single calls; nil: none
	overview cluster.Overview
	m        *cluster.Map
	found    administration.Verification
	refuses  error
}

// newFakeAdmin returns a cluster in which n1 leads, n2 drains and catches up, and n3 has not been heard from. A fourth
// node was removed, and shard 2 has no leader.
func newFakeAdmin() *fakeAdmin {
	nodes := []cluster.Node{
		{Number: 1, Name: "n1", PeerAddress: "10.0.0.1:7296", APIAddress: "10.0.0.1:7295", State: cluster.Active, Version: "0.1.0"},
		{Number: 2, Name: "n2", PeerAddress: "10.0.0.2:7296", APIAddress: "10.0.0.2:7295", State: cluster.Draining, Version: "0.1.0"},
		{Number: 3, Name: "n3", State: cluster.Active},
		{Number: 4, Name: "n4", State: cluster.Removed, APIAddress: "10.0.0.4:7295"},
	}
	shards := make([]cluster.Shard, 3)
	for id := range shards {
		shards[id] = cluster.Shard{ID: uint32(id), Replicas: []cluster.Replica{{ID: 1, Node: 1}, {ID: 2, Node: 2}, {ID: 4, Node: 4}},
			Leaving: []uint64{4}}
	}
	shards[1].Preferred = 1
	settings := system.Settings{Replication: 3, Level: 1, DataShards: 2}
	members := []cluster.ReplicaOverview{{ID: 1, Node: 1, Voter: true, Answers: true}, {ID: 2, Node: 2, Answers: true,
		Snapshotting: true, Lag: 120},
		{ID: 4, Node: 4, Voter: true, Leaving: true, Lag: 7}}
	return &fakeAdmin{
		overview: cluster.Overview{Settings: settings,
			Nodes: []cluster.NodeOverview{
				{Node: nodes[0], Answers: true, Alive: true, Reported: true, Silent: 500 * time.Millisecond, Replicas: []uint32{0, 1, 2},
					Leads: []uint32{0, 1}, Report: cluster.Report{DiskFree: 10 << 30, DiskTotal: 40 << 30,
						ClockOffset: -1500 * time.Microsecond}},
				{Node: nodes[1], Answers: true, Alive: true, Reported: true, Silent: time.Second, Replicas: []uint32{0, 1, 2}},
				{Node: nodes[2], Silent: 90 * time.Second},
			},
			Shards: []cluster.ShardOverview{
				{Shard: shards[0], Known: true, Leader: 1, Term: 3, Applied: 1000, Members: members, Under: true},
				{Shard: shards[1], Known: true, Leader: 1, Term: 4, Applied: 2000, Members: members[:2], Under: true,
					Problem: "waits for \"n2\"", LastStep: "shard 1: add learner 2.0"},
				{Shard: shards[2], Under: true, Problem: "none of its replicas answers"},
			}},
		m: &cluster.Map{Version: 77, Settings: settings, Nodes: nodes, Shards: shards},
		found: administration.Verification{Shard: 1, Index: 2001, Rows: 1234, Equal: true,
			Replicas: []administration.ReplicaHash{{Node: "n1", Hash: 0xabc, Known: true}, {Node: "n2", Hash: 0xabc, Known: true},
				{Node: "n3"}}},
	}
}

func (a *fakeAdmin) ask(format string, args ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprintf(format, args...))
	return cmp.Or(a.refuses, a.faults.ask())
}

// taken returns the calls since it was last called.
func (a *fakeAdmin) taken() (asked []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked, a.asked = a.asked, nil
	return asked
}

func (a *fakeAdmin) Overview(context.Context) (cluster.Overview, error) {
	return a.overview, a.ask("overview")
}
func (a *fakeAdmin) Map(context.Context) *cluster.Map { _ = a.ask("map"); return a.m }

// answer registers the fake's answers in a table.
func (a *fakeAdmin) answer(to verbtest.Answers) {
	verbtest.On(to, cluster.DrainNode, func(_ context.Context, q cluster.NodeDrain) (out verb.Nothing, err error) {
		if q.Undo {
			return out, a.ask("undrain %s", q.Node)
		}
		return out, a.ask("drain %s", q.Node)
	})
	verbtest.On(to, cluster.RemoveNode, func(_ context.Context, q cluster.NodeRemoval) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("remove %s %t", q.Node, q.Force)
	})
	verbtest.On(to, cluster.MoveReplica, func(_ context.Context, q cluster.ReplicaMove) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("move %d %s %s", q.Shard, q.From, q.To)
	})
	verbtest.On(to, cluster.MoveLeader, func(_ context.Context, q cluster.LeaderTransfer) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("transfer %d %q", q.Shard, q.To)
	})
	verbtest.On(to, cluster.RaiseLevel, func(context.Context, cluster.AuthorCall) (int, error) { return 2, a.ask("level") })
	verbtest.On(to, cluster.AddShards, func(_ context.Context, q cluster.CountCall) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("shards %d", q.N)
	})
	verbtest.On(to, cluster.SetAuditRetention, func(_ context.Context, q cluster.PeriodCall) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("audit retention %v", q.D)
	})
	verbtest.On(to, cluster.SetReplication, func(_ context.Context, q cluster.CountCall) (verb.Nothing, error) {
		return verb.Nothing{}, a.ask("replication %d", q.N)
	})
}

func (a *fakeAdmin) Verify(_ context.Context, shard uint32) (administration.Verification, error) {
	return a.found, a.ask("verify %d", shard)
}

// Backup writes two pieces, with an error between them if requested.
func (a *fakeAdmin) Backup(_ context.Context, _ task.Author, w io.Writer, progress func(done, total int) error) error {
	for i, piece := range []string{"the first, ", "the second"} {
		if _, err := io.WriteString(w, piece); err != nil {
			return err
		}
		if err := progress(i+1, 2); err != nil {
			return err
		}
		if err := a.ask("backup"); err != nil {
			return err
		}
	}
	return nil
}

// clusterCalls are all calls that both gRPC and REST have.
var clusterCalls = []struct {
	rest  string // method, path, body
	rpc   func(context.Context, pawlv1.ClusterServiceClient) (proto.Message, error)
	asked string
}{
	{"GET /cluster", rpcOf(pawlv1.ClusterServiceClient.GetCluster, &pawlv1.GetClusterRequest{}), "overview"},
	{"GET /cluster/map", rpcOf(pawlv1.ClusterServiceClient.GetMap, &pawlv1.GetMapRequest{}), "map"},
	{"POST /cluster/nodes/n2/drain", rpcOf(pawlv1.ClusterServiceClient.DrainNode, &pawlv1.DrainNodeRequest{Node: "n2"}), "drain n2"},
	{"POST /cluster/nodes/n2/undrain", rpcOf(pawlv1.ClusterServiceClient.DrainNode, &pawlv1.DrainNodeRequest{Node: "n2", Undo: true}),
		"undrain n2"},
	{"POST /cluster/nodes/n2/remove", rpcOf(pawlv1.ClusterServiceClient.RemoveNode, &pawlv1.RemoveNodeRequest{Node: "n2"}),
		"remove n2 false"},
	{`POST /cluster/nodes/n2/remove {"force":true}`, rpcOf(pawlv1.ClusterServiceClient.RemoveNode, &pawlv1.RemoveNodeRequest{
		Node: "n2", Force: true}),
		"remove n2 true"},
	{`POST /cluster/shards/1/move {"from":"n2","to":"n3"}`,
		rpcOf(pawlv1.ClusterServiceClient.MoveReplica, &pawlv1.MoveReplicaRequest{Shard: 1, From: "n2", To: "n3"}), "move 1 n2 n3"},
	{`POST /cluster/shards/0/transfer {"to":"n2"}`,
		rpcOf(pawlv1.ClusterServiceClient.TransferLeader, &pawlv1.TransferLeaderRequest{To: new("n2")}), `transfer 0 "n2"`},
	{"POST /cluster/shards/1/transfer", rpcOf(pawlv1.ClusterServiceClient.TransferLeader, &pawlv1.TransferLeaderRequest{Shard: 1}),
		`transfer 1 ""`},
	{`POST /cluster/shards {"total":4}`, rpcOf(pawlv1.ClusterServiceClient.AddShards, &pawlv1.AddShardsRequest{Total: 4}), "shards 4"},
	{`PUT /cluster/replication {"replication":5}`,
		rpcOf(pawlv1.ClusterServiceClient.SetReplication, &pawlv1.SetReplicationRequest{Replication: 5}), "replication 5"},
	{`PUT /cluster/audit-retention {"retention":"48h"}`,
		rpcOf(pawlv1.ClusterServiceClient.SetAuditRetention, &pawlv1.SetAuditRetentionRequest{Retention: durationpb.New(48 * time.Hour)}),
		"audit retention 48h0m0s"},
	{"POST /cluster/raise-level", rpcOf(pawlv1.ClusterServiceClient.RaiseLevel, &pawlv1.RaiseLevelRequest{}), "level"},
	{"POST /cluster/shards/1/verify", rpcOf(pawlv1.ClusterServiceClient.VerifyShard, &pawlv1.VerifyShardRequest{Shard: 1}), "verify 1"},
}

func rpcOf[Req any, Resp proto.Message](call func(pawlv1.ClusterServiceClient, context.Context, Req, ...grpc.CallOption) (Resp, error),
	req Req) func(context.Context, pawlv1.ClusterServiceClient) (proto.Message, error) {
	return func(ctx context.Context, c pawlv1.ClusterServiceClient) (proto.Message, error) {
		return call(c, ctx, req)
	}
}

// restCluster makes a call written as "METHOD PATH BODY".
func restCluster(t *testing.T, g *Gateway, text string) *httptest.ResponseRecorder {
	t.Helper()
	method, rest, _ := strings.Cut(text, " ")
	path, body, _ := strings.Cut(rest, " ")
	r := httptest.NewRequest(method, ours+"/api/v1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return serveChecked(t, g.Handler(), r, []byte(body))
}

// gRPC and REST make the same calls and return the same responses.
func TestClusterCallsOverGRPCAndREST(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		g, l := serve(t, f)
		client := pawlv1.NewClusterServiceClient(dial(t, l))
		for _, c := range clusterCalls {
			answer, err := c.rpc(t.Context(), client)
			if err != nil {
				t.Fatalf("%s: gRPC: %v", c.rest, err)
			}
			overRPC := f.admin.taken()
			w := restCluster(t, g, c.rest)
			if overREST := f.admin.taken(); !slices.Equal(overRPC, []string{c.asked}) || !slices.Equal(overREST, overRPC) {
				t.Errorf("%s: gRPC called %q, REST %q, want %q", c.rest, overRPC, overREST, c.asked)
			}
			if w.Code != 200 {
				t.Errorf("%s: status %d %s", c.rest, w.Code, w.Body)
			}
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := normalized(t, w.Body.Bytes()), normalized(t, text); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: REST returned\n%v, gRPC\n%v", c.rest, got, want)
			}
		}
	})
}

// normalized normalizes JSON: it drops empty values, parses integers written as strings, and converts durations to one unit.
func normalized(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return normalizedOf(v)
}

func normalizedOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			if field := normalizedOf(field); field != nil {
				out[name] = field
			}
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i := range v {
			if n, ok := v[i].(float64); ok {
				out[i] = n // also 0: the system shard
				continue
			}
			out[i] = normalizedOf(v[i])
		}
		return out
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil && len(v) < 16 {
			return normalizedOf(n)
		}
		if d, err := time.ParseDuration(v); err == nil {
			return d
		}
	}
	if v == nil || reflect.ValueOf(v).IsZero() {
		return nil
	}
	return v
}

// Errors are the same over gRPC and REST, also those of a gateway without a cluster.
func TestClusterRefusalsOverGRPCAndREST(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		g, l := serve(t, f)
		client := pawlv1.NewClusterServiceClient(dial(t, l))
		f.admin.refuses = &task.Error{Code: task.CodeWrongState, Message: "not now"}
		for _, c := range clusterCalls {
			if c.asked == "map" {
				continue
			}
			_, err := c.rpc(t.Context(), client)
			w := restCluster(t, g, c.rest)
			if e := detailOf(err); e.GetCode() != "wrong_state" || e.GetMessage() != "not now" || w.Code != 409 ||
				!strings.Contains(w.Body.String(),
					`"detail":"not now"`) {
				t.Errorf("%s: gRPC %v, REST %d %s, want wrong_state", c.rest, err, w.Code, w.Body)
			}
		}
		alone := New(f.config())
		for _, c := range clusterCalls {
			if w := restCluster(t, alone, c.rest); w.Code != 409 || !strings.Contains(w.Body.String(),
				"does not offer the calls for a cluster") {
				t.Errorf("%s without a cluster: %d %s, want wrong_state", c.rest, w.Code, w.Body)
			}
		}
		alone.Shutdown(t.Context())
	})
}

func detailOf(err error) *pawlv1.Error {
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*pawlv1.Error); ok {
			return e
		}
	}
	return nil
}

// gRPC requests are checked like REST bodies before anything is called.
func TestClusterArguments(t *testing.T) {
	f := newFake()
	whole := newGateway(f)
	defer whole.Shutdown(t.Context())
	g := &whole.services.cluster
	long := strings.Repeat("n", 64)
	for _, c := range []struct {
		field string
		call  func(context.Context) error
	}{
		{"node", func(ctx context.Context) error { _, err := g.DrainNode(ctx, &pawlv1.DrainNodeRequest{}); return err }},
		{"node", func(ctx context.Context) error {
			_, err := g.DrainNode(ctx, &pawlv1.DrainNodeRequest{Node: "N1"})
			return err
		}},
		{"node", func(ctx context.Context) error {
			_, err := g.RemoveNode(ctx, &pawlv1.RemoveNodeRequest{Node: long})
			return err
		}},
		{"from", func(ctx context.Context) error {
			_, err := g.MoveReplica(ctx, &pawlv1.MoveReplicaRequest{To: "n1"})
			return err
		}},
		{"to", func(ctx context.Context) error {
			_, err := g.MoveReplica(ctx, &pawlv1.MoveReplicaRequest{From: "n1"})
			return err
		}},
		{"to", func(ctx context.Context) error {
			_, err := g.TransferLeader(ctx, &pawlv1.TransferLeaderRequest{To: new("n 1")})
			return err
		}},
		{"total", func(ctx context.Context) error { _, err := g.AddShards(ctx, &pawlv1.AddShardsRequest{}); return err }},
		{"total", func(ctx context.Context) error {
			_, err := g.AddShards(ctx, &pawlv1.AddShardsRequest{Total: 65})
			return err
		}},
		{"retention", func(ctx context.Context) error {
			_, err := g.SetAuditRetention(ctx, &pawlv1.SetAuditRetentionRequest{})
			return err
		}},
		{"retention", func(ctx context.Context) error {
			_, err := g.SetAuditRetention(ctx, &pawlv1.SetAuditRetentionRequest{Retention: durationpb.New(23 * time.Hour)})
			return err
		}},
		{"replication", func(ctx context.Context) error {
			_, err := g.SetReplication(ctx, &pawlv1.SetReplicationRequest{Replication: 2})
			return err
		}},
	} {
		err := c.call(t.Context())
		e, ok := task.AsError(err)
		if !ok || e.Code != task.CodeInvalidArgument || e.Field != c.field || !strings.HasPrefix(e.Message, c.field+": ") ||
			strings.Count(e.Message, ": ") > 2 {
			t.Errorf("want field %s refused, got %v (%+v)", c.field, err, e)
		}
	}
	if asked := f.admin.taken(); len(asked) > 0 {
		t.Errorf("the cluster was called despite the refusals: %q", asked)
	}
}

// Problems found by VerifyShard are reported up to a limit, and logged.
func TestVerifyReportsDamage(t *testing.T) {
	f := newFake()
	var log bytes.Buffer
	cfg := f.config()
	cfg.Admin, cfg.Logger = f.admin, slog.New(slog.NewTextHandler(&log, nil))
	whole := New(cfg)
	g := &whole.services.cluster
	defer whole.Shutdown(t.Context())
	if _, err := g.VerifyShard(t.Context(), &pawlv1.VerifyShardRequest{Shard: 1}); err != nil || log.Len() > 0 {
		t.Errorf("VerifyShard of a sound shard: %v, log %s", err, &log)
	}
	for _, found := range []administration.Verification{{Equal: false},
		{Equal: true, Problems: []string{"queue \"a\" counts 1, expected 2"}}} {
		sound := f.admin.found
		f.admin.found = found
		log.Reset()
		if _, err := g.VerifyShard(t.Context(), &pawlv1.VerifyShardRequest{Shard: 1}); err != nil ||
			!strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("VerifyShard with %+v: %v, log %s, want an error logged", found, err, &log)
		}
		f.admin.found = sound
	}
	if _, err := g.SetAuditRetention(t.Context(), &pawlv1.SetAuditRetentionRequest{}); err == nil ||
		!strings.Contains(err.Error(), "is required") {
		t.Errorf("SetAuditRetention without a retention: %v", err)
	}
	f.admin.found.Equal = false
	f.admin.found.Replicas[1].Hash = 0xabd
	f.admin.found.Problems = slices.Repeat([]string{"queue \"a\xff\" counts 1, expected 2"}, 21)
	got, err := g.VerifyShard(t.Context(), &pawlv1.VerifyShardRequest{Shard: 1})
	if err != nil || got.GetEqual() || len(got.GetProblems()) != 20 || got.GetReplicas()[0].GetHash() == got.GetReplicas()[1].GetHash() {
		t.Errorf("VerifyShard = %v, %v", got, err)
	}
	if _, err := proto.Marshal(got); err != nil { // rows need not contain valid text
		t.Error(err)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log = %s, want an error", &log)
	}
}

// The map is unavailable until there is one.
func TestMapBeforeFirstCopy(t *testing.T) {
	f := newFake()
	whole := newGateway(f)
	defer whole.Shutdown(t.Context())
	g := &whole.services.cluster
	for _, m := range []*cluster.Map{nil, {}} {
		f.admin.m = m
		if _, err := g.GetMap(t.Context(), &pawlv1.GetMapRequest{}); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("GetMap with map %v: %v, want unavailable", m, err)
		}
	}
}
