package test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// The feature levels of this release and the next one, and the error of this release where the next level is required.
const (
	thisLevel = 1
	nextLevel = 2
	tooOld    = "works at feature levels 1 to 1, but the cluster is at 2: use another version of the program"
)

// TestClusterUpgrade upgrades three servers to the next release, in turn and under load, and downgrades one of them
// again. The level stays until it is raised; afterwards no server of this release works. SDK clients that know all
// addresses see no error.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	withNext(t)
	c := newClusterOf(t, binary)
	operator := admin.New(c.operator(pawl.DialOptions{RetryFor: startLimit}))
	if err := operator.Cluster().AddShards(t.Context(), dataShard+1); err != nil {
		t.Fatal(err)
	}
	c.whole()
	cfg := c.faultless()
	cfg.scattered = true
	w := cfg.start(t)
	w.flow(&w.acked)
	stream := startStream(t, cfg.addrs[0])
	first, second, last := c.all[0], c.all[1], c.all[2]

	c.runs(w, first, nextBinary)
	c.runs(w, second, nextBinary)
	staysAt(t, operator, thisLevel) // for the last server
	c.runs(w, second, binary)
	c.runs(w, second, nextBinary)
	c.runs(w, last, nextBinary)

	raise(t, operator)
	for _, name := range cfg.queues {
		if err := limit(t, operator, name); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Queues().Spread(t.Context(), name, admin.SpreadOptions{Shards: []int{dataShard, dataShard + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	c.settled(cfg.queues)
	w.flow(&w.acked)
	first.end()
	first.leaves()
	c.newcomer().isTooOld()
	c.starts(w, first, nextBinary)

	w.finish()
	stream.check()
	w.check()
}

// withNext builds nextBinary before anything runs that would load the machine meanwhile.
func withNext(t *testing.T) {
	t.Helper()
	skipIfShort(t)
	if _, err := nextBinary(); err != nil {
		t.Fatal(err)
	}
}

// runs stops a server, and restarts it with another program.
func (c *nodes) runs(w *workload, n *member, program func() (string, error)) {
	c.t.Helper()
	n.end()
	c.starts(w, n, program)
}

func (c *nodes) starts(w *workload, n *member, program func() (string, error)) {
	c.t.Helper()
	n.program = program
	n.start()
	n.ready()
	c.whole()
	w.flow(&w.acked)
}

// newcomer is a server that would join.
func (c *nodes) newcomer() *server {
	c.t.Helper()
	return newServer(c.t, "--node", "n4", "--peer-listen", freeAddr(c.t), "--join", c.join)
}

// isTooOld checks that this release does not serve, and says why.
func (s *server) isTooOld() {
	s.t.Helper()
	s.program = binary
	if said := s.refuses(); !strings.Contains(said, tooOld) {
		s.t.Errorf("a server of this release printed %q, want %q", notable(said), tooOld)
	}
}

// leaves is isTooOld for a member that may not know yet that the level was raised: it may start to serve, and exits when it learns that.
func (n *member) leaves() {
	n.t.Helper()
	n.program = binary
	from := n.mark()
	n.launch()
	if status := n.exit(); status <= 0 {
		n.t.Errorf("%s exited with status %d, want one above 0", n.name, status)
	}
	if said := n.logSince(from); !strings.Contains(said, tooOld) {
		n.t.Errorf("%s of this release printed %q, want %q", n.name, notable(said), tooOld)
	}
}

// staysAt checks that the level can't be raised beyond what all nodes support.
func staysAt(t *testing.T, operator admin.Client, want int) {
	t.Helper()
	if level, err := operator.Cluster().RaiseFeatureLevel(t.Context()); err != nil || level != want {
		t.Fatalf("RaiseFeatureLevel = %d, %v, want %d", level, err, want)
	}
}

// raise raises the level once all nodes have reported that they support the newest.
func raise(t *testing.T, operator admin.Client) {
	t.Helper()
	eventually(t, "the level is raised", startLimit, func() bool {
		level, err := operator.Cluster().RaiseFeatureLevel(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return level == nextLevel
	})
}

// unique enqueues a task with a unique key, which no worker runs.
func unique(t *testing.T, client *pawl.Client) error {
	_, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "unique", Payload: []byte("1")}, pawl.Queue("unique"),
		pawl.Unique(pawltype.UniqueOpts{Key: "k"}))
	return err
}

// schedule creates a schedule whose tasks no worker runs.
func schedule(t *testing.T, operator admin.Client) error {
	_, err := operator.Schedules().Put(t.Context(), admin.ScheduleSpec{Name: "beat", Every: time.Second, Overlap: admin.OverlapSkip,
		Task: pawl.RawTask{Type: "beat"}, Options: []pawl.Option{pawl.Queue("beat")}})
	return err
}

// limit sets limits for a queue that its load may reach.
func limit(t *testing.T, operator admin.Client, queue string) error {
	t.Helper()
	q, err := operator.Queues().Get(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	q.Settings.MaxRunning, q.Settings.PerKey.MaxRunning = 20, 2
	_, err = operator.Queues().Put(t.Context(), queue, q.Settings)
	return err
}

// TestUpgrade upgrades a single server, and tries to downgrade it: until the level is raised that works, afterwards it
// is refused, whether or not the server's copy of the map is lost.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	withNext(t)
	s := newServer(t, "--shards", "2")
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client)
	s.start()
	w := load{addrs: []string{s.addr}, queues: []string{"a", "b"}, pace: serverPace, scattered: true}.start(t)
	w.flow(&w.acked)
	if err := errors.Join(limit(t, operator, "a"), unique(t, client), schedule(t, operator)); err != nil {
		t.Fatal(err)
	}
	staysAt(t, operator, thisLevel)
	for _, program := range []func() (string, error){nextBinary, binary, nextBinary} {
		s.kill()
		s.program = program
		s.start()
		w.flow(&w.acked)
	}
	raise(t, operator)
	eventually(t, "a tick fires", startLimit, func() bool {
		s, err := operator.Schedules().Get(t.Context(), "beat")
		return err == nil && s.Last != nil && s.Last.TaskID != ""
	})
	s.kill()
	s.isTooOld()
	if err := os.Remove(filepath.Join(s.data, "cluster.map")); err != nil {
		t.Fatal(err)
	}
	s.isTooOld()
	s.program = nextBinary
	s.start()
	w.flow(&w.acked)
	w.finish()
	w.check()
}
