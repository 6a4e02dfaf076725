package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The model: clients enqueue tasks with follow-ups in other shards, run them and move them to other queues, slots move,
// answers between shards are lost and leaders change, while a backup is made. The backup is restored, perhaps days
// later. Then every task that was answered before the backup began is there exactly once, and no task is there twice.

// flaw is what a backup, or its restore, leaves out.
type flaw string

const (
	noFlaw     flaw = ""
	noHold     flaw = "the shards are not held"
	noCheck    flaw = "it is not checked that the leaders stayed"
	noExtend   flaw = "the restored shards remember messages by the clock"
	cutShards       = 3
	cutQueues       = 4
	keepForAll      = 90 * 24 * time.Hour
)

// fleet is some data shards in memory, and the map of queues, which the system shard would have.
type fleet struct {
	*Broker
	t     *testing.T
	fs    vfs.FS
	logs  *raftlog.Log
	dead  *archive.Archive
	began time.Time

	mu     sync.Mutex
	rng    *rand.Rand
	shards map[uint32]*fleetShard
	queues map[string]fleetQueue
	lossy  bool
}

// fleetQueue is the row of a queue. Each change makes a new version. All slots move together, in the two steps of the
// system shard: in the version that begins a move no shard takes any, and the next one comes when all shards have the
// first.
type fleetQueue struct {
	route   []uint32 // the shards that the slots have left, and the one that takes them, or will
	version uint64
	moved   uint64 // the version that began the last move
	moving  bool
}

func (q *fleetQueue) beginMove(route []uint32) {
	q.version++
	q.route, q.moved, q.moving = route, q.version, true
}

// copyFor returns the configuration of a shard's copy.
func (q *fleetQueue) copyFor(id uint32) task.QueueConfig {
	c := task.QueueConfig{Version: q.version, Moved: q.moved, Settings: task.DefaultSettings()}
	if q.moving || q.leaves(id) {
		c.Closed = task.AllSlots
	}
	return c
}

// leaves reports whether a shard is not the one that takes the slots.
func (q *fleetQueue) leaves(id uint32) bool { return id != q.route[len(q.route)-1] }

type fleetShard struct {
	group *shard.Shard
	state *store.Store
}

// openFleet starts shards, with the states of a backup if there are any.
func openFleet(t *testing.T, rng *rand.Rand, dir string, saved *savedFleet) *fleet {
	f := &fleet{t: t, fs: vfs.NewMem(), began: time.Now(), rng: rng, shards: map[uint32]*fleetShard{}, queues: map[string]fleetQueue{}}
	var err error
	f.logs, err = raftlog.Open(raftlog.Config{Dir: "log", FS: f.fs, SegmentSize: smallSegment, Fatal: func(err error) { t.Error(err) }})
	f.must(err)
	f.dead, err = archive.Open(archive.Config{Dir: dir})
	f.must(err)
	f.Broker = New(Config{Limits: task.DefaultLimits(), Archive: f.dead, Logger: slog.New(slog.DiscardHandler),
		Namespaces: func() []string {
			return []string{ns}
		},
		EnsureQueue: f.ensureQueue, SendOutbox: f.deliver, RunStep: f.step, ShardOf: f.shardOf,
		HasShard: func(_ context.Context, id uint32) (bool, error) { return id <= cutShards, nil }})
	for i := range cutQueues {
		f.queues[queueName(i)] = fleetQueue{route: []uint32{1 + uint32(i)%cutShards}, version: 1}
	}
	if saved != nil { // the shards' copies may be older than the rows, so the slots are closed everywhere before they are opened
		for name, q := range saved.queues {
			if len(q.route) > 1 {
				q.beginMove(q.route)
			}
			f.queues[name] = q
		}
	}
	for id := uint32(1); id <= cutShards; id++ {
		if saved != nil {
			f.restore(id, saved)
		}
		f.start(id)
	}
	f.Start()
	time.Sleep(5 * time.Second) // until there are leaders
	return f
}

func queueName(i int) string { return fmt.Sprintf("queue-%d", i) }

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) chance(percent int) bool { return f.intN(100) < percent }

func (f *fleet) intN(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.IntN(n)
}

