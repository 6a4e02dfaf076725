package node

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/pawltype"
)

// logLines collects a log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer.
func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(b)))
	return len(b), nil
}

// about returns the lines that contain all of the given texts.
func (l *logLines) about(texts ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			out = append(out, line)
		}
	}
	return out
}

// setFull makes the disks of exactly these nodes full.
func (w *network) setFull(names ...string) {
	w.full.Clear()
	for _, name := range names {
		w.full.Store(name, true)
	}
}

// leaders returns the nodes that lead the shards 0 to 2.
func (w *network) leaders() (names []string) {
	w.t.Helper()
	for id := range uint32(3) {
		names = append(names, w.leaderOf(id))
	}
	return names
}

// problems returns the problems reported to an operator.
func (w *network) problems() []string {
	w.t.Helper()
	info, err := admin.New(w.anyone()).Cluster().Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Problems
}

// sound returns an error if any problems are reported.
func (w *network) sound() error {
	if p := w.problems(); len(p) != 0 {
		return fmt.Errorf("%q", p)
	}
	return nil
}

// enqueueEverywhere enqueues tasks at a node until every shard has some.
func (w *network) enqueueEverywhere(at string) (err error) {
	w.t.Helper()
	c := w.nodes[at].client()
	for i := range 20 {
		_, failed := c.Enqueue(w.t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue(fmt.Sprint("q", i)))
		err = errors.Join(err, failed)
	}
	return err
}

// A node whose disk is below --min-free hands its shards to nodes with space within 10 s, so that tasks are accepted again through
// any node; it is reported as a problem, and the log says why each shard has another leader. When no node has space, leaders stay
// and enqueues are refused.
func TestFullLeaderHandsOver(t *testing.T) {
	bySameGoroutines(t, "TestTimePassesAfterHandovers")
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = new(logLines)
		w.form()
		w.addShard()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.enqueueEverywhere("n1"))
		w.until("no problems", w.sound)
		full := w.leaderOf(1)
		led := 0
		for _, name := range w.leaders() {
			if name == full {
				led++
			}
		}
		w.setFull(full)
		w.within(10*time.Second, 100*time.Millisecond, "a full node leads nothing", func() error {
			if names := w.leaders(); slices.Contains(names, full) {
				return fmt.Errorf("%s is full, and leaders are %v", full, names)
			}
			return nil
		})
		for name := range w.nodes {
			if err := w.enqueueEverywhere(name); err != nil {
				t.Errorf("at %s: %v", name, err)
			}
		}
		pass(time.Second) // until the shards are checked again
		want := fmt.Sprintf("the disk of node %s has 0B free, ", full)
		if p := w.problems(); len(p) != 1 || !strings.Contains(p[0], want) ||
			!strings.Contains(p[0], "less than 1B (--min-free): it leads no shard") {
			t.Errorf("one node is full: problems %q", p)
		}
		for name := range w.nodes {
			if code, why := w.get(name, "/readyz", "status"); (code == 200) != (name != full) || name == full && why != w.problems()[0] {
				t.Errorf("node %s is full, and the readiness of %s is %d %q, want the problem of the status", full, name, code, why)
			}
		}
		why := fmt.Sprintf(`why="handed over: the disk of node %s has no room for new tasks"`, full)
		if told := w.lines.about("the shard has a new leader", "from="+full+" ", why); len(told) != led {
			t.Errorf("the log tells %d times that node %s handed over, want %d: %q", len(told), full, led, told)
		}

		all := slices.Sorted(maps.Keys(w.nodes))
		w.setFull(all...)
		pass(2 * time.Second)
		before := w.leaders()
		pass(time.Minute)
		if now := w.leaders(); !slices.Equal(now, before) {
			t.Errorf("nobody has room, and leaders went from %v to %v", before, now)
		}
		for _, name := range before {
			if code, why := w.get(name, "/readyz", "status"); code != 200 {
				t.Errorf("nobody has room, and the readiness of %s, which leads, is %d %q", name, code, why)
			}
		}
		if err := w.enqueueEverywhere("n1"); !errors.Is(err, pawltype.ErrUnavailable) {
			t.Errorf("nobody has room: %v", err)
		}
		if p := strings.Join(w.problems(), " | "); !strings.Contains(p, "new tasks are refused in the shards that it leads (shard") ||
			strings.Count(p, "the disk of node") != 3 {
			t.Errorf("nobody has room: problems %q", p)
		}

		w.setFull()
		pass(20 * time.Second)
		if p := w.problems(); len(p) != 3 || !strings.Contains(p[0], "and had less than") {
			t.Errorf("there has been room for 20 s: problems %q", p)
		}
		w.until("no problems", w.sound)
		w.noIDs()
	})
}

