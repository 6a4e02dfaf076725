package members

import (
	"maps"
	"slices"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// ReplicaReach is how far a replica has come: an entry that is committed, and that its log or state has.
type ReplicaReach struct {
	Shard   uint32
	Replica uint64
	Index   uint64
}

// node returns the number of the replica's node.
func (r ReplicaReach) node() uint32 { return uint32(r.Replica) }

// Told is what a node tells another.
type Told struct {
	Run     string // identifies the process; "": it only asks, before it runs
	Reached []ReplicaReach
}

// Known is the answer: what was known before.
type Known struct {
	Reached []ReplicaReach
	Twice   bool // another process has run as that node since this one last told
}

// runs are the last two processes that ran as a node.
type runs struct{ latest, before string }

// Witness remembers how far the replicas of other nodes have come.
type Witness struct {
	dir *datadir.Dir

	mu      sync.Mutex
	runs    map[uint32]runs
	of      string // the cluster
	reached map[ReplicaReach]uint64
	saved   bool
}

// OpenWitness returns a Witness with what was remembered before the restart.
func OpenWitness(dir *datadir.Dir) *Witness {
	w := &Witness{dir: dir, runs: map[uint32]runs{}, reached: map[ReplicaReach]uint64{}, saved: true}
	of, text := dir.ReadNote(datadir.WitnessFile)
	var all []ReplicaReach
	if cbor.Unmarshal(text, &all) == nil {
		w.of = of
		w.add(all)
		w.saved = true
	}
	return w
}

// add remembers how far replicas have come.
func (w *Witness) add(all []ReplicaReach) {
	for _, r := range all {
		key := ReplicaReach{Shard: r.Shard, Replica: r.Replica}
		if r.Index > w.reached[key] {
			w.reached[key], w.saved = r.Index, false
		}
	}
}

// ranTwice records that a process runs as a node, and reports whether another has done so since. A node that restarted has another
// process too, but the former one tells nothing after that.
func (w *Witness) ranTwice(node uint32, run string) bool {
	was := w.runs[node]
	if run != "" && run != was.latest && run != was.before {
		w.runs[node] = runs{run, was.latest}
	}
	return run != "" && run == was.before
}

// Note answers a node of a cluster.
func (w *Witness) Note(of string, node uint32, t Told) (known Known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known.Twice = w.ranTwice(node, t.Run)
	if w.of != of {
		w.of = of
		clear(w.reached)
	}
	all := slices.DeleteFunc(t.Reached, func(r ReplicaReach) bool { return r.node() != node })
	for _, r := range all {
		r.Index = w.reached[ReplicaReach{Shard: r.Shard, Replica: r.Replica}]
		known.Reached = append(known.Reached, r)
	}
	w.add(all)
	return known
}

// Save saves what is remembered of the members of a cluster.
func (w *Witness) Save(m *cluster.Map) error {
	w.mu.Lock()
	removed := func(node uint32) bool {
		n, ok := m.Node(node)
		return ok && n.State == cluster.Removed
	}
	maps.DeleteFunc(w.reached, func(r ReplicaReach, _ uint64) bool { return removed(r.node()) })
	maps.DeleteFunc(w.runs, func(node uint32, _ runs) bool { return removed(node) })
	all := make([]ReplicaReach, 0, len(w.reached))
	for r, index := range w.reached {
		r.Index = index
		all = append(all, r)
	}
	of, saved := w.of, w.saved
	w.saved = true // what changes from here on must be saved again
	w.mu.Unlock()
	if saved {
		return nil
	}
	text, err := cbor.Marshal(all)
	if err == nil {
		err = w.dir.SaveNote(datadir.WitnessFile, of, text)
	}
	if err != nil {
		w.mu.Lock()
		w.saved = false
		w.mu.Unlock()
	}
	return err
}
