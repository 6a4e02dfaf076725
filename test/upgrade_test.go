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

// The feature levels of the two programs, and the error of the older one where the newer level is required.
const (
	previousLevel = 2
	newestLevel   = 3
	tooOld        = "works at feature levels 1 to 2, but the cluster is at 3: use another version of the program"
)

// TestClusterUpgrade upgrades three servers from the previous release, in turn and under load, and downgrades one of them again. The level stays
// until it is raised, and what needs a newer level is refused; afterwards it works, and no server of the previous release does. SDK clients that
// know all addresses see no error.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, previousBinary)
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

	c.runs(w, first, binary)
	c.runs(w, second, binary)
	staysAt(t, operator, previousLevel) // for the last server
	mustNotLimit(t, operator, cfg.queues[0])
	c.runs(w, second, previousBinary)
	c.runs(w, second, binary)
	c.runs(w, last, binary)
	mustNotLimit(t, operator, cfg.queues[0])

	raise(t, operator)
	for _, name := range cfg.queues {
		if err := limit(t, operator, name); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Queues().Spread(t.Context(), name, admin.SpreadOptions{Shards: []int{dataShard, dataShard + 1}}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	c.settled(cfg.queues)
	w.flow(&w.acked)
	first.end()
	first.leaves()
	c.newcomer().isTooOld()
	c.starts(w, first, binary)

	w.finish()
	stream.check()
	w.check()
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

// isTooOld checks that the previous release does not serve, and says why.
func (s *server) isTooOld() {
	s.t.Helper()
	s.program = previousBinary
	if said := s.refuses(); !strings.Contains(said, tooOld) {
		s.t.Errorf("a server of the previous release printed %q, want %q", notable(said), tooOld)
	}
}

// leaves is isTooOld for a member that may not know yet that the level was raised: it may start to serve, and exits when it learns that.
func (n *member) leaves() {
	n.t.Helper()
	n.program = previousBinary
	from := n.mark()
	n.launch()
	if status := n.exit(); status <= 0 {
		n.t.Errorf("%s exited with status %d, want one above 0", n.name, status)
	}
	if said := n.logSince(from); !strings.Contains(said, tooOld) {
		n.t.Errorf("%s of the previous release printed %q, want %q", n.name, notable(said), tooOld)
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
		return level == newestLevel
	})
}

func mustNotLimit(t *testing.T, operator admin.Client, queue string) {
	t.Helper()
	const want = "need feature level 3, and the cluster is at 2: see `pawl cluster raise-level`"
	if err := limit(t, operator, queue); !errors.Is(err, pawltype.ErrWrongState) || !strings.Contains(err.Error(), want) {
		t.Errorf("setting a limit at level 2: %v, want %q", err, want)
	}
}

func mustNotBeUnique(t *testing.T, client *pawl.Client) {
	t.Helper()
	const want = "unique: needs feature level 3, and the cluster is at 2: see `pawl cluster raise-level`"
	if err := unique(t, client); !errors.Is(err, pawltype.ErrWrongState) || !strings.Contains(err.Error(), want) {
		t.Errorf("enqueuing a unique task at level 2: %v, want %q", err, want)
	}
}

// unique enqueues a task with a unique key, which no worker runs.
func unique(t *testing.T, client *pawl.Client) error {
	_, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "unique", Payload: []byte("1")}, pawl.Queue("unique"), pawl.Unique(pawltype.UniqueOpts{Key: "k"}))
	return err
}

func mustNotSchedule(t *testing.T, operator admin.Client) {
	t.Helper()
	const want = "need feature level 3, and the cluster is at 2: see `pawl cluster raise-level`"
	if err := schedule(t, operator); !errors.Is(err, pawltype.ErrWrongState) || !strings.Contains(err.Error(), want) {
		t.Errorf("creating a schedule at level 2: %v, want %q", err, want)
	}
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

// TestUpgrade upgrades a single server, and tries to downgrade it: until the level is raised that works, afterwards it is refused, whether or not
// the server's copy of the map is lost.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--shards", "2")
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client)
	s.program = previousBinary
	s.start()
	w := load{addrs: []string{s.addr}, queues: []string{"a", "b"}, scattered: true}.start(t)
	w.flow(&w.acked)
	staysAt(t, operator, previousLevel)
	for _, program := range []func() (string, error){binary, previousBinary, binary} {
		s.kill()
		s.program = program
		s.start()
		w.flow(&w.acked)
		mustNotLimit(t, operator, "a")
		mustNotBeUnique(t, client)
		mustNotSchedule(t, operator)
	}
	raise(t, operator)
	if err := limit(t, operator, "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tasks can be unique", startLimit, func() bool { return unique(t, client) == nil })
	if err := schedule(t, operator); err != nil {
		t.Error(err)
	}
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
	s.program = binary
	s.start()
	w.flow(&w.acked)
	w.finish()
	w.check()
}
