package members

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// The process of a node that tells again after another one has is told that, and only that one.
func TestWitnessOfTwoProcesses(t *testing.T) {
	w := OpenWitness(&datadir.Dir{FS: vfs.NewMem()})
	for i, c := range []struct {
		node  uint32
		run   string
		twice bool
	}{{3, "a", false}, {3, "a", false}, {3, "", false}, {3, "b", false}, {4, "a", false}, {3, "", false}, {3, "b", false}, {3, "a", true},
		{3, "b", false}, {3, "a", true}, {3, "c", false}, {3, "b", true}} {
		if known := w.Note("cluster", c.node, Told{Run: c.run}); known.Twice != c.twice {
			t.Errorf("%d: node %d tells as %q: %v", i, c.node, c.run, known.Twice)
		}
	}
}

// What is remembered survives a restart, also if it could not be saved at first, and is forgotten with the cluster.
func TestReachIsSaved(t *testing.T) {
	full := true
	mem := vfs.NewMem()
	dir := &datadir.Dir{Path: "d", FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind == errorfs.OpFileWrite {
			return errors.New("full")
		}
		return nil
	}))}
	if err := mem.MkdirAll("d", 0o700); err != nil {
		t.Fatal(err)
	}
	mine := ReplicaReach{Shard: 1, Replica: 1<<32 | 3, Index: 9}
	w := OpenWitness(dir)
	w.Note("cluster", 3, Told{Reached: []ReplicaReach{mine, {Shard: 1, Replica: 1<<32 | 4, Index: 9}}}) // the second is another node's
	if err := w.Save(&cluster.Map{}); err == nil {
		t.Fatal("Save succeeded on a full disk")
	}
	full = false
	if err := w.Save(&cluster.Map{}); err != nil {
		t.Fatal(err)
	}
	w = OpenWitness(dir)
	for node, index := range map[uint32]uint64{3: 9, 4: 0} {
		asked := ReplicaReach{Shard: 1, Replica: 1<<32 | uint64(node)}
		if known := w.Note("cluster", node, Told{Reached: []ReplicaReach{asked}}); len(known.Reached) != 1 ||
			known.Reached[0].Index != index {
			t.Errorf("node %d: %+v, want entry %d", node, known.Reached, index)
		}
	}
	if known := w.Note("another cluster", 3, Told{Reached: []ReplicaReach{mine}}); known.Reached[0].Index != 0 {
		t.Errorf("it is remembered for another cluster: %+v", known.Reached)
	}
}
