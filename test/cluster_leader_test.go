package test

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

const (
	// handoverBudget is the time in which a server whose disk has no room must lead nothing any more.
	handoverBudget = 10 * time.Second
	// roomMiB is the --min-free of TestClusterFullDisk, and diskMiB the size of its disks.
	roomMiB, diskMiB = 64, 192
)

// TestClusterFullDisk fills the disk of a leader of three servers up to --min-free, under load: it hands everything
// that it leads to servers with room, so that new tasks are accepted through any server, and it is reported as a
// problem.
func TestClusterFullDisk(t *testing.T) {
	t.Parallel()
	var disks []*disk
	var dirs []string
	for range clusterSize {
		d := mountDisk(t, diskMiB)
		disks, dirs = append(disks, d), append(dirs, filepath.Join(d.path, "data"))
	}
	c := newClusterIn(t, binary, dirs, "--min-free", "64MiB")
	w := c.work()
	full := c.leader()
	disk, marks := disks[slices.Index(c.all, full)], c.marks()
	began := time.Now()
	disk.fill(roomMiB * 3 / 4)
	c.eventuallyLeads(full, 0)
	budget(t, "a server with a full disk leads nothing", time.Since(began), handoverBudget)
	w.flow(&w.accepted)
	for _, n := range c.all {
		client := n.dial(pawl.DialOptions{RetryFor: startLimit}) // another server may just be taking over
		if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("c")); err != nil {
			t.Errorf("a task was refused by %s: %v", n.name, err)
		}
	}
	info, err := admin.New(c.operator()).Cluster().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(info.Problems, "\n"); !strings.Contains(said, "the disk of node "+full.name+" has ") {
		t.Errorf("the disk of %s is full, but the reported problems are %q", full.name, said)
	}
	why := `from=` + full.name + ` `
	if said := c.logLines(marks, "the shard has a new leader", why, "handed over: the disk of node "+full.name+
		" has no room for new tasks"); len(said) == 0 {
		t.Errorf("no log says that %s handed over, or why", full.name)
	}
	disk.empty()
	w.finish()
	c.whole()
	w.check()
}

// TestClusterTransferToTheDead kills a server, and pauses another for a while. Others then lead their shards and are to
// give some back: no shard stops serving because of a handover to an unreachable server.
func TestClusterTransferToTheDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client := c.operator()
	if err := admin.New(client).Cluster().AddShards(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	c.whole()
	w := c.scattered("a", "b", "c", "d", "e", "f")
	for _, n := range c.all {
		c.eventuallyLeads(n, 2)
	}
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		n, marks := c.victim(), c.marks()
		if how == syscall.SIGKILL {
			n.kill()
		} else {
			n.signal(how)
		}
		gone := time.Now().Add(begunBefore)
		time.Sleep(awayTime)
		back := time.Now()
		if how == syscall.SIGKILL {
			n.start()
		} else {
			n.signal(syscall.SIGCONT)
		}
		n.ready()
		said := slices.DeleteFunc(c.logLines(marks, "leadership was not handed over", "to="+n.name+" ", "did not take over"),
			func(line string) bool {
				at := loggedAt(t, line)
				return at.Before(gone) || at.After(back)
			})
		if len(said) > 0 {
			t.Errorf("after %s of %s, shards stopped serving for handovers to it: %s", how, n.name, strings.Join(said, "\n"))
		}
		t.Logf("after %s of %s: %d handovers to it were abandoned before they began", how, n.name,
			len(c.logLines(marks, "leadership was not handed over", "to="+n.name+" ", "it did not answer")))
		c.whole()
		w.flow(&w.acked)
	}
	w.finish()
	c.whole()
	w.check()
}

// begunBefore is how long a handover may take that had begun when its target went away: three election timeouts, since
// the machine may be busy.
const begunBefore = 3 * time.Second

// loggedAt returns when a log line was written.
func loggedAt(t *testing.T, line string) time.Time {
	t.Helper()
	text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("log line %q has no time: %v", line, err)
	}
	return at
}

// awayTime is long enough for the others to notice that a server is away, and to redistribute its shards.
const awayTime = 12 * time.Second

// scattered loads queues in several shards until clients get answers.
func (c *nodes) scattered(queues ...string) *workload {
	cfg := c.load()
	cfg.queues, cfg.scattered = queues, true
	w := cfg.start(c.t)
	w.flow(&w.acked)
	return w
}

// eventuallyLeads waits until a server leads at least that many shards, or none at all.
func (c *nodes) eventuallyLeads(n *member, least int) {
	c.t.Helper()
	client := c.operator()
	eventually(c.t, n.name+" leads what it should", startLimit, func() bool {
		info, err := admin.New(client).Cluster().Status(c.t.Context())
		if err != nil {
			return false
		}
		at := slices.IndexFunc(info.Nodes, func(i admin.Node) bool { return i.Name == n.name })
		if at < 0 {
			return false
		}
		leads := len(info.Nodes[at].Leads)
		return least == 0 && leads == 0 || least > 0 && leads >= least
	})
}

// marks returns the current ends of all servers' logs, for said.
func (c *nodes) marks() (at []int64) {
	for _, n := range c.all {
		at = append(at, n.mark())
	}
	return at
}

// logLines returns the log lines since marks that contain all of some texts.
func (c *nodes) logLines(marks []int64, texts ...string) (lines []string) {
	for i, n := range c.all {
		for line := range strings.Lines(n.logSince(marks[i])) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}
