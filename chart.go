package pawl

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxNodes bounds the nodes that are taken from a map, and so the connections.
	maxNodes = 64
	// maxName bounds the names of nodes and clusters.
	maxName = 256
	// maxHints bounds the queues whose shards are remembered. Beyond it any one makes room.
	maxHints = 1024
)

// chart is what a client has learned of a cluster. All of it is a hint: where it is wrong, the node that gets a call sends it
// on, and its answer says who leads.
type chart struct {
	cluster string            // id; "": no map has come yet
	version uint64            // of the map
	here    string            // the node behind the line that takes every call, by its last word; "": not known
	addrs   map[string]string // where clients reach the nodes, by name
	leaders map[uint32]string // by shard
	queues  map[string]uint32 // shard of the last answer, by queue
}

func newChart() chart {
	return chart{addrs: map[string]string{}, leaders: map[uint32]string{}, queues: map[string]uint32{}}
}

// leader names the node that leads where a request belongs; "": not known.
func (c *chart) leader(a aim) string {
	shard, ok := a.shard, a.known
	if !ok {
		shard, ok = c.queues[a.queue]
	}
	if !ok {
		return ""
	}
	return c.leaders[shard]
}

// word is what the trailers of an answer say.
type word struct {
	shard   uint32
	stamped bool   // the answer is of this one shard
	leader  string // the other node that leads it; "": the one that answered
}

func wordOf(trailer metadata.MD) (w word) {
	if v := trailer["pawl-shard"]; len(v) == 1 {
		n, err := strconv.ParseUint(v[0], 10, 32) // fails for an answer of several shards
		w.shard, w.stamped = uint32(n), err == nil && n <= maxShard
	}
	if v := trailer["pawl-leader"]; w.stamped && len(v) == 1 && len(v[0]) <= maxName {
		w.leader = v[0]
	}
	return w
}

// wordOfStamps is the same of an answer over a stream.
func wordOfStamps(stamps []*pawlv1.ShardStamp) (w word) {
	if len(stamps) != 1 || stamps[0].GetShard() > maxShard {
		return w
	}
	w.shard, w.stamped = stamps[0].GetShard(), true
	if leader := stamps[0].GetLeader(); len(leader) <= maxName {
		w.leader = leader
	}
	return w
}

// leads names who leads by an answer that came from a node; "": not known. From "" stands for here.
func (c *chart) leads(from string, w word) string {
	switch {
	case w.leader != "":
		return w.leader
	case from != "":
		return from
	}
	return c.here
}

// knew says whether an answer tells nothing new.
func (c *chart) knew(a aim, from string, w word) bool {
	shard, known := c.queues[a.queue]
	return c.leaders[w.shard] == c.leads(from, w) && !c.moved(from, w) && (!a.whole || known && shard == w.shard)
}

// moved says whether an answer shows that here is another node by now.
func (c *chart) moved(from string, w word) bool {
	return from == "" && w.leader != "" && w.leader == c.here
}

// heard takes over what an answer tells.
func (c *chart) heard(a aim, from string, w word) {
	if c.moved(from, w) {
		c.here = ""
	}
	if leader := c.leads(from, w); leader != "" {
		c.leaders[w.shard] = leader
	} else {
		delete(c.leaders, w.shard)
	}
	if !a.whole {
		return
	}
	if _, known := c.queues[a.queue]; !known && len(c.queues) >= maxHints {
		for old := range c.queues {
			delete(c.queues, old)
			break
		}
	}
	c.queues[strings.Clone(a.queue)] = w.shard // not a part of something larger
}

// forget forgets that a node leads where a request belongs: it did not do so.
func (c *chart) forget(a aim, node string) {
	shard, ok := a.shard, a.known
	if !ok {
		shard, ok = c.queues[a.queue]
	}
	if ok && c.leaders[shard] == node {
		delete(c.leaders, shard)
	}
}

// take takes over a map, perhaps from the node behind the line that takes every call.
func (c *chart) take(m *pawlv1.GetMapResponse, here bool) {
	name, cluster := m.GetNode(), m.GetClusterId()
	if name == "" || cluster == "" || len(name) > maxName || len(cluster) > maxName {
		return // nobody could be told from another by it
	}
	if here {
		c.here = name
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
		if _, member := c.addrs[s.GetLeader()]; member && s.GetShard() <= maxShard {
			c.leaders[s.GetShard()] = s.GetLeader()
		}
	}
}
