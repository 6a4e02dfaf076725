package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// nodes are the servers of a cluster.
type nodes struct {
	t    *testing.T
	all  []*member
	join string // peer addresses
}

// member is a server of a cluster.
type member struct {
	*server
	name string
}

const (
	clusterSize = 3
	// dataShard is the shard of all tasks in a cluster with one data shard.
	dataShard = 1
	// lookTime limits one request for a node's state.
	lookTime = time.Second
	// clusterPace makes producers leave some of the machine to three servers.
	clusterPace = 40 * time.Millisecond
	// clusterProbe is the resolution at which gaps are measured.
	clusterProbe = 20 * time.Millisecond
)

// newCluster starts three servers that form a cluster in which each can take over immediately.
func newCluster(t *testing.T) *nodes { return newClusterOf(t, binary) }

// newClusterOf is newCluster with servers that run a given program.
func newClusterOf(t *testing.T, program func() (string, error)) *nodes {
	t.Helper()
	return newClusterIn(t, program, nil)
}

// newClusterIn is newClusterOf with a directory for each server, if any are given, and flags for all.
func newClusterIn(t *testing.T, program func() (string, error), dirs []string, flags ...string) *nodes {
	t.Helper()
	skipIfShort(t)
	peers := make([]string, clusterSize)
	for i := range peers {
		peers[i] = freeAddr(t)
	}
	c := &nodes{t: t, join: strings.Join(peers, ",")}
	for i, peer := range peers {
		name := fmt.Sprintf("n%d", i+1)
		dir := filepath.Join(t.TempDir(), "data")
		if len(dirs) > 0 {
			dir = dirs[i]
		}
		s := newServerIn(t, dir, append([]string{"--node", name, "--peer-listen", peer, "--join", c.join}, flags...)...)
		s.program = program
		c.all = append(c.all, &member{s, name})
	}
	c.form()
	return c
}

// form starts all servers concurrently.
func (c *nodes) form() {
	c.t.Helper()
	for _, n := range c.all {
		n.launch()
	}
	for _, n := range c.all {
		n.serves()
	}
	c.whole()
}

// load returns the load of clients of which one is connected to each server, and one to whichever it finds.
func (c *nodes) load() load {
	cfg := load{queues: []string{"a", "b"}, pace: clusterPace, probe: clusterProbe}
	for _, n := range c.all {
		cfg.addrs = append(cfg.addrs, n.addr)
	}
	cfg.addrs = append(cfg.addrs, strings.Join(cfg.addrs, ","))
	return cfg
}

// faultless returns a load of clients that know all addresses, each with its own connections to whichever server: they must see no error.
func (c *nodes) faultless() load {
	cfg := c.load()
	all := cfg.addrs[len(cfg.addrs)-1]
	cfg.addrs, cfg.faultless = slices.Repeat([]string{all}, producers), true
	return cfg
}

// work loads the cluster until its clients get answers.
func (c *nodes) work() *workload {
	w := c.load().start(c.t)
	w.flow(&w.acked)
	return w
}

// standing is what a server reports about itself.
type standing struct {
	Shards []struct {
		Shard, Term uint64
		Leader      string
	}
}

// look asks a server for the state of its replicas; ok is false if it doesn't answer.
func (n *member) look() (s standing, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/api/v1/server", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, false
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s) == nil
}

// leader waits until a server reports that it leads the data shard.
func (c *nodes) leader() (leader *member) {
	c.t.Helper()
	eventually(c.t, "a leader is known", startLimit, func() bool {
		latest := uint64(0)
		leader = nil
		for _, n := range c.all {
			s, _ := n.look()
			for _, shard := range s.Shards {
				if shard.Shard == dataShard && shard.Leader == n.name && shard.Term > latest {
					leader, latest = n, shard.Term
				}
			}
		}
		return leader != nil
	})
	return leader
}

// other returns a random server other than those given.
func (c *nodes) other(than ...*member) *member {
	rest := slices.DeleteFunc(slices.Clone(c.all), func(n *member) bool { return slices.Contains(than, n) })
	return rest[rand.IntN(len(rest))]
}

// victim usually returns the leader.
func (c *nodes) victim() *member {
	c.t.Helper()
	if leader := c.leader(); rand.IntN(4) > 0 {
		return leader
	} else {
		return c.other(leader)
	}
}

// whole waits until every shard has a voting, up-to-date replica on every server.
func (c *nodes) whole() {
	c.t.Helper()
	client := c.operator()
	var said string
	began := time.Now()
	for time.Since(began) < startLimit {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		info, err := admin.New(client).Cluster().Status(ctx)
		cancel()
		if said = fmt.Sprintf("%+v, %v", info, err); err == nil && replicated(info) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("the cluster is not complete within %s: %s", startLimit, said)
}

func replicated(info *admin.ClusterStatus) bool {
	for _, s := range info.Shards {
		voters := 0
		for _, m := range s.Members {
			if m.Voter && m.Answers && !m.Leaving && m.Lag < 1000 {
				voters++
			}
		}
		if s.Leader == "" || voters != clusterSize || len(s.Members) != clusterSize || s.UnderReplicated {
			return false
		}
	}
	return len(info.Shards) > 1
}

// operator returns a client of whichever servers answer.
func (c *nodes) operator(opts ...pawl.DialOptions) *pawl.Client {
	c.t.Helper()
	addrs := c.load().addrs
	client, err := pawl.Dial(addrs[len(addrs)-1], append([]pawl.DialOptions{{RetryFor: -1, Plaintext: true}}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// ready waits until a server reports that it serves calls.
func (n *member) ready() {
	n.t.Helper()
	eventually(n.t, n.name+" is ready", startLimit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/readyz", nil)
		if err != nil {
			n.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// outages are the times at which something was broken.
type outages struct {
	w     *workload
	began []int64 // by the recorder's clock
}

func (o *outages) begin() { o.began = append(o.began, o.w.rec.Now()) }

// gaps returns for each outage the longest time without an answer to a call that changed something, from the outage's
// start to that of the next.
func (o *outages) gaps() []time.Duration {
	var gaps []time.Duration
	changed := o.w.changes()
	for i, began := range o.began {
		end := o.w.rec.Now()
		if i+1 < len(o.began) {
			end = o.began[i+1]
		}
		last, longest := began, int64(0)
		for _, r := range changed {
			if r.ReturnNS > last && r.ReturnNS <= end {
				longest, last = max(longest, r.ReturnNS-last), r.ReturnNS
			}
		}
		gaps = append(gaps, time.Duration(longest).Round(time.Millisecond))
	}
	return gaps
}

// report prints how long writes got no answer. It must be called before the load ends.
func (o *outages) report(what string) {
	o.w.t.Helper()
	gaps := o.gaps()
	slices.Sort(gaps)
	at := func(p int) time.Duration { return gaps[(len(gaps)*p+99)/100-1] }
	o.w.t.Logf("%d times %s: gaps in acknowledged writes p50 %s, p99 %s, max %s", len(gaps), what, at(50), at(99), gaps[len(gaps)-1])
}