func (f *fleet) openState(id uint32) *store.Store {
	state, err := store.Open(store.Config{Dir: fmt.Sprintf("state%d", id), FS: f.fs, Identity: store.Identity{Shard: id, Replica: 1},
		Fatal: func(err error) { f.t.Error(err) }})
	f.must(err)
	return state
}

func (f *fleet) start(id uint32) {
	s := &fleetShard{state: f.openState(id)}
	f.must(f.Add(id, func(h shard.Hooks) (_ *shard.Shard, err error) {
		s.group, err = shard.Start(shard.Config{ID: id, Replica: 1, Voters: []uint64{1}, Log: f.logs, State: s.state, Hooks: h,
			Time:  store.TimeSource{Wall: time.Now, Elapsed: func() time.Duration { return time.Since(f.began) }},
			Fatal: func(err error) { f.t.Error(err) }})
		return s.group, err
	}))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shards[id] = s
}

func (f *fleet) stopShard(id uint32) {
	f.Remove(id)
	f.mu.Lock()
	s := f.shards[id]
	f.mu.Unlock()
	s.group.Stop()
	f.must(s.state.Close())
}

func (f *fleet) close() {
	f.Stop()
	for id := range f.shards {
		f.stopShard(id)
	}
	f.must(errors.Join(f.logs.Close(), f.dead.Close()))
}

func (f *fleet) row(queue string) fleetQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queues[queue]
}

func (f *fleet) ensureQueue(ctx context.Context, id uint32, _, queue string) error {
	q := f.row(queue)
	return copyQueues(ctx, f.Broker, id, map[string]task.QueueConfig{queue: q.copyFor(id)})
}

// moveSlots moves all slots of a queue to another shard.
func (f *fleet) moveSlots(ctx context.Context, queue string, to uint32) {
	f.mu.Lock()
	q := f.queues[queue]
	if q.moving || !q.leaves(to) {
		f.mu.Unlock()
		return
	}
	q.beginMove(append(slices.DeleteFunc(slices.Clone(q.route), func(id uint32) bool { return id == to }), to))
	f.queues[queue] = q
	f.mu.Unlock()
	f.openSlots(ctx, queue)
}

// openSlots completes a move: the slots are closed in all shards before one opens them.
func (f *fleet) openSlots(ctx context.Context, queue string) {
	f.copyAll(ctx, queue)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	q := f.queues[queue]
	q.version++
	q.moving = false
	f.queues[queue] = q
	f.mu.Unlock()
	f.copyAll(ctx, queue)
}

// copyAll brings the copies of a queue up to date.
func (f *fleet) copyAll(ctx context.Context, queue string) {
	for _, id := range f.row(queue).route {
		for f.ensureQueue(ctx, id, ns, queue) != nil {
			if time.Sleep(100 * time.Millisecond); ctx.Err() != nil {
				return
			}
		}
	}
}

var errLost = errors.New("the answer was lost")

// enqueue asks the shards that may know the task, and then the one that takes it.
func (f *fleet) enqueue(ctx context.Context, spec task.Spec) (out Enqueued) {
	q := f.row(spec.Queue)
	spec.Routed = q.version
	for _, id := range q.route {
		spec.Left = q.leaves(id)
		got, _, err := f.Enqueue(ctx, id, ns, []task.Spec{spec})
		if err != nil {
			return Enqueued{Err: err}
		}
		if out = got[0]; !errors.Is(out.Err, ErrSlotMoved) {
			break
		}
	}
	return out
}

func (f *fleet) shardOf(_, queue string, _ int) uint32 {
	route := f.row(queue).route
	return route[len(route)-1]
}

func (f *fleet) deliver(ctx context.Context, ns string, messages []*OutboxMessage) []Enqueued {
	out := make([]Enqueued, len(messages))
	for i, m := range messages {
		f.network(ctx)
		if out[i] = f.enqueue(ctx, m.Spec); f.isLossy() && f.chance(40) {
			out[i] = Enqueued{Err: errLost}
		}
		f.network(ctx)
	}
	return out
}

func (f *fleet) isLossy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lossy
}

// network is the time that a message takes.
func (f *fleet) network(ctx context.Context) {
	sleep(ctx, time.Duration(f.intN(50_000))*time.Microsecond)
}

func (f *fleet) step(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
	f.network(ctx)
	out, err := RunStep.Call(ctx, f, StepOrder{OnShard{id, ns}, c})
	if f.isLossy() && f.chance(20) {
		err = errLost
	}
	f.network(ctx)
	return out.Step, err
}

