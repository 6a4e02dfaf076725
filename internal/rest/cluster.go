package rest

import (
	"math"
	"strconv"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var clusterRoutes = []Route{
	{"GET", "/api/v1/cluster", "ClusterService/GetCluster", getCluster},
	{"GET", "/api/v1/cluster/nodes", "ClusterService/GetCluster", listNodes},
	{"GET", "/api/v1/cluster/shards", "ClusterService/GetCluster", listShards},
	{"GET", "/api/v1/cluster/map", "ClusterService/GetMap", getMap},
	{"POST", "/api/v1/cluster/nodes/{node}/drain", "ClusterService/DrainNode", drainNode},
	{"POST", "/api/v1/cluster/nodes/{node}/undrain", "ClusterService/DrainNode", undrainNode},
	{"POST", "/api/v1/cluster/nodes/{node}/remove", "ClusterService/RemoveNode", removeNode},
	{"POST", "/api/v1/cluster/shards/{shard}/move", "ClusterService/MoveReplica", moveReplica},
	{"POST", "/api/v1/cluster/shards/{shard}/transfer", "ClusterService/TransferLeader", transferLeader},
	{"POST", "/api/v1/cluster/shards/{shard}/verify", "ClusterService/VerifyShard", verifyShard},
	{"POST", "/api/v1/cluster/shards", "ClusterService/AddShards", addShards},
	{"PUT", "/api/v1/cluster/replication", "ClusterService/SetReplication", setReplication},
	{"PUT", "/api/v1/cluster/audit-retention", "ClusterService/SetAuditRetention", setAuditRetention},
	{"POST", "/api/v1/cluster/raise-level", "ClusterService/RaiseLevel", raiseLevel},
}

// overview reads the cluster for a call without parameters.
func (x *exchange) overview() (*pawlv1.GetClusterResponse, error) {
	if _, err := x.query(); err != nil {
		return nil, err
	}
	return x.API.Cluster.GetCluster(x.ctx, &pawlv1.GetClusterRequest{})
}

func getCluster(x *exchange) error {
	got, err := x.overview()
	if err != nil {
		return err
	}
	s := got.GetSettings()
	x.open('{')
	x.within("settings", '{')
	x.num("replication", int64(s.GetReplication()))
	x.num("level", int64(s.GetLevel()))
	x.num("data_shards", int64(s.GetDataShards()))
	x.span("audit_retention", s.GetAuditRetention())
	x.close('}')
	x.clusterNodes("nodes", got)
	x.clusterShards("shards", got)
	x.strs("problems", got.GetProblems())
	x.opt("seen_by", got.GetSeenBy())
	x.close('}')
	return nil
}

// listNodes answers all of them: they are few, and never more than a page.
func listNodes(x *exchange) error {
	got, err := x.overview()
	if err != nil {
		return err
	}
	x.open('{')
	x.clusterNodes("items", got)
	x.str("next_cursor", "")
	x.close('}')
	return nil
}

func listShards(x *exchange) error {
	got, err := x.overview()
	if err != nil {
		return err
	}
	x.open('{')
	x.clusterShards("items", got)
	x.str("next_cursor", "")
	x.close('}')
	return nil
}

func (x *exchange) clusterNodes(name string, c *pawlv1.GetClusterResponse) {
	objects(x, name, c.GetNodes(), func(n *pawlv1.ClusterNode) {
		x.str("name", n.GetName())
		x.num("number", int64(n.GetNumber()))
		x.str("state", n.GetState())
		x.boolean("alive", n.GetAlive())
		x.boolean("heard", n.GetHeard())
		x.float("silent_seconds", n.GetSilentSeconds())
		x.opt("version", n.GetVersion())
		x.opt("peer_address", n.GetPeerAddress())
		x.opt("api_address", n.GetApiAddress())
		if n.GetDiskTotalBytes() > 0 {
			x.num("disk_free_bytes", n.GetDiskFreeBytes())
			x.num("disk_total_bytes", n.GetDiskTotalBytes())
		}
		if n.GetHeard() {
			x.float("clock_offset_seconds", n.GetClockOffsetSeconds())
		}
		x.numbers("replicas", n.GetReplicas())
		x.numbers("leads", n.GetLeads())
	})
}

// numbers writes shards by their numbers.
func (x *exchange) numbers(name string, list []uint32) {
	x.within(name, '[')
	for _, n := range list {
		x.comma()
		x.b = strconv.AppendUint(x.b, uint64(n), 10)
	}
	x.close(']')
}

func (x *exchange) clusterShards(name string, c *pawlv1.GetClusterResponse) {
	objects(x, name, c.GetShards(), func(s *pawlv1.ClusterShard) {
		x.num("shard", int64(s.GetShard()))
		x.opt("leader", s.GetLeader())
		x.opt("preferred", s.GetPreferred())
		if s.GetLeader() != "" {
			x.num("term", int64(s.GetTerm()))
			x.num("applied", int64(s.GetApplied()))
		}
		x.within("members", '[')
		for _, m := range s.GetMembers() {
			x.open('{')
			x.str("node", m.GetNode())
			x.boolean("voter", m.GetVoter())
			x.boolean("answers", m.GetAnswers())
			x.boolean("leaving", m.GetLeaving())
			x.boolean("snapshotting", m.GetSnapshotting())
			x.num("lag", int64(m.GetLag()))
			x.close('}')
		}
		x.close(']')
		x.boolean("under_replicated", s.GetUnderReplicated())
		x.opt("problem", s.GetProblem())
		x.opt("last_step", s.GetLastStep())
	})
}

func getMap(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Cluster.GetMap(x.ctx, &pawlv1.GetMapRequest{})
	if err != nil {
		return err
	}
	x.open('{')
	x.num("version", int64(got.GetVersion()))
	x.str("node", got.GetNode())
	x.str("cluster_id", got.GetClusterId())
	objects(x, "nodes", got.GetNodes(), func(n *pawlv1.MapNode) {
		x.str("name", n.GetName())
		x.opt("api_address", n.GetApiAddress())
	})
	objects(x, "shards", got.GetShards(), func(s *pawlv1.MapShard) {
		x.num("shard", int64(s.GetShard()))
		x.opt("leader", s.GetLeader())
	})
	x.close('}')
	return nil
}

// done answers a call that has nothing to tell.
func (x *exchange) done(err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.close('}')
	return nil
}

func drainNode(x *exchange) error   { return x.drain(false) }
func undrainNode(x *exchange) error { return x.drain(true) }

func (x *exchange) drain(undo bool) error {
	if err := x.nothing(); err != nil {
		return err
	}
	_, err := x.API.Cluster.DrainNode(x.ctx, &pawlv1.DrainNodeRequest{Node: x.r.PathValue("node"), Undo: undo})
	return x.done(err)
}

func removeNode(x *exchange) error {
	req := &pawlv1.RemoveNodeRequest{Node: x.r.PathValue("node")}
	err := x.alone(func(r *jsonReader, name string) error {
		if name != "force" {
			return unknown("", name)
		}
		return r.boolean(&req.Force, name)
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.RemoveNode(x.ctx, req)
	return x.done(err)
}

// shardNumber reads the shard of the path.
func (x *exchange) shardNumber() (uint32, error) {
	text := x.r.PathValue("shard")
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, task.Invalid("shard", "%q is not the number of a shard", task.Cut(text, 64))
	}
	return uint32(n), nil
}

func moveReplica(x *exchange) error {
	shard, err := x.shardNumber()
	if err != nil {
		return err
	}
	req := &pawlv1.MoveReplicaRequest{Shard: shard}
	err = x.alone(func(r *jsonReader, name string) error {
		switch name {
		case "from":
			return r.setStr(&req.From, name)
		case "to":
			return r.setStr(&req.To, name)
		}
		return unknown("", name)
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.MoveReplica(x.ctx, req)
	return x.done(err)
}

func transferLeader(x *exchange) error {
	shard, err := x.shardNumber()
	if err != nil {
		return err
	}
	req := &pawlv1.TransferLeaderRequest{Shard: shard}
	err = x.alone(func(r *jsonReader, name string) error {
		if name != "to" {
			return unknown("", name)
		}
		return r.setStr(&req.To, name)
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.TransferLeader(x.ctx, req)
	return x.done(err)
}

func addShards(x *exchange) error {
	req := &pawlv1.AddShardsRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "total" {
			return unknown("", name)
		}
		req.Total, err = r.int32(name, 1, math.MaxInt32)
		return err
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.AddShards(x.ctx, req)
	return x.done(err)
}

func setReplication(x *exchange) error {
	req := &pawlv1.SetReplicationRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "replication" {
			return unknown("", name)
		}
		req.Replication, err = r.int32(name, 1, int64(contract.Replications[len(contract.Replications)-1]))
		return err
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.SetReplication(x.ctx, req)
	return x.done(err)
}

func setAuditRetention(x *exchange) error {
	req := &pawlv1.SetAuditRetentionRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "retention" {
			return unknown("", name)
		}
		req.Retention, err = r.span(name)
		return err
	})
	if err != nil {
		return err
	}
	_, err = x.API.Cluster.SetAuditRetention(x.ctx, req)
	return x.done(err)
}

func raiseLevel(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	got, err := x.API.Cluster.RaiseLevel(x.ctx, &pawlv1.RaiseLevelRequest{})
	if err != nil {
		return err
	}
	x.open('{')
	x.num("level", int64(got.GetLevel()))
	x.close('}')
	return nil
}

func verifyShard(x *exchange) error {
	shard, err := x.shardNumber()
	if err != nil {
		return err
	}
	if err := x.nothing(); err != nil {
		return err
	}
	x.patience(bulkTime) // every row is read
	got, err := x.API.Cluster.VerifyShard(x.ctx, &pawlv1.VerifyShardRequest{Shard: shard})
	if err != nil {
		return err
	}
	x.open('{')
	x.num("shard", int64(got.GetShard()))
	x.num("index", int64(got.GetIndex()))
	x.num("rows", got.GetRows())
	objects(x, "replicas", got.GetReplicas(), func(r *pawlv1.ReplicaHash) {
		x.str("node", r.GetNode())
		x.opt("hash", r.GetHash())
	})
	x.boolean("equal", got.GetEqual())
	x.strs("problems", got.GetProblems())
	x.close('}')
	return nil
}
