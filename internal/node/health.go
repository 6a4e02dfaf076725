package node

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
)

// health tracks whether this node may lead shards and whether it is ready for calls.
type health struct {
	cfg       Config
	identity  *datadir.IdentityStore
	began     time.Time
	disk      *datadir.Space // nil: in memory
	transport *transport.Transport
	replicas  *replicas
	copy      *cluster.Copy
	router    *router.Router
	certs     *certs.Watcher

	offset  atomic.Int64 // of the wall clock, in nanoseconds
	slow    atomic.Bool  // the disk is slow
	barred  atomic.Bool  // must not become a leader: the offset is too large, or the disk slow
	leaving atomic.Bool  // stopping, and no longer leads
}

// noRoom returns the snapshots that this node refused.
func (h *health) noRoom() (all []cluster.NoRoom) {
	for _, refused := range h.disk.NoRoom() {
		all = append(all, cluster.NoRoom(refused))
	}
	return all
}

// report returns the node's report on itself.
func (h *health) report() cluster.Report {
	r := cluster.Report{Node: h.identity.Read().Node, APIAddress: h.cfg.APIAddress, Version: h.cfg.Version,
		ClockOffset: time.Duration(h.offset.Load()), Barred: h.barred.Load(), SlowDisk: h.slow.Load(), DiskShort: h.disk.CheckFull(),
		NoRoom: h.noRoom(), Up: time.Since(h.began)}
	if !h.cfg.InMemory {
		r.MinFree = h.cfg.MinFree
		r.DiskFree, r.DiskTotal, _ = h.cfg.diskBytes(h.cfg.Dir)
	}
	for _, id := range h.replicas.all() {
		rep := h.replicas.get(id)
		if rep == nil {
			continue
		}
		leader, term := rep.shard.Leader()
		r.Shards = append(r.Shards, cluster.ShardReport{Shard: id, Applied: rep.state.Applied().Index, Leader: leader, Term: term})
	}
	r.CertsLeft = map[string]time.Duration{}
	for of, end := range h.certs.Ends() {
		r.CertsLeft[of] = end.Sub(h.cfg.Time.Wall())
	}
	return r
}

// watchCertificates notes when the certificates of this node expire, until ctx ends.
func (n *Node) watchCertificates(ctx context.Context) {
	n.certs.Run(ctx, n.cfg.Logger, n.cfg.Time.Wall, n.certificateEnds)
}

// certificateEnds reads when the certificates of this node expire.
func (n *Node) certificateEnds() certs.Ends {
	ends := n.transport.CertificateEnds()
	if n.cfg.Certificate != nil {
		ends[certs.Server] = certs.EndOf(n.cfg.Certificate())
	}
	if until := n.cfg.ClientCertificates.Until; until != nil {
		ends[certs.ClientAuthority] = until()
	}
	return ends
}

// ready returns why the node should get no calls now. A node whose disk is full leads no shards if others have room,
// and those get the calls. A node whose replicas are being filled does serve, but a rolling restart must wait for it:
// while replicas of its former number have votes, the others can't lose another node.
func (h *health) ready() error {
	if err := h.router.Ready(); err != nil {
		return err
	}
	m := h.copy.Map()
	me := cluster.NodeOverview{Node: cluster.Node{Name: h.cfg.Name}, Report: h.report()}
	leads := slices.ContainsFunc(me.Report.Shards, func(s cluster.ShardReport) bool { return nodeOf(s.Leader) == me.Report.Node })
	if p, amiss := cluster.DiskProblem(&me); amiss && p.Kind == cluster.DiskFull && hasPeers(m) && !leads {
		return task.Unavailable(time.Second, "%s", p.Text)
	}
	for _, row := range m.Shards {
		for _, r := range row.Replicas {
			if of, _ := m.Node(r.Node); of.State == cluster.Removed && of.Name == h.cfg.Name {
				return task.Unavailable(time.Second, "shard %d: this node's replica is being filled", row.ID)
			}
		}
	}
	return nil
}

// handOverTime is how long a stopping node tries to transfer its leaderships.
const handOverTime = 3 * time.Second

// whyStops is the reason why a stopping node no longer leads.
const whyStops = "the node stops"

// handOver transfers the leadership of the shards that this node leads, where there are other replicas.
func (h *health) handOver(ctx context.Context) {
	h.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	leads := func() bool {
		for _, id := range h.replicas.all() {
			rep := h.replicas.get(id)
			if row, ok := h.copy.Shard(id); rep == nil || !ok || len(row.Replicas) < 2 {
				continue
			}
			rep.shard.Bar(whyStops)
			if rep.shard.Leads() {
				return true
			}
		}
		return false
	}
	for leads() && pause(ctx, briefly) == nil {
	}
}
