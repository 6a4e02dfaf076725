package node

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// A member says that it is one, also while it waits to be readmitted: otherwise new nodes would found a second cluster with it.
func TestIntroductions(t *testing.T) {
	type row struct{ member, damaged, want bool }
	for _, c := range []row{{false, false, false}, {true, false, true}, {false, true, true}, {true, true, true}} {
		id := datadir.NewIdentity("n1")
		if c.member {
			id.Cluster, id.Node = datadir.NewNonce(), 1
		}
		b := &bootstrap{dir: &datadir.Dir{Identity: datadir.NewIdentityStore(vfs.NewMem(), "", id)}}
		b.damaged.Store(c.damaged)
		b.sees.Store([]string{"n1", "n2"})
		request, err := cbor.Marshal(introduction{Name: "n2"})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := b.hello(request)
		var got introduction
		if err == nil {
			err = cbor.Unmarshal(answer, &got)
		}
		if err != nil || got.Member != c.want || got.Name != "n1" || got.Nonce != id.Nonce || len(got.Sees) != 2 {
			t.Errorf("%+v: the node introduces itself as %+v, %v", c, got, err)
		}
	}
}

// The map in the replica of the system shard counts if it is newer than the saved one.
func TestRecalledMap(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	s := start(t, Config{Dir: dir})
	enqueue(t, s.client(), "mail")
	if err := s.replicas.get(systemShard).state.Flush(); err != nil {
		t.Fatal(err)
	}
	s.end()
	id, err := datadir.OpenIdentity(vfs.Default, dir, DefaultName, log)
	if err != nil {
		t.Fatal(err)
	}
	recalled := func(known *cluster.Map) *cluster.Map {
		b := &bootstrap{dir: &datadir.Dir{FS: vfs.Default, Path: dir, Identity: id, Logger: log}}
		b.known.Store(known)
		b.recallMap()
		return b.known.Load()
	}
	stored := recalled(nil)
	if stored == nil || stored.Version == 0 || len(stored.Nodes) != 1 {
		t.Fatalf("without a saved map, the map is %+v", stored)
	}
	for _, c := range []struct {
		saved uint64
		want  bool
	}{{stored.Version - 1, true}, {stored.Version, false}, {stored.Version + 1, false}} {
		saved := &cluster.Map{Version: c.saved}
		if got := recalled(saved) != saved; got != c.want {
			t.Errorf("the saved map has version %d, the replica's %d: it is recalled: %t, want %t", c.saved, stored.Version, got, c.want)
		}
	}
}

// A report says all that is known of a node that is well.
func TestReports(t *testing.T) {
	s := start(t, Config{Dir: t.TempDir(), APIAddress: "a:1", Version: "v"})
	enqueue(t, s.client(), "mail")
	r := s.health.report()
	if r.Node != 1 || r.APIAddress != "a:1" || r.Version != "v" || r.MinFree != s.cfg.MinFree || r.MinFree == 0 || r.DiskFree <= 0 ||
		r.DiskTotal < r.DiskFree || r.Up <= 0 || r.Up > time.Hour || len(r.Shards) != 2 {
		t.Errorf("the node reports %+v", r)
	}
	for _, shard := range r.Shards {
		if shard.Leader == 0 || shard.Term == 0 || shard.Applied == 0 {
			t.Errorf("the node, which is alone, reports %+v", shard)
		}
	}
}

// A node that is refused asks every second, and logs that once in ten.
func TestRefusedJoinsAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = &logLines{}
		w.grow()
		w.crash("n3")
		began := time.Now()
		w.start("n3", t.TempDir(), "n1") // the node that had the name counts as running until it has been silent for long enough
		took := time.Since(began)
		if told := w.lines.about("node=n3", "not admitted yet"); took < 5*time.Second || len(told) < 1 || len(told) > 1+int(took/formLog) {
			t.Errorf("it was refused for %s, and logged that %d times: %q", took, len(told), told)
		}
	})
}
