package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

// refillBudget is the time in which a member that has lost something must be whole again.
const refillBudget = 30 * time.Second

// damages are the things that a member can lose while it is down.
var damages = []struct {
	name string
	do   func(n *member)
}{
	{"the state of a shard", func(n *member) { n.lose("shard-0001*") }},
	{"a table", func(n *member) { n.spoil("shard-0001*/*.sst") }},
	{"the list of tables", func(n *member) { n.spoil("shard-0001*/MANIFEST-*") }},
	{"the log", func(n *member) { n.spoil("raft/log/*.log") }},
	{"the identity, twice", func(n *member) { n.spoil("node.json*") }},
	{"the name of the list of tables", func(n *member) { n.lose("shard-0001*/marker.manifest.*") }},
}

// TestClusterDamage makes one server after the other lose a part of its directory while it is down, in a long run every
// other time with no CPU to spare: in others, other tests keep the machine busy. It comes back by itself, under its
// name, and is refilled by the others: the cluster is whole again within 30 s, and no shard has fewer than three voters
// in between. PAWL_CLUSTER_DAMAGES sets how often.
func TestClusterDamage(t *testing.T) {
	c := newCluster(t)
	w := c.work()
	rounds := count(t, "PAWL_CLUSTER_DAMAGES", 2)
	for round := range rounds {
		damage := damages[round%len(damages)]
		n := c.victim()
		idle := func() {}
		if long() && round%2 == 0 {
			idle = keepBusy(t)
		}
		watched := c.watchVoters()
		if rand.IntN(2) == 0 {
			n.end()
		} else {
			n.kill()
		}
		damage.do(n)
		from, began := n.mark(), time.Now()
		n.start()
		joined := time.Since(began)
		c.whole()
		whole := time.Since(began)
		n.ready()
		watched()
		idle()
		t.Logf("%s lost %s: it rejoined after %s, and the cluster was complete after %s", n.name, damage.name,
			joined.Round(time.Millisecond), whole.Round(time.Millisecond))
		budget(t, "whole after damage", whole, refillBudget)
		if said := n.logSince(from); !strings.Contains(said, "damaged: this node rejoins") {
			t.Errorf("%s lost %s, but its log does not report the damage", n.name, damage.name)
		}
		w.flow(&w.acked)
	}
	w.finish()
	c.whole()
	w.check()
}

// TestClusterDamageFoundLater makes a server lose what it has open: the first read of it ends the process, and the next
// start has it refilled by the others. Reopening it and failing in the same way again would be no use.
func TestClusterDamageFoundLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := c.work()
	n := c.other(c.leader())
	full := fill(c.leader().server)
	eventually(t, "tables of the state", startLimit, func() bool { return len(n.files("shard-0001*/*.sst")) > 3 })
	full()
	from := n.mark() // a compaction may meet the damage before the verification does
	n.spoil("shard-0001*/*.sst")
	_ = command(t, "verify", "--server", "http://"+c.leader().addr).Run()
	if status := n.exit(); status <= 0 {
		t.Errorf("%s exited with status %d, want one above 0", n.name, status)
	}
	if said := n.logSince(from); !strings.Contains(said, "is damaged") || !strings.Contains(said, ".sst") ||
		!strings.Contains(said, "start it again, and the other nodes will fill it") {
		t.Errorf("the log of %s does not say what is damaged and what to do", n.name)
	}
	began := time.Now()
	n.start()
	c.whole()
	budget(t, "whole after damage", time.Since(began), refillBudget)
	w.flow(&w.acked)
	w.finish()
	c.whole()
	w.check()
}

// files returns the files in the data directory that match a pattern.
func (s *server) files(pattern string) []string {
	s.t.Helper()
	names, err := filepath.Glob(filepath.Join(s.data, pattern))
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

// lose deletes what matches a pattern.
func (s *server) lose(pattern string) {
	s.t.Helper()
	names := s.files(pattern)
	if len(names) == 0 {
		s.t.Fatalf("no file matches %s in %s", pattern, s.data)
	}
	for _, name := range names {
		if err := os.RemoveAll(name); err != nil {
			s.t.Fatal(err)
		}
	}
}

// spoil flips a bit in the first block of each file that matches a pattern.
func (s *server) spoil(pattern string) {
	s.t.Helper()
	names := s.files(pattern)
	if len(names) == 0 {
		s.t.Fatalf("no file matches %s in %s", pattern, s.data)
	}
	for _, name := range names {
		if err := flipBit(name, 20); err != nil && !os.IsNotExist(err) { // compacted meanwhile
			s.t.Fatal(err)
		}
	}
}

// flipBit flips a bit of the byte at an offset, if the file is long enough. It writes in place: a process that has the
// file open never sees it truncated.
func flipBit(name string, at int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	b[0] ^= 0x10
	_, err = f.WriteAt(b, at)
	return err
}

// keepBusy keeps all CPUs of the machine busy until end is called.
func keepBusy(t *testing.T) (end func()) {
	var loops []*exec.Cmd
	for range 4 {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		loops = append(loops, loop)
	}
	end = sync.OnceFunc(func() {
		for _, loop := range loops {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		}
	})
	t.Cleanup(end)
	return end
}

// watchVoters polls the voters of all shards until end is called: there must always be three.
func (c *nodes) watchVoters() (end func()) {
	client := c.operator()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	few := map[string]bool{}
	watching.Go(func() {
		for ctx.Err() == nil {
			ask, cancel := context.WithTimeout(ctx, lookTime)
			info, err := admin.New(client).Cluster().Status(ask)
			cancel()
			if err == nil && info.SeenBy == "" { // otherwise it is one node's own view, which has no voters
				for _, s := range info.Shards {
					voters := 0
					for _, m := range s.Members {
						if m.Voter {
							voters++
						}
					}
					if s.Leader != "" && voters < clusterSize { // without a leader the voters are unknown
						few[fmt.Sprintf("shard %d has %d voters", s.Shard, voters)] = true
					}
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		watching.Wait()
		for what := range few {
			c.t.Error(what)
		}
	}
}
