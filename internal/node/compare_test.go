package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/metrics"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/ondisk"
)

// alter changes one byte of a row in the state of a node's replica of shard 1, behind the back of everybody: the last
// byte of a text. The node must not run.
func alter(t *testing.T, node, dir, text string) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(dir, datadir.StateDir(1, replicaIn(t, node, dir, 1))),
		&pebble.Options{FormatMajorVersion: ondisk.Format, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	it, _ := db.NewIter(nil)
	var key, value []byte
	for ok := it.First(); ok && key == nil; ok = it.Next() {
		if at := bytes.Index(it.Value(), []byte(text)); at >= 0 {
			key, value = bytes.Clone(it.Key()), bytes.Clone(it.Value())
			value[at+len(text)-1]++
		}
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	if key == nil {
		t.Errorf("no row in %s has %q", dir, text)
	} else if err := errors.Join(db.Set(key, value, pebble.Sync), db.Flush()); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// quiet is a log that keeps nothing.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// replicaIn returns the replica of a shard in a directory.
func replicaIn(t *testing.T, node, dir string, id uint32) uint64 {
	t.Helper()
	store, err := datadir.OpenIdentity(vfs.Default, dir, node, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return store.Read().Replicas[id].Replica
}

// One byte in one of three replicas is changed. Within minutes the cluster says which replica differs, in which shard
// and since which entry: among the problems of its status, in its metrics, and once in the log. Nothing is repaired by
// itself. Once a new replica has taken its place, all is well.
func TestDifferingReplicaIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = new(logLines)
		dirs := w.grow()
		for _, text := range []string{"first", "needle-in-the-haystack", "last"} {
			if _, err := w.anyone().Enqueue(t.Context(), pawl.RawTask{Type: "job", Payload: []byte(strconv.Quote(text))},
				pawl.Queue("mail"), pawl.In(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if p := w.problems(); len(p) != 0 || len(w.lines.about("differs")) != 0 {
			t.Errorf("all replicas are equal: problems %q, log %q", p, w.lines.about("differs"))
		}
		odd := "n3"
		if w.leaderOf(1) == odd {
			odd = "n2"
		}
		if err := w.nodes[odd].replicas.get(1).state.Flush(); err != nil { // otherwise it is rebuilt from the log
			t.Fatal(err)
		}
		w.crash(odd)
		alter(t, odd, dirs[odd], "needle-in-the-haystack")
		w.start(odd, dirs[odd])
		want := fmt.Sprintf("shard 1: the state of the replica on node %s differs from those of the others, at log entry ", odd)
		w.within(5*time.Minute, time.Second, "the difference is reported", func() error {
			if p := w.problems(); len(p) != 1 || !strings.Contains(p[0], want) {
				return fmt.Errorf("problems %q", p)
			}
			return nil
		})
		if v, err := newClusterAdmin(w.nodes[w.leaderOf(1)].Node).Verify(t.Context(), 1); err != nil || v.Equal {
			t.Errorf("the comparison by hand: %+v, %v, want that the replicas are not equal", v, err)
		}
		pass(7 * time.Minute) // two more comparisons
		if p := w.problems(); len(p) != 1 || !strings.Contains(p[0], want) {
			t.Errorf("seven minutes later: problems %q, want the same", p)
		}
		if told := w.lines.about(`msg="a replica differs from the others"`, "shard=1 ", "replica=1.", "node="+odd+" ", "index=",
			"most_others_agree=true"); len(told) != 1 {
			t.Errorf("the log says %q", w.lines.about("differs"))
		}
		for _, m := range w.nodes[w.leaderOf(1)].shardMetrics(t) {
			for node, differs := range m.Differs {
				if differs != (m.ID == 1 && node == odd) {
					t.Errorf("in the metrics, the replica of shard %d on node %s differs: %v", m.ID, node, differs)
				}
			}
		}

		w.crash(odd)
		pass(4 * time.Minute) // another
		if p := w.problems(); !slices.ContainsFunc(p, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("the replica can't be compared: problems %q, want that it differed", p)
		}
		w.start(odd, t.TempDir(), "n1", "n2", "n3")
		w.until("no problems", w.sound)
		w.until("three voters each", w.replicated(3))
		pass(time.Minute)
		if err := w.sound(); err != nil {
			t.Errorf("the replica was replaced: problems %v", err)
		}
	})
}

// A shard that hangs costs the comparisons of others a second when it has its turn, and has no other turn before the
// comparison has been given up.
func TestComparisonsBesideAHangingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faultyNode{server: start(t, Config{InMemory: true, DataShards: 2})}
		heal := s.hang(1)
		rounds, lines := 0, new(logLines)
		c := &members.Comparer{Alone: func() (<-chan struct{}, bool) { return nil, false },
			Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})), Replicas: func() []members.Replica {
				rounds++
				return s.replicas.compared()
			}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c.Run(ctx)
		heal()
		if told := lines.about("were not compared", "shard=1 "); rounds < 22 || len(told) < 3 || len(told) > 5 {
			t.Errorf("in two minutes there were %d rounds of comparisons, want one every 5 s, and the log says %q, want one line "+
				"about every 26 s",
				rounds, told)
		}
	})
}

// shardMetrics returns the metrics of a node's replicas.
func (s *server) shardMetrics(t *testing.T) []metrics.Shard {
	c := &collector{replicas: s.replicas, names: nodeNames{s.copy}, broker: s.broker}
	return c.shardMetrics(t.Context())
}
