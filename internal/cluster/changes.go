package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
)

// Report is what a node reports about itself whenever it asks for changes.
type Report struct {
	Node        uint32
	APIAddress  string
	Version     string
	DiskFree    int64 // bytes
	DiskTotal   int64
	ClockOffset time.Duration // its wall clock minus that of most others, or of the only other node
	Barred      bool          // it should get no leadership, because it is overloaded or its disk is slow
	SlowDisk    bool          `json:",omitempty"`
	DiskShort   bool          `json:",omitempty"` // less than MinFree is free: it takes no new tasks
	MinFree     int64         `json:",omitempty"` // bytes
	NoRoom      []NoRoom      `json:",omitempty"` // states that it was sent and refused
	Up          time.Duration `json:",omitempty"` // since its process started; 0: unknown
	Shards      []ShardReport
	Uses        []auth.Use `json:",omitempty"` // of tokens, since the node's last report

	CertsLeft map[string]time.Duration `json:",omitempty"` // how long its certificates last, by what they are for
}

// NoRoom is the state of a shard for which a node's disk has no room.
type NoRoom struct {
	Shard uint32
	Bytes int64
	At    time.Time // when it was last refused
}

// ShardReport is the state of a node's replica of a shard.
type ShardReport struct {
	Shard   uint32
	Applied uint64
	Leader  uint64 // the replica that leads it, as far as this one knows; 0: none
	Term    uint64
}

// Delta is what a node's copy lacks.
type Delta struct {
	Version uint64 // up to which the copy is complete afterwards
	Map     *Map   // nil: nodes, shards and settings are unchanged
	All     bool   // Queues has all that exist
	Queues  []queues.Queue
	Dropped []system.Name
	Access  *auth.Access    // nil: tokens and namespaces are unchanged
	Quiet   []workers.Quiet // with All: all that exist
	Resumed []workers.Name
	// Waited is how long the leader waited for changes before it read them: the copy is as recent as the request plus this time.
	Waited time.Duration `json:",omitempty"`
}

const (
	// maxWait bounds how long a poll of another node may wait for changes: nodes that wait must not seem silent.
	maxWait = aliveFor / 2
)

// Changes returns what a node's copy, complete up to after (0: it is empty), lacks, waiting up to wait for changes. It stores the node's
// report, and counts as a sign of life. A node that was removed gets wrong_state.
func (c *Copies) Changes(ctx context.Context, after uint64, report Report, wait time.Duration) (Delta, error) {
	c.placement.liveness.noteAlive(report.Node)
	c.noteCopyVersion(report.Node, after)
	if err := c.shard.Learn(ctx); err != nil {
		return Delta{}, err
	}
	c.placement.liveness.noteReport(report) // before waiting: a new leader moves nothing to a node that has not reported
	if !c.placement.liveness.isOwn(report.Node) {
		wait = min(wait, maxWait)
	}
	began := time.Now()
	c.shard.Await(ctx, after, wait)
	waited := time.Since(began)
	what := c.shard.Changes(after)
	// Even without changes there is a view: the answer confirms that this node leads, and that the copy lacks nothing.
	d, err := system.View(ctx, c.shard, func(r store.Reader) (Delta, error) { return readDelta(r, what, report.Node) })
	if err != nil {
		return Delta{}, err
	}
	if !what.Known {
		return Delta{}, system.LeaderChanged()
	}
	c.noteUses(report.Uses)
	c.placement.liveness.noteAlive(report.Node)
	d.Waited = waited
	return d, nil
}

// readDelta builds the answer. What it finds may be newer than its version says; it is then sent again.
func readDelta(r store.Reader, changes system.Changes, node uint32) (d Delta, err error) {
	if err := mustBelong(r, node); err != nil {
		return d, err
	}
	d = Delta{Version: changes.Version, All: changes.All}
	if changes.Map {
		if d.Map, err = readMap(r); err != nil {
			return d, err
		}
	}
	if changes.Access {
		if d.Access, err = readAccess(r); err != nil {
			return d, err
		}
	}
	if changes.All {
		err = queues.Scan(r, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q queues.Queue, _ bool) bool {
			d.Queues = append(d.Queues, q)
			return true
		})
		if err == nil {
			d.Quiet, err = system.ScanRows[workers.Quiet](r, system.QuietTable)
		}
		return d, err
	}
	if err := readWorkers(r, changes, &d); err != nil {
		return d, err
	}
	for name := range changes.Queues {
		q, _, ok, err := queues.Get(r, name.Namespace, name.Name)
		switch {
		case err != nil:
			return d, err
		case ok:
			d.Queues = append(d.Queues, q)
		default:
			d.Dropped = append(d.Dropped, name)
		}
	}
	return d, nil
}

func readWorkers(r store.Reader, changes system.Changes, d *Delta) error {
	for name := range changes.Workers {
		q, quiet, err := workers.Get(r, workers.Named(name))
		switch {
		case err != nil:
			return err
		case quiet:
			d.Quiet = append(d.Quiet, q)
		default:
			d.Resumed = append(d.Resumed, workers.Named(name))
		}
	}
	return nil
}

// mustBelong returns an error for a node that does not belong to the cluster.
func mustBelong(r store.Reader, number uint32) error {
	n, ok, err := system.GetRow[Node](r, nodeKey(number))
	if err != nil {
		return err
	}
	return checkMember(n, ok, number)
}

func checkMember(n Node, ok bool, number uint32) error {
	switch {
	case !ok:
		return system.WrongState("node %d is not known to this cluster", number)
	case n.State == Removed:
		return removedError(n)
	}
	return nil
}

func removedError(n Node) error {
	if n.ReplacedBy != 0 {
		return system.WrongState("node %q (number %d) was removed: it joined again as number %d", n.Name, n.Number, n.ReplacedBy)
	}
	return system.WrongState("node %q (number %d) was removed: to come back, it must join again with an empty directory", n.Name, n.Number)
}

// readAccess reads everything that is needed to authenticate and authorize callers.
func readAccess(r store.Reader) (*auth.Access, error) {
	a := &auth.Access{Required: system.GetNumber(r, system.RequiredKey) != 0, Namespaces: []string{auth.DefaultNamespace},
		Began: map[string]store.Time{}, Since: map[string]uint64{}, Quotas: map[string]task.Quotas{}}
	made, err := system.ScanRows[namespaces.Namespace](r, system.NamespaceTable)
	if err != nil {
		return nil, err
	}
	for _, n := range made {
		if n.RemovedBy != nil {
			continue
		}
		if n.Name != auth.DefaultNamespace {
			a.Namespaces = append(a.Namespaces, n.Name)
			a.Began[n.Name], a.Since[n.Name] = n.CreatedAt, n.Since
		}
		if n.Quotas != (task.Quotas{}) {
			a.Quotas[n.Name] = n.Quotas
		}
	}
	if a.Tokens, err = system.ScanRows[auth.Token](r, system.TokenTable); err != nil {
		return nil, err
	}
	a.Ended, err = system.ScanRows[auth.EndedSessions](r, system.EndedTable)
	return a, err
}
