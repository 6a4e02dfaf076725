package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
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
	Up          time.Duration `json:",omitempty"` // since its process started; 0: unknown
	Shards      []ShardReport
	Uses        []auth.Use `json:",omitempty"` // of tokens, since the node's last report
}

// ShardReport is the state of a node's replica of a shard.
type ShardReport struct {
	Shard   uint32
	Applied uint64
	Leads   bool
	Term    uint64
}

// Delta is what a node's copy lacks.
type Delta struct {
	Version uint64 // up to which the copy is complete afterwards
	Map     *Map   // nil: nodes, shards and settings are unchanged
	All     bool   // Queues has all that exist
	Queues  []Queue
	Dropped []QueueName
	Access  *auth.Access  // nil: tokens and namespaces are unchanged
	Quiet   []QuietWorker // with All: all that exist
	Resumed []WorkerName
	// Waited is how long the leader waited for news before it read them: the copy is as recent as the request plus this time.
	Waited time.Duration `json:",omitempty"`
}

const (
	// maxWait bounds how long a poll of another node may wait for news: nodes that wait must not seem silent.
	maxWait = aliveFor / 2
	// changeLogSize is how many changes of queues, and how many of quiet workers, a leader remembers. A copy that lacks more gets all of both.
	changeLogSize = 1000
)

// change is a change made in a round: of a queue, of a worker's quiet state, of tokens or namespaces, or, if none is set, of nodes, shards
// or settings.
type change struct {
	queue  QueueName
	worker WorkerName
	access bool
}

// changeLog remembers the latest changes of queues and quiet workers, and when the rest last changed.
type changeLog struct {
	known    bool   // base is known
	base     uint64 // all changes after this are remembered
	newest   uint64
	mapAt    uint64 // when nodes, shards or settings last changed; 0: not since base
	accessAt uint64 // when tokens and namespaces last changed
	queues   []namedChange[QueueName]
	workers  []namedChange[WorkerName]
}

type namedChange[N any] struct {
	at   uint64
	name N
}

func (r *changeLog) add(at uint64, ch change) {
	r.newest = max(r.newest, at)
	switch {
	case ch.queue != QueueName{}:
		r.queues = addChange(r, r.queues, at, ch.queue)
	case ch.worker != WorkerName{}:
		r.workers = addChange(r, r.workers, at, ch.worker)
	case ch.access:
		r.accessAt = at
	default:
		r.mapAt = at
	}
}

// addChange adds to a list of changes. It halves a full list, so that adding a change need not move all the others.
func addChange[N any](r *changeLog, list []namedChange[N], at uint64, name N) []namedChange[N] {
	list = append(list, namedChange[N]{at, name})
	if len(list) >= 2*changeLogSize {
		list = slices.Clone(list[len(list)-changeLogSize:])
		r.forget(list[0].at)
	}
	return list
}

// since returns the names in a list that changed after a version.
func since[N comparable](list []namedChange[N], after uint64) map[N]bool {
	names := map[N]bool{}
	for i := len(list) - 1; i >= 0 && list[i].at > after; i-- {
		names[list[i].name] = true
	}
	return names
}

// forget notes that changes of the round at this index may be gone.
func (r *changeLog) forget(at uint64) { r.base, r.known = max(r.base, at), true }

// learn sets the base of a term that has just begun, given the newest change that a view found after the term began. All changes of the
// term itself are remembered.
func (r *changeLog) learn(newest uint64) {
	if r.known {
		return
	}
	r.known, r.base = true, newest
	if len(r.queues) > 0 {
		r.base = min(r.base, r.queues[0].at-1)
	}
	if len(r.workers) > 0 {
		r.base = min(r.base, r.workers[0].at-1)
	}
	for _, at := range []uint64{r.mapAt, r.accessAt} {
		if at != 0 {
			r.base = min(r.base, at-1)
		}
	}
	r.newest = max(r.newest, newest)
}

// lack says what a copy lacks.
type lack struct {
	version uint64
	all, mp bool
	access  bool
	queues  map[QueueName]bool
	workers map[WorkerName]bool
	leads   bool
	known   bool
}

