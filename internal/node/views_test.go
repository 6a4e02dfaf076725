package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/admin"
)

// From the moment that a node is killed, whether it leads the system shard or not, the status and the statistics of
// each other node say so in the same words, and neither calls any other node silent. Within 2 s more the probes, too,
// agree with the status on which shards have leaders.
func TestAllViewsAgreeAfterAKill(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprint("leads ", leads), func(t *testing.T) {
			if !leads {
				bySameGoroutines(t, "TestAllViewsAgreeAfterAKill/leads_true")
			}
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t)
				w.grow()
				pass(10 * time.Second) // by then all nodes have reported
				dead := w.leaderOf(0)
				if !leads {
					dead = map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[dead]
				}
				clients := map[string]admin.Client{}
				for name, s := range w.nodes {
					if name != dead {
						clients[name] = admin.New(s.client())
					}
				}
				w.crash(dead)
				killed := time.Now()
				gone := "no answer from node " + dead
				for time.Since(killed) < 20*time.Second {
					for name, c := range clients {
						at := time.Since(killed)
						status, err := c.Cluster().Status(t.Context())
						if err != nil {
							t.Fatalf("%s after %s: %v", name, at, err)
						}
						if status.Node != name {
							t.Errorf("node %s says that node %q answered", name, status.Node)
						}
						for _, n := range status.Nodes {
							if n.Alive != (n.Name != dead) || n.Answers != n.Alive {
								t.Errorf("by %s after %s, node %s is %+v", name, at, n.Name, n)
							}
						}
						for _, p := range status.Problems {
							if slices.ContainsFunc([]string{"n1", "n2", "n3"}, func(n string) bool {
								return n != dead &&
									strings.Contains(p, "answer from node "+n)
							}) {
								t.Errorf("by %s after %s: %q", name, at, p)
							}
						}
						stats, err := c.Stats(t.Context(), 0)
						if err != nil {
							t.Fatalf("%s after %s: %v", name, at, err)
						}
						var nodes []string
						for _, a := range stats.Attention {
							if a.Kind == "node" {
								nodes = append(nodes, a.Detail)
							}
						}
						if len(nodes) != 1 || !strings.HasPrefix(nodes[0], gone) || !slices.ContainsFunc(status.Problems,
							func(p string) bool {
								return strings.HasPrefix(p, gone)
							}) {
							t.Errorf("by %s after %s: statistics say %q, the status %q", name, at, nodes, status.Problems)
						}
						if at < 2*time.Second {
							continue
						}
						code, why := w.get(name, "/readyz", "status")
						if code != 200 || slices.ContainsFunc(status.Shards, func(s admin.ShardStatus) bool {
							return s.Leader == "" ||
								s.Leader == dead
						}) {
							t.Errorf("by %s after %s: /readyz %d %q, shards %+v", name, at, code, why, status.Shards)
						}
					}
					pass(200 * time.Millisecond)
				}
			})
		})
	}
}