// savedFleet is a backup.
type savedFleet struct {
	images map[uint32][]byte
	queues map[string]fleetQueue
	flaw   flaw
}

// backUp makes a backup, as a node does.
func (f *fleet) backUp(ctx context.Context, flaw flaw) *savedFleet {
	for id := uint64(1); ; id++ {
		s, err := f.tryBackUp(ctx, flaw, task.ID{15: byte(id)})
		if err == nil {
			return s
		}
		if id == 100 {
			f.t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func (f *fleet) tryBackUp(ctx context.Context, flaw flaw, id task.ID) (*savedFleet, error) {
	s := &savedFleet{images: map[uint32][]byte{}, flaw: flaw}
	terms := map[uint32]uint64{}
	on := func(shard uint32) OnCut { return OnCut{OnShard{shard, ""}, id, terms[shard]} }
	defer func() {
		for shard := uint32(1); shard <= cutShards; shard++ {
			_, _ = EndCut.Call(ctx, f, on(shard))
		}
	}()
	for shard := uint32(1); shard <= cutShards && flaw != noHold; shard++ {
		begun, err := BeginCut.Call(ctx, f, on(shard))
		if err != nil {
			return nil, err
		}
		terms[shard] = begun.Term
	}
	for _, shard := range f.order() {
		if err := f.image(ctx, shard, s); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(f.intN(400)) * time.Millisecond)
		if shard := 1 + uint32(f.intN(cutShards)); flaw == noCheck || f.chance(15) {
			f.stopShard(shard)
			f.start(shard)
			time.Sleep(time.Duration(f.intN(6000)) * time.Millisecond) // often until there is a leader, which does not hold
		}
	}
	f.mu.Lock()
	s.queues = maps.Clone(f.queues)
	f.mu.Unlock()
	for shard := uint32(1); shard <= cutShards && flaw != noHold && flaw != noCheck; shard++ {
		if _, err := CheckCut.Call(ctx, f, on(shard)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (f *fleet) order() []uint32 {
	order := []uint32{1, 2, 3}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

func (f *fleet) image(ctx context.Context, id uint32, s *savedFleet) error {
	f.mu.Lock()
	group := f.shards[id].group
	f.mu.Unlock()
	_, err := group.Image(ctx, func(_ context.Context, snap *store.Snapshot) error {
		var b bytes.Buffer
		err := snap.WriteImage(&b)
		s.images[id] = b.Bytes()
		return err
	})
	return err
}

// restore writes the state of a shard as Restore of a node does.
func (f *fleet) restore(id uint32, s *savedFleet) {
	state := f.openState(id)
	_, err := state.Stage(bytes.NewReader(s.images[id]))
	if err == nil {
		err = state.Switch()
	}
	f.must(err)
	_, err = shard.Recover(f.logs, state, id, 1, func(tx *store.Tx) error {
		if s.flaw == noExtend {
			return nil
		}
		return Restored(tx)
	})
	f.must(errors.Join(err, state.Close()))
}

// clients work on a fleet and note what was answered.
type clients struct {
	f *fleet

	mu   sync.Mutex
	next int
	made map[string]bool // labels of tasks that must exist
}

func (c *clients) answered() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.made)
}

func (c *clients) note(label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[label] = true
}

func (c *clients) work(ctx context.Context) {
	f := c.f
	for ctx.Err() == nil {
		queue := queueName(f.intN(cutQueues))
		switch f.intN(8) {
		case 0:
			home := 1 + uint32(f.intN(cutShards))
			spec := OperationSpec{Action: task.Move, Filter: ready(queue), ToQueue: queueName(f.intN(cutQueues)),
				Request: task.NewID(home, time.Now().UnixMilli(), uint64(f.intN(1<<40)))} // #nosec G115 -- positive
			_, _ = StartOperation.Call(ctx, f, NewOperation{OnShard: OnShard{home, ns}, Spec: spec})
		case 1:
			if f.chance(30) {
				f.moveSlots(ctx, queue, 1+uint32(f.intN(cutShards)))
			}
		case 2, 3, 4:
			c.enqueue(ctx, queue)
		default:
			c.run(ctx, queue)
		}
		sleep(ctx, time.Duration(f.intN(100))*time.Millisecond)
	}
}

// enqueue enqueues a task that is followed by one in another queue.
func (c *clients) enqueue(ctx context.Context, queue string) {
	c.mu.Lock()
	c.next++
	label := fmt.Sprintf("task-%d", c.next)
	c.mu.Unlock()
	keep := keepForAll
	spec := task.Spec{Queue: queue, Type: label, Retention: &keep}
	if c.f.chance(50) { // else it may be moved
		spec.Then = []task.Spec{{Queue: queueName(c.f.intN(cutQueues)), Type: label + "-next", Retention: &keep}}
	}
	spec.Fill()
	if out := c.f.enqueue(ctx, spec); out.Err == nil {
		c.note(label)
	}
}

// run runs a task of a queue in one of its shards.
func (c *clients) run(ctx context.Context, queue string) {
	route := c.f.row(queue).route
	id := route[c.f.intN(len(route))]
	got, _, err := c.f.Claim(ctx, id, call(queue), 0)
	if err != nil || len(got) == 0 {
		return
	}
	v, _, err := c.f.Task(ctx, ns, got[0].ID, 0)
	if err != nil {
		return
	}
	out, _, err := c.f.Settle(ctx, id, []Settle{{Verb: Ack, Hold: hold(got[0])}})
	if err == nil && out[0].Err == nil && !strings.HasSuffix(v.Exec.Type, "-next") && v.Exec.Links != nil {
		c.note(v.Exec.Type + "-next")
	}
}

// count counts the tasks of all shards by label. A task that was moved counts where it is.
func (f *fleet) count() map[string]int {
	n := map[string]int{}
	for id := uint32(1); id <= cutShards; id++ {
		for i := range cutQueues {
			var cursor []byte
			for {
				page, err := ListTasks.Call(context.Background(), f, TaskList{OnShard: OnShard{id, ns}, Filter: Filter{Queue: queueName(i)},
					Cursor: cursor, Limit: 500})
				f.must(err)
				for _, v := range page.Page.Tasks {
					if v.Exec.Reason != task.ReasonMoved {
						n[v.Exec.Type]++
					}
				}
				if cursor = page.Page.Next; cursor == nil {
					break
				}
			}
		}
	}
	return n
}

// runCut runs the model once and returns what is wrong after the restore.
func runCut(t *testing.T, seed uint64, flaw flaw) (wrong []string) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 9))
		f := openFleet(t, rng, dirs[0], nil)
		f.lossy = true
		ctx, cancel := context.WithCancel(context.Background())
		c := &clients{f: f, made: map[string]bool{}}
		var working sync.WaitGroup
		for range 4 {
			working.Go(func() { c.work(ctx) })
		}
		time.Sleep(time.Duration(2+f.intN(5)) * time.Second)
		before := c.answered()
		saved := f.backUp(ctx, flaw)
		cancel()
		working.Wait()
		f.close()

		time.Sleep([]time.Duration{0, time.Hour, 30 * time.Hour, 120 * time.Hour}[rng.IntN(4)])
		f = openFleet(t, rng, dirs[1], saved)
		ctx = context.Background()
		for i := range cutQueues { // as the next leader of the system shard repairs them
			f.openSlots(ctx, queueName(i))
		}
		time.Sleep(2 * time.Minute)
		n := f.count()
		for label := range before {
			if n[label] == 0 {
				wrong = append(wrong, label+" is lost")
			}
		}
		for label, count := range n {
			if count > 1 {
				wrong = append(wrong, fmt.Sprintf("%s is there %d times", label, count))
			}
		}
		f.close()
		slices.Sort(wrong)
	})
	return wrong
}

func TestBackupModel(t *testing.T) {
	for seed := range uint64(8) {
		if wrong := runCut(t, seed, noFlaw); len(wrong) > 0 {
			t.Errorf("seed %d: %q", seed, wrong)
		}
	}
}

// The model sees what it is for.
func TestBackupModelSeesFlaws(t *testing.T) {
	for _, flaw := range []flaw{noHold, noCheck, noExtend} {
		seen := false
		for seed := uint64(0); seed < 60 && !seen; seed++ {
			seen = len(runCut(t, seed, flaw)) > 0
		}
		if !seen {
			t.Errorf("no run noticed that %s", flaw)
		}
	}
}
