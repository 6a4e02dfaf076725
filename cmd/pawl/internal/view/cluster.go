package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// NodeState is a node's state in one word.
type NodeState struct {
	Node  string `json:"node"`
	State string `json:"state"`
}

// Cluster is the status of the cluster.
type Cluster struct {
	Settings ClusterSettings `json:"settings"`
	Nodes    []Node          `json:"nodes"`
	Shards   []Shard         `json:"shards"`
	Problems []string        `json:"problems,omitempty"`
	SeenBy   string          `json:"seen_by,omitempty"`
	Node     string          `json:"node,omitempty"`
}

// ClusterSettings are the settings of the whole cluster.
type ClusterSettings struct {
	Replication int `json:"replication"`
	Level       int `json:"level"`
	DataShards  int `json:"data_shards"`

	AuditRetention string `json:"audit_retention"`
}

// Node is a node of the cluster.
type Node struct {
	Name        string   `json:"name"`
	Number      uint32   `json:"number"`
	State       string   `json:"state"`
	Answers     bool     `json:"answers"`
	Alive       bool     `json:"alive"`
	Reported    bool     `json:"reported"`
	Silent      float64  `json:"silent_seconds"`
	Version     string   `json:"version,omitempty"`
	PeerAddress string   `json:"peer_address,omitempty"`
	APIAddress  string   `json:"api_address,omitempty"`
	DiskFree    *int64   `json:"disk_free_bytes,omitempty"`
	DiskTotal   int64    `json:"disk_total_bytes,omitempty"`
	ClockOffset *float64 `json:"clock_offset_seconds,omitempty"`
	Replicas    []uint32 `json:"replicas"`
	Leads       []uint32 `json:"leads"`
}

// Shard is a shard with its replicas.
type Shard struct {
	Shard           uint32   `json:"shard"`
	Leader          string   `json:"leader,omitempty"`
	Preferred       string   `json:"preferred,omitempty"`
	Term            uint64   `json:"term,omitempty"`
	Applied         uint64   `json:"applied,omitempty"`
	Members         []Member `json:"members"`
	UnderReplicated bool     `json:"under_replicated"`
	Problem         string   `json:"problem,omitempty"`
	LastStep        string   `json:"last_step,omitempty"`
}

// Member is a replica of a shard.
type Member struct {
	Node         string `json:"node"`
	Voter        bool   `json:"voter"`
	Answers      bool   `json:"answers"`
	Leaving      bool   `json:"leaving"`
	Snapshotting bool   `json:"snapshotting"`
	Lag          uint64 `json:"lag"`
}

// NewCluster converts the status of the cluster.
func NewCluster(info *admin.ClusterStatus) Cluster {
	s := info.Settings
	v := Cluster{Settings: ClusterSettings{s.Replication, s.FeatureLevel, s.DataShards, text.Period(s.AuditRetention)}, Nodes: []Node{}, Shards: []Shard{},
		Problems: info.Problems, SeenBy: info.SeenBy, Node: info.Node}
	for _, n := range info.Nodes {
		v.Nodes = append(v.Nodes, NewNode(n))
	}
	for _, s := range info.Shards {
		shown := Shard{Shard: s.Shard, Leader: s.Leader, Preferred: s.Preferred, Term: s.Term, Applied: s.Applied, Members: []Member{},
			UnderReplicated: s.UnderReplicated, Problem: s.Problem, LastStep: s.LastStep}
		for _, m := range s.Members {
			shown.Members = append(shown.Members, Member(m))
		}
		v.Shards = append(v.Shards, shown)
	}
	return v
}

// NewNode converts a node.
func NewNode(n admin.Node) Node {
	v := Node{Name: n.Name, Number: n.Number, State: n.State, Answers: n.Answers, Alive: n.Alive, Reported: n.Reported, Silent: n.Silent.Round(time.Millisecond).Seconds(),
		Version: n.Version, PeerAddress: n.PeerAddress, APIAddress: n.APIAddress, DiskTotal: n.DiskTotal,
		Replicas: append([]uint32{}, n.Replicas...), Leads: append([]uint32{}, n.Leads...)}
	if n.DiskTotal > 0 {
		v.DiskFree = &n.DiskFree
	}
	if n.Reported {
		offset := n.ClockOffset.Seconds()
		v.ClockOffset = &offset
	}
	return v
}