// terms returns the terms of the shards 0 to 2. Each change of a leader begins one.
func (w *network) terms() (terms [3]uint64) {
	for _, s := range w.nodes {
		for id := range terms {
			if rep := s.replicas.get(uint32(id)); rep != nil { // #nosec G115 -- below 3
				_, term := rep.shard.Leader()
				terms[id] = max(terms[id], term)
			}
		}
	}
	return terms
}

// As the disks of one, two and all three nodes fill, beginning with the one that leads the system shard, each shard's leader changes once
// at most: a leader of the system shard that has just been elected knows nothing of the other nodes' disks.
func TestLeadersOfFullDisksMoveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		w.addShard()
		w.until("no problems", w.sound)
		pass(time.Minute) // leaders are balanced
		full := []string{}
		for range 3 {
			leaders, before := w.leaders(), w.terms()
			system := leaders[0]
			full = append(full, system)
			w.setFull(full...)
			want := before
			if len(full) < 3 {
				for id, name := range leaders {
					if name == system {
						want[id]++
					}
				}
			}
			w.within(10*time.Second, 100*time.Millisecond, "a full node leads nothing", func() error {
				if names := w.leaders(); len(full) < 3 && slices.Contains(names, system) {
					return fmt.Errorf("%s is full, and leaders are %v", system, names)
				}
				return nil
			})
			pass(20 * time.Second)
			if got := w.terms(); got != want {
				t.Errorf("%v are full: the terms of the shards went from %v to %v, want %v", full, before, got, want)
			}
		}
	})
}

// noIDs checks that no log line has the id of a replica other than the first of its node.
func (w *network) noIDs() {
	w.t.Helper()
	if len(w.lines.about("msg=")) == 0 {
		w.t.Error("nothing was logged")
	}
	id := regexp.MustCompile(`\b[0-9]{10,}\b`)
	for _, line := range w.lines.about("") {
		if id.MatchString(line) {
			w.t.Errorf("the log has an id: %s", line)
		}
	}
}

// Where replicas are created, moved and refused, log lines and errors name them by shard and number, and by node.
func TestReplicasAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = new(logLines)
		w.form()
		pass(10 * time.Second) // leaders are balanced: otherwise the replica that n4 takes depends on when they are
		w.start("n4", t.TempDir(), "n1")
		w.until("three voters each", w.replicated(3))
		move := func(from, to string) {
			t.Helper()
			// Through n1: n4 may not have heard from its cluster yet.
			if err := admin.New(w.nodes["n1"].client()).Cluster().MoveReplica(t.Context(), 1, from, to); err != nil {
				t.Fatal(err)
			}
			w.until("it is there", func() error {
				if w.nodes[to].replicas.get(1) == nil || w.nodes[from].replicas.get(1) != nil {
					return errors.New("not yet")
				}
				return w.replicated(3)()
			})
		}
		free, other := "", ""
		for name, s := range w.nodes {
			if s.replicas.get(1) == nil {
				free = name
			} else if name != w.leaderOf(1) {
				other = name
			}
		}
		move(other, free)
		move(free, other)
		id := w.nodes[other].replicas.get(1).id
		if id>>32 == 0 {
			t.Fatalf("replica %x is the first of its node", id)
		}
		name := fmt.Sprintf("1.%d", id>>32)
		if told := w.lines.about(`msg="start a replica"`, "node="+other+" ", "replica="+name); len(told) != 1 {
			t.Errorf("the log tells %d times that replica %s is started: %q", len(told), name, told)
		}
		s := w.nodes[w.leaderOf(1)].replicas.get(1).shard
		text := fmt.Sprintf("replica %s on node %s", name, other)
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"a voter is removed as if it were a learner": removeLearner(t.Context(), s, id),
			"a change that was planned with other voters": changeVoters(t.Context(), s, cluster.VoterChange{Term: st.Term,
				From: st.Voters[1:]}),
			"a change that was planned in another term": changeVoters(t.Context(), s,
				cluster.VoterChange{Term: st.Term - 1, From: st.Voters}),
			"a voter is to become one": changeVoters(t.Context(), s, cluster.VoterChange{Term: st.Term, From: st.Voters,
				Promote: []uint64{id}}),
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want that it names %s", what, err, text)
			}
		}
		w.noIDs()
	})
}
