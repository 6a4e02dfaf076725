package ui

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var clusterPages = []web.Page{{Path: "/cluster", Template: "cluster", Nav: "/cluster", Show: showCluster}}

var clusterActions = []web.Action{
	{Path: "/nodes/{node}/drain", Nav: "/cluster", Form: nodeForm("Drain",
		"The node's replicas and leaders move to other nodes, as far as "+
			"they have room.", true), Do: doNode("Draining.", admin.Cluster.DrainNode)},
	{Path: "/nodes/{node}/undrain", Nav: "/cluster", Form: nodeForm("Undrain", "The node takes replicas again.", false),
		Do: doNode("Takes replicas again.", admin.Cluster.UndrainNode)},
	{Path: "/nodes/{node}/remove", Nav: "/cluster", Form: nodeForm("Remove", "The node leaves the cluster for good; to come back it must "+
		"join again with an empty data directory. A node that still holds replicas cannot be removed: drain it first.", true),
		Do: doNode("Removed.", removeNode)},
	{Path: "/shards/{shard}/transfer", Nav: "/cluster", Form: transferForm, Do: doTransfer},
}

type clusterView struct {
	*admin.ClusterStatus
	Server *admin.Server
	Nodes  []nodeRow
	Shards []shardRow
	Alone  bool
}

type nodeRow struct {
	admin.Node
	State       string // for its color
	Word        string // state in words
	SilentFor   string // how long it has not been heard from, if it is not alive
	DiskUsed    int64  // percent
	HasReplicas string // number of replicas, and their shards
	LeadsShards string // number of shards that it leads, and which
}

func nodeRowOf(n admin.Node) nodeRow {
	row := nodeRow{Node: n, State: n.State, Word: n.State, HasReplicas: humanize.Counted(n.Replicas),
		LeadsShards: humanize.Counted(n.Leads)}
	switch {
	case !n.Alive:
		row.State, row.Word, row.SilentFor = "silent", n.Health(), "for "+format.Duration(n.Silent.Round(time.Second))
	case n.State == "active":
		row.State, row.Word = n.Health(), n.Health()
	}
	if n.DiskTotal > 0 {
		row.DiskUsed = (n.DiskTotal - n.DiskFree) * 100 / n.DiskTotal
	}
	return row
}

// DiskShort reports whether less than a tenth of the disk is free, of which the overview warns too.
func (r nodeRow) DiskShort() bool { return r.DiskTotal > 0 && r.DiskFree < r.DiskTotal/10 }

// shardRow is a shard with the state of its replicas.
type shardRow struct {
	admin.ShardStatus
	Replicas []replicaRow
	Silent   string // nodes with replicas that don't answer, of those that stay
}

// replicaRow is a replica. State is for its color.
type replicaRow struct {
	admin.Replica
	State string
}

func shardRowOf(s admin.ShardStatus) shardRow {
	row := shardRow{ShardStatus: s}
	var silent []string
	for _, m := range s.Members {
		r := replicaRow{m, "alive"}
		switch {
		case !m.Answers:
			r.State = "silent"
		case m.Lag > 0:
			r.State = "behind"
		}
		if !m.Answers && !m.Leaving {
			silent = append(silent, m.Node)
		}
		row.Replicas = append(row.Replicas, r)
	}
	row.Silent = strings.Join(silent, ", ")
	return row
}

func showCluster(req *web.Request) (*web.Screen, error) {
	c, err := req.Admin().Cluster().Status(req.Ctx)
	if err != nil {
		return nil, err
	}
	server, err := req.Admin().Cluster().Server(req.Ctx)
	if err != nil {
		return nil, err
	}
	view := clusterView{ClusterStatus: c, Server: server, Alone: len(c.Nodes) < 2}
	for _, n := range c.Nodes {
		view.Nodes = append(view.Nodes, nodeRowOf(n))
	}
	for _, s := range c.Shards {
		view.Shards = append(view.Shards, shardRowOf(s))
	}
	return &web.Screen{Title: "Cluster", Data: view}, nil
}

func removeNode(c admin.Cluster, ctx context.Context, node string) error {
	return c.RemoveNode(ctx, node, false)
}

func nodeForm(verb, text string, danger bool) func(*web.Request) (*form.Form, error) {
	return func(req *web.Request) (*form.Form, error) {
		c, err := req.Admin().Cluster().Status(req.Ctx)
		if err != nil {
			return nil, err
		}
		name := req.PathValue("node")
		for _, n := range c.Nodes {
			if n.Name == name {
				return &form.Form{Title: verb + " " + name, Text: text, Button: verb + " " + name, Danger: danger, Back: "/cluster",
					Facts: []form.Fact{{Name: "Replicas", Value: humanize.Counted(n.Replicas)},
						{Name: "Leads", Value: humanize.Counted(n.Leads)}, {Name: "State", Value: n.State}},
					Fields: []form.Field{form.Reason()}}, nil
			}
		}
		return nil, &pawltype.Error{Code: "not_found", Message: fmt.Sprintf("node %q is not a member", format.Clip(name, 60))}
	}
}

func doNode(message string, call func(admin.Cluster, context.Context, string) error) func(*web.Request) (web.Done, error) {
	return func(req *web.Request) (web.Done, error) {
		name := req.PathValue("node")
		if err := call(req.Admin().WithReason(req.Value("reason")).Cluster(), req.Ctx, name); err != nil {
			return web.Done{}, err
		}
		return web.Done{Message: name + ": " + strings.ToLower(message), Next: "/cluster"}, nil
	}
}

func transferForm(req *web.Request) (*form.Form, error) {
	c, err := req.Admin().Cluster().Status(req.Ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Shards {
		if strconv.Itoa(int(s.Shard)) != req.PathValue("shard") {
			continue
		}
		options := []form.Option{{Value: "", Label: "whichever"}}
		for _, m := range s.Members {
			options = append(options, form.Option{Value: m.Node, Label: m.Node})
		}
		return &form.Form{Title: "Leader of shard " + req.PathValue("shard"),
			Text: "The node becomes the leader as soon as its log is complete, and Pawl keeps it there when it can.", Button: "Transfer",
			Back: "/cluster", Facts: []form.Fact{{Name: "Current leader", Value: s.Leader}},
			Fields: []form.Field{{Name: "to", Label: "New leader",
				Kind: "choice", Options: options, Value: s.Preferred}, form.Reason()}}, nil
	}
	return nil, &pawltype.Error{Code: "not_found", Message: fmt.Sprintf("shard %q does not exist", format.Clip(req.PathValue("shard"), 20))}
}

func doTransfer(req *web.Request) (web.Done, error) {
	shard, err := strconv.ParseUint(req.PathValue("shard"), 10, 32)
	if err != nil {
		return web.Done{}, format.BadField("shard", "%q is not a number", format.Clip(req.PathValue("shard"), 20))
	}
	if err := req.Admin().WithReason(req.Value("reason")).Cluster().TransferLeader(req.Ctx, uint32(shard), req.Value("to")); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "The shard moves to its new leader in a moment.", Next: "/cluster"}, nil
}
