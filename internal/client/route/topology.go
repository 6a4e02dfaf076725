package route

import (
	"strconv"
	"strings"

	"github.com/pawlq/pawl/internal/client/convert"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxNodes bounds the nodes that are used from a map, and so the connections.
	maxNodes = 64
	// maxName bounds the names of nodes and clusters.
	maxName = 256
	// maxHints bounds the queues whose shards are remembered. Beyond that, an arbitrary one makes room.
	maxHints = 1024
)

// topology is what a client has learned about a cluster. All of it is hints: where one is wrong, the node that gets a call
// forwards it, and its response names the leader.
type topology struct {
	cluster     string            // id; "": no map yet
	version     uint64            // of the map
	defaultNode string            // the node behind the channel that takes every call, as last reported; "": not known
	addrs       map[string]string // where clients can reach the nodes, by name
	leaders     map[uint32]string // by shard
	queues      map[string]uint32 // shard of the last response, by queue
	spread      map[string]bool   // those of queues for which several shards have responded
}

func newTopology() topology {
	return topology{addrs: map[string]string{}, leaders: map[uint32]string{}, queues: map[string]uint32{}, spread: map[string]bool{}}
}

// leader returns the name of the node that leads where a request belongs; "": not known.
func (c *topology) leader(a Destination) string {
	shard, ok := a.shard, a.known
	if !ok {
		shard, ok = c.queues[a.queue]
	}
	if !ok {
		return ""
	}
	return c.leaders[shard]
}

// stamp is the content of a response's trailers.
type stamp struct {
	shard   uint32
	stamped bool   // the response is from this one shard
	leader  string // the other node that leads it; "": the one that responded
}

func stampOf(trailer metadata.MD) (w stamp) {
	if v := trailer["pawl-shard"]; len(v) == 1 {
		n, err := strconv.ParseUint(v[0], 10, 32) // fails for a response from several shards
		w.shard, w.stamped = uint32(n), err == nil && n <= convert.MaxShard
	}
	if v := trailer["pawl-leader"]; w.stamped && len(v) == 1 && len(v[0]) <= maxName {
		w.leader = v[0]
	}
	return w
}

// stampOfFrame returns the stamp of a response over a stream.
func stampOfFrame(stamps []*pawlv1.ShardStamp) (w stamp) {
	if len(stamps) != 1 || stamps[0].GetShard() > convert.MaxShard {
		return w
	}
	w.shard, w.stamped = stamps[0].GetShard(), true
	if leader := stamps[0].GetLeader(); len(leader) <= maxName {
		w.leader = leader
	}
	return w
}

// leads returns the leader according to a response from a node; "": not known. If from is "", the node is defaultNode.
func (c *topology) leads(from string, w stamp) string {
	switch {
	case w.leader != "":
		return w.leader
	case from != "":
		return from
	}
	return c.defaultNode
}

// knows reports whether a response contains nothing new.
func (c *topology) knows(a Destination, from string, w stamp) bool {
	shard, known := c.queues[a.queue]
	return c.leaders[w.shard] == c.leads(from, w) && !c.moved(from, w) && (!a.whole || known && shard == w.shard)
}

// moved reports whether a response shows that defaultNode is a different node by now.
func (c *topology) moved(from string, w stamp) bool {
	return from == "" && w.leader != "" && w.leader == c.defaultNode
}

// learn records what a response says.
func (c *topology) learn(a Destination, from string, w stamp) {
	if c.moved(from, w) {
		c.defaultNode = ""
	}
	if leader := c.leads(from, w); leader != "" {
		c.leaders[w.shard] = leader
	} else {
		delete(c.leaders, w.shard)
	}
	if !a.whole {
		return
	}
	name := strings.Clone(a.queue) // not a part of a larger string
	shard, known := c.queues[name]
	if known && shard != w.shard {
		c.spread[name] = true
	}
	if !known && len(c.queues) >= maxHints {
		for old := range c.queues {
			delete(c.queues, old)
			delete(c.spread, old)
			break
		}
	}
	c.queues[name] = w.shard
}

// forget forgets that a node leads where a request belongs: it did not.
func (c *topology) forget(a Destination, node string) {
	shard, ok := a.shard, a.known
	if !ok {
		shard, ok = c.queues[a.queue]
	}
	if ok && c.leaders[shard] == node {
		delete(c.leaders, shard)
	}
}

// update replaces the map. fromDefault means that it came from the node behind the channel that takes every call.
func (c *topology) update(m *pawlv1.GetMapResponse, fromDefault bool) {
	name, cluster := m.GetNode(), m.GetClusterId()
	if name == "" || cluster == "" || len(name) > maxName || len(cluster) > maxName {
		return // nodes could not be told apart by it
	}
	if fromDefault {
		c.defaultNode = name
	}
	if cluster == c.cluster && m.GetVersion() < c.version {
		return // that node is behind
	}
	c.cluster, c.version = cluster, m.GetVersion()
	clear(c.addrs)
	for _, n := range m.GetNodes()[:min(len(m.GetNodes()), maxNodes)] {
		if n.GetName() != "" && len(n.GetName()) <= maxName {
			c.addrs[n.GetName()] = n.GetApiAddress()
		}
	}
	for _, s := range m.GetShards() {
		if _, member := c.addrs[s.GetLeader()]; member && s.GetShard() <= convert.MaxShard {
			c.leaders[s.GetShard()] = s.GetLeader()
		}
	}
}