// Changes returns what a node's copy, complete up to after (0: it is empty), lacks, waiting up to wait for news. It stores the node's
// report, and counts as a sign of life. A node that was removed gets wrong_state.
func (c *Control) Changes(ctx context.Context, after uint64, report Report, wait time.Duration) (Delta, error) {
	c.noteAlive(report.Node)
	c.noteCopyVersion(report.Node, after)
	if err := c.learn(ctx); err != nil {
		return Delta{}, err
	}
	if !c.isOwn(report.Node) {
		wait = min(wait, maxWait)
	}
	began := time.Now()
	c.await(ctx, after, wait)
	waited := time.Since(began)
	what := c.lacks(after)
	// Even without news there is a view: the answer confirms that this node leads, and that the copy lacks nothing.
	d, err := view(ctx, c, func(r store.Reader) (Delta, error) { return what.read(r, report.Node) })
	if err != nil {
		return Delta{}, err
	}
	if !what.leads || !what.known {
		return Delta{}, task.Unavailable(followPause, "system shard: its leader has just changed")
	}
	c.noteTokenUses(report.Uses)
	c.noteReport(report)
	d.Waited = waited
	return d, nil
}

// learn reads how new the tables were when this term began.
func (c *Control) learn(ctx context.Context) error {
	c.mu.Lock()
	o := c.leading
	known := o != nil && o.changeLog.known
	c.mu.Unlock()
	if known {
		return nil
	}
	newest, err := view(ctx, c, func(r store.Reader) (uint64, error) { return getNumber(r, newestKey), nil })
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o != nil && c.leading == o {
		o.changeLog.learn(newest)
	}
	return nil
}

// await waits until there is something newer than after, or leadership is lost.
func (c *Control) await(ctx context.Context, after uint64, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		c.mu.Lock()
		news, idle := c.news, c.leading != nil && c.leading.changeLog.newest == after
		c.mu.Unlock()
		if !idle {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// lacks returns what has to be read for a copy that is complete up to after.
func (c *Control) lacks(after uint64) lack {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == nil {
		return lack{}
	}
	r := &c.leading.changeLog
	l := lack{version: r.newest, leads: true, known: r.known}
	if after == 0 || after < r.base || after > r.newest {
		l.all, l.mp, l.access = true, true, true
		return l
	}
	l.mp, l.access = r.mapAt > after, r.accessAt > after
	l.queues, l.workers = since(r.queues, after), since(r.workers, after)
	return l
}

// read builds the answer. What it finds may be newer than its version says; it is then sent again.
func (l lack) read(r store.Reader, node uint32) (d Delta, err error) {
	if err := mustBelong(r, node); err != nil {
		return d, err
	}
	d = Delta{Version: l.version, All: l.all}
	if l.mp {
		if d.Map, err = readMap(r); err != nil {
			return d, err
		}
	}
	if l.access {
		if d.Access, err = readAccess(r); err != nil {
			return d, err
		}
	}
	if l.all {
		err = scanQueues(r, []byte{queueTable}, []byte{queueTable + 1}, func(q Queue, _ bool) bool {
			d.Queues = append(d.Queues, q)
			return true
		})
		if err == nil {
			d.Quiet, err = scanRows[QuietWorker](r, quietTable)
		}
		return d, err
	}
	if err := l.readWorkers(r, &d); err != nil {
		return d, err
	}
	for name := range l.queues {
		q, _, ok, err := getQueue(r, name.Namespace, name.Name)
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

func (l lack) readWorkers(r store.Reader, d *Delta) error {
	for name := range l.workers {
		q, quiet, err := getRow[QuietWorker](r, quietKey(name))
		switch {
		case err != nil:
			return err
		case quiet:
			d.Quiet = append(d.Quiet, q)
		default:
			d.Resumed = append(d.Resumed, name)
		}
	}
	return nil
}

// mustBelong returns an error for a node that does not belong to the cluster.
func mustBelong(r store.Reader, number uint32) error {
	n, ok, err := getRow[Node](r, nodeKey(number))
	switch {
	case err != nil:
		return err
	case !ok:
		return wrongState("node %d is not known to this cluster", number)
	case n.State == Removed:
		return removedError(n)
	}
	return nil
}

func removedError(n Node) error {
	if n.ReplacedBy != 0 {
		return wrongState("node %q (number %d) was removed: it joined again as number %d", n.Name, n.Number, n.ReplacedBy)
	}
	return wrongState("node %q (number %d) was removed: to come back, it must join again with an empty directory", n.Name, n.Number)
}

// noteReport stores the report of a node of the cluster.
func (c *Control) noteReport(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	r.Uses = nil
	c.heard[r.Node] = nodeReport{r, now}
	if c.starts[r.Node] == nil {
		c.starts[r.Node] = &starts{}
	}
	c.starts[r.Node].heard(r.Up, now)
}

// noteAlive records a sign of life of a node that has reported before.
func (c *Control) noteAlive(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.heard[number]; ok {
		h.At = time.Now()
		c.heard[number] = h
	}
}
