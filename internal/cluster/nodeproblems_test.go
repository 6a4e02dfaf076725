package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// A clock that is off, a full disk and a node that keeps restarting are reported with their consequences. What an
// unreachable node reported about itself is not.
func TestProblemsOfNodes(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	node := func(name string, change func(*NodeOverview)) NodeOverview {
		n := NodeOverview{Node: Node{Name: name, State: Active}, Alive: true, Reported: true, Report: Report{DiskFree: 50 * gib,
			DiskTotal: 100 * gib, MinFree: 256 * mib}}
		if change != nil {
			change(&n)
		}
		return n
	}
	off := func(d time.Duration) func(*NodeOverview) { return func(n *NodeOverview) { n.Report.ClockOffset = d } }
	short := func(free int64, leads ...uint32) func(*NodeOverview) {
		return func(n *NodeOverview) { n.Report.DiskShort, n.Report.DiskFree, n.Leads = true, free, leads }
	}
	const day = 24 * time.Hour
	left := func(of string, d time.Duration, more ...any) func(*NodeOverview) {
		return func(n *NodeOverview) {
			n.Report.CertsLeft = map[string]time.Duration{of: d}
			for i := 0; i < len(more); i += 2 {
				n.Report.CertsLeft[more[i].(string)] = more[i+1].(time.Duration)
			}
		}
	}
	n1, n2, n3 := node("n1", nil), node("n2", nil), node("n3", nil)
	for _, c := range []struct {
		name  string
		nodes []NodeOverview
		want  string
	}{
		{"all is well", []NodeOverview{n1, n2, n3}, ""},
		{"a clock within the bound", []NodeOverview{n1, node("n2", off(MaxClockOffset)), node("n3", off(-MaxClockOffset))}, ""},
		{"a clock is ahead", []NodeOverview{n1, node("n2", off(time.Hour)), n3},
			"the clock of node n2 is 1h0m0s ahead of those of most nodes: it leads no shard until the clock is right"},
		{"a clock is behind", []NodeOverview{n1, n2, node("n3", off(-MaxClockOffset-time.Millisecond))},
			"the clock of node n3 is 501ms behind those of most nodes: it leads no shard until the clock is right"},
		{"two clocks are apart", []NodeOverview{node("n1", off(-time.Minute)), node("n2", off(time.Minute))},
			"the clock of node n1 is 1m0s behind that of node n2, and with only two nodes there is no telling which is wrong"},
		{"and only the second tells", []NodeOverview{n1, node("n2", off(time.Minute))},
			"the clock of node n2 is 1m0s ahead of that of node n1, and with only two nodes there is no telling which is wrong"},
		{"and the first is away", []NodeOverview{node("n1", func(n *NodeOverview) {
			n.Alive, n.Silent, n.Report.ClockOffset = false, time.Minute,
				-time.Minute
		}), node("n2", off(time.Minute))},
			"no answer from node n1, last heard from 1m0s ago | the clock of node n2 is 1m0s ahead of that of node n1, and with " +
				"only two nodes there is no telling which is wrong"},
		{"a leader's disk is below its bound", []NodeOverview{node("n1", short(256*mib-1, 0, 2)), n2, n3},
			"the disk of node n1 has 255.9MiB free, less than 256MiB (--min-free): new tasks are refused in the shards that it " +
				"leads (shards 0, 2) until a node with room leads them"},
		{"one that leads nothing", []NodeOverview{n1, node("n2", short(100*mib)), n3},
			"the disk of node n2 has 100MiB free, less than 256MiB (--min-free): it leads no shard, since it takes no new tasks"},
		{"one that has a little room again", []NodeOverview{n1, node("n2", short(256*mib)), n3},
			"the disk of node n2 has 256MiB free, and had less than 256MiB (--min-free): other nodes lead its shards until it has " +
				"had a quarter more free for a while"},
		{"a disk is nearly full", []NodeOverview{n1, node("n2", func(n *NodeOverview) { n.Report.DiskFree = 10*gib - 1 }), n3},
			"the disk of node n2 has 9.9GiB of 100GiB free"},
		{"a disk is not", []NodeOverview{n1, node("n2", func(n *NodeOverview) { n.Report.DiskFree = 10 * gib }), n3}, ""},
		{"nobody knows how large", []NodeOverview{node("n1", func(n *NodeOverview) { n.Report = Report{} })}, ""},
		{"a state does not fit", []NodeOverview{n1, node("n2", func(n *NodeOverview) {
			n.Report.NoRoom = []NoRoom{{Shard: 1, Bytes: 60 * gib}, {Shard: 3, Bytes: 70 * gib}}
		}), n3},
			"the disk of node n2 has 50GiB free, too little to fill its replicas (shards 1, 3): the largest takes 70GiB, and " +
				"256MiB must stay free (--min-free)"},
		{"a disk is slow", []NodeOverview{n1, node("n2", func(n *NodeOverview) { n.Report.SlowDisk = true }), n3},
			"the disk of node n2 is much slower than those of other nodes: it gets no shards to lead"},
		{"a node starts again and again", []NodeOverview{n1, n2, node("n3", func(n *NodeOverview) {
			n.Starts, n.Proof = 3,
				90*time.Second
		})},
			"node n3 has started 3 times within 10m: it gets no shards to lead until it has run for 1m30s"},
		{"it has run for long enough", []NodeOverview{n1, n2, node("n3", func(n *NodeOverview) { n.Starts = 3 })}, ""},
		{"certificates last", []NodeOverview{node("n1", left("peer", 30*day, "server", 31*day)), n2, n3}, ""},
		{"one ends soon", []NodeOverview{n1, node("n2", left("peer", 30*day-1, "peer_ca", 300*day)), n3},
			"the peer certificate (--peer-cert) of node n2 expires in 29 days"},
		{"two do, one first", []NodeOverview{node("n1", left("client_ca", 13*day, "peer_ca", 12*day, "server", 14*day))},
			"the peer authority (--peer-ca) of node n1 expires in 12 days"},
		{"two at once", []NodeOverview{node("n1", left("server", 47*time.Hour, "client_ca", 47*time.Hour))},
			"the client authority (--client-ca) of node n1 expires in 47h0m0s"},
		{"one expires at once", []NodeOverview{node("n1", left("server", time.Minute-1))},
			"the server certificate (--tls-cert) of node n1 expires within a minute"},
		{"and in a minute", []NodeOverview{node("n1", left("server", time.Minute))},
			"the server certificate (--tls-cert) of node n1 expires in 1m0s"},
		{"one has expired", []NodeOverview{node("n1", left("server", 0, "peer", day))},
			"the server certificate (--tls-cert) of node n1 has expired"},
		{"everything at once, before it went", []NodeOverview{n1, n2, node("n3", func(n *NodeOverview) {
			n.Alive, n.Silent, n.Proof, n.Report = false, time.Minute, time.Minute, Report{ClockOffset: time.Hour,
				DiskShort: true, SlowDisk: true}
		})}, "no answer from node n3, last heard from 1m0s ago"},
	} {
		o := Overview{Settings: system.Settings{Replication: 3}, Nodes: c.nodes}
		var got []string
		for _, p := range o.Problems() {
			got = append(got, p.Text)
			if p.Node == "" || !strings.Contains(p.Text, "node "+p.Node) {
				t.Errorf("%s: problem %+v does not name its node", c.name, p)
			}
		}
		if strings.Join(got, " | ") != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}
