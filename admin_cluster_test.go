package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Each call for a cluster sends what it was given and gives what the broker answers; those that could do harm are not
// repeated.
func TestAdminClusterCalls(t *testing.T) {
	ctx := context.Background()
	none := func(err error) (any, error) { return nil, err }
	for _, c := range []struct {
		method  string
		call    func(admin.Client) (any, error)
		req     string // of protobuf, as %v prints it, without spaces
		resp    proto.Message
		want    string
		repeats bool
	}{
		{"GetCluster", func(a admin.Client) (any, error) { return a.Cluster().Status(ctx) }, ``, &pawlv1.GetClusterResponse{
			Settings: &pawlv1.ClusterSettings{Replication: 3, Level: 2, DataShards: 4, AuditRetention: durationpb.New(time.Hour)},
			Nodes: []*pawlv1.ClusterNode{{Name: "n1", Number: 7, State: "draining", Alive: true, Heard: true, SilentSeconds: 1.5, Version: "v", PeerAddress: "p:1",
				ApiAddress: "a:1", DiskFreeBytes: 5, DiskTotalBytes: 10, ClockOffsetSeconds: -0.001, Replicas: []uint32{0, 1}, Leads: []uint32{1}}},
			Shards: []*pawlv1.ClusterShard{{Shard: 1, Leader: "n1", Term: 2, Applied: 3, UnderReplicated: true, Problem: "x", LastStep: "y", Preferred: "n2",
				Members: []*pawlv1.ShardMember{{Node: "n1", Voter: true, Answers: true}, {Node: "n2", Leaving: true, Snapshotting: true, Lag: 9}}}},
			Problems: []string{"n1 is away"}, SeenBy: "n2",
		}, `{{3 2 4 3600000000000} [{n1 7 draining true true 1500000000 v p:1 a:1 5 10 -1000000 [0 1] [1]}] ` +
			`[{1 n1 2 3 [{n1 true true false false 0} {n2 false false true true 9}] true x y n2}] [n1 is away] n2}`, true},
		{"GetMap", func(a admin.Client) (any, error) { return a.Cluster().Map(ctx) }, ``, &pawlv1.GetMapResponse{Version: 5,
			Nodes: []*pawlv1.MapNode{{Name: "n1", ApiAddress: "a:1"}}, Shards: []*pawlv1.MapShard{{Shard: 1, Leader: "n1"}, {Shard: 2}}, Node: "n2", ClusterId: "c"},
			`{5 [{n1 a:1}] [{1 n1} {2 }] n2 c}`, true},
		{"DrainNode", func(a admin.Client) (any, error) { return none(a.Cluster().DrainNode(ctx, "n1")) }, `node:"n1"`, &pawlv1.DrainNodeResponse{}, `null`, true},
		{"DrainNode", func(a admin.Client) (any, error) { return none(a.Cluster().UndrainNode(ctx, "n1")) }, `node:"n1"undo:true`, &pawlv1.DrainNodeResponse{}, `null`, true},
		{"RemoveNode", func(a admin.Client) (any, error) { return none(a.Cluster().RemoveNode(ctx, "n1", true)) }, `node:"n1"force:true`,
			&pawlv1.RemoveNodeResponse{}, `null`, false},
		{"MoveReplica", func(a admin.Client) (any, error) { return none(a.Cluster().MoveReplica(ctx, 2, "n1", "n3")) }, `shard:2from:"n1"to:"n3"`,
			&pawlv1.MoveReplicaResponse{}, `null`, false},
		{"TransferLeader", func(a admin.Client) (any, error) { return none(a.Cluster().TransferLeader(ctx, 2, "n1")) }, `shard:2to:"n1"`,
			&pawlv1.TransferLeaderResponse{}, `null`, true},
		{"AddShards", func(a admin.Client) (any, error) { return none(a.Cluster().AddShards(ctx, 1<<40)) }, `total:2147483647`, &pawlv1.AddShardsResponse{}, `null`, true},
		{"SetReplication", func(a admin.Client) (any, error) { return none(a.Cluster().SetReplication(ctx, 5)) }, `replication:5`,
			&pawlv1.SetReplicationResponse{}, `null`, true},
		{"SetAuditRetention", func(a admin.Client) (any, error) { return none(a.Cluster().SetAuditRetention(ctx, 48*time.Hour)) }, `retention:{seconds:172800}`,
			&pawlv1.SetAuditRetentionResponse{}, `null`, true},
		{"RaiseLevel", func(a admin.Client) (any, error) { return a.Cluster().RaiseFeatureLevel(ctx) }, ``, &pawlv1.RaiseLevelResponse{Level: 2}, `2`, true},
		{"VerifyShard", func(a admin.Client) (any, error) { return a.Cluster().VerifyShard(ctx, 3) }, `shard:3`, &pawlv1.VerifyShardResponse{Shard: 3, Index: 8, Rows: 9,
			Replicas: []*pawlv1.ReplicaHash{{Node: "n1", Hash: "00000000000000ff"}, {Node: "n2"}}, Equal: true, Problems: []string{"p"}},
			`{3 8 9 [{n1 00000000000000ff} {n2 }] true [p]}`, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t, pawl.DialOptions{RetryFor: 1})
			var method, req string
			tries := 0
			f.before = func(string) error { tries++; return nil }
			f.operator = func(m string, r any) (any, bool) {
				method, req = m, strings.ReplaceAll(fmt.Sprint(r), " ", "")
				return c.resp, true
			}
			got, err := c.call(admin.New(client))
			if err != nil || method != c.method || req != c.req || tries != 1 {
				t.Errorf("%s: sent %s %s, error %v, want %s", c.method, method, req, err, c.req)
			}
			if flat(got) != c.want {
				t.Errorf("%s: got\n%s, want\n%s", c.method, flat(got), c.want)
			}
			tries = 0
			f.set(func() { f.before = func(string) error { tries++; return errUnavailable } })
			if _, err := c.call(admin.New(client)); !errors.Is(err, pawltype.ErrUnavailable) || (tries > 1) != c.repeats {
				t.Errorf("%s of a broker that is unavailable: %v after %d tries, want more than one: %t", c.method, err, tries, c.repeats)
			}
		})
	}
}

// The SDK leaves out nothing of what the contract tells of a cluster.
func TestClusterTypesAreWhole(t *testing.T) {
	for _, c := range []struct {
		ours   any
		theirs proto.Message
	}{
		{admin.ClusterStatus{}, &pawlv1.GetClusterResponse{}}, {admin.ClusterSettings{}, &pawlv1.ClusterSettings{}}, {admin.Node{}, &pawlv1.ClusterNode{}},
		{admin.ShardStatus{}, &pawlv1.ClusterShard{}}, {admin.Replica{}, &pawlv1.ShardMember{}}, {admin.ClusterMap{}, &pawlv1.GetMapResponse{}},
		{admin.MapNode{}, &pawlv1.MapNode{}}, {admin.MapShard{}, &pawlv1.MapShard{}}, {admin.Verification{}, &pawlv1.VerifyShardResponse{}},
		{admin.ReplicaHash{}, &pawlv1.ReplicaHash{}},
	} {
		var names []protoreflect.Name
		fields := c.theirs.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			names = append(names, fields.Get(i).Name())
		}
		if n := reflect.TypeOf(c.ours).NumField(); n != len(names) {
			t.Errorf("%T has %d fields, the contract %v", c.ours, n, names)
		}
	}
}
