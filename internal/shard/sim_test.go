package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// The simulator runs whole groups in virtual time, on disks that lose power in the middle of a write and on a network
// that loses, delays and reorders messages. A seed determines the plan of faults but not the order of goroutines, so a repeat is
// similar but not exact. PAWL_SEED runs one seed, PAWL_SEEDS that many.

// world is one simulated group.
type world struct {
	t     *testing.T
	seed  uint64
	nodes []*node
	some  *sometimes
	dealt int // troubles

	mu   sync.Mutex
	rng  *rand.Rand
	cut  map[link]bool          // links that carry nothing
	calm bool                   // the network loses and repeats only what it is told to
	lose func(*pb.Message) bool // additional messages to lose; nil: none
	full func() error           // refuses a snapshot; nil: there is room
	log  *slog.Logger           // of all replicas; nil: depends on the environment

	keepBytes uint64 // of the shards' limits
	roomy     bool   // makes all lives roomy

	newest  atomic.Uint64 // the highest index in any answer so far
	history sync.Map      // index to time of answered writes
	terms   terms
}

// node is a machine with a disk and, usually, a replica.
type node struct {
	w      *world
	num    uint32
	id     uint64       // of its replica: an incarnation in the upper 32 bits, and num in the lower
	voters []uint64     // the first members, if its replica is one of them
	wall   atomic.Int64 // error of its wall clock in nanoseconds
	fatal  func(error)  // receives why its replica can't continue; nil: it must not happen

	mu    sync.Mutex
	life  *life // nil: down
	mem   *vfs.MemFS
	lives int
	ran   bool // its replica has run, as the node would have recorded
}

// life is a node from a start to a power loss or stop.
type life struct {
	*node
	*disk
	replica uint64
	log     *raftlog.Log
	state   *store.Store
	shard   *Shard
	hooks   hookCheck
	roomy   bool // it keeps so much of its log in memory that it hardly ever writes it out; otherwise little

	coming sync.WaitGroup // snapshots being received
	down   chan struct{}  // closed when it is taken down
}

func newWorld(t *testing.T, seed uint64, replicas int, some *sometimes) *world {
	w := &world{t: t, seed: seed, some: some, rng: rand.New(rand.NewPCG(seed, 99)), cut: map[link]bool{}}
	for i := range replicas {
		w.nodes = append(w.nodes, &node{w: w, num: uint32(i + 1), id: uint64(i + 1), mem: vfs.NewCrashableMem()})
	}
	for _, n := range w.nodes {
		for _, v := range w.nodes {
			n.voters = append(n.voters, v.id)
		}
	}
	return w
}

// life returns the running replica with this id, or nil.
func (w *world) life(replica uint64) *life {
	l := w.nodes[uint32(replica)-1].alive()
	if l == nil || l.replica != replica {
		return nil
	}
	return l
}

func (w *world) errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("seed %d: %s (repeat with PAWL_SEED=%d)", w.seed, fmt.Sprintf(format, args...), w.seed)
}

// intn returns a random number below n.
func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// wait lets virtual time pass: a world runs in the bubble that eachSeed opens.
func (w *world) wait(d time.Duration) { time.Sleep(d) }

func (w *world) ms(n int) time.Duration { return time.Duration(w.intn(n)) * time.Millisecond }

// start powers a node on. Its fuse blows after that many writes to its disk; 0: never.
func (n *node) start(fuse int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &life{node: n, disk: newDisk(n.w, n.mem, fuse), replica: n.id, down: make(chan struct{})}
	l.hooks.l = l
	l.roomy = n.w.roomy || n.w.intn(2) == 0
	n.lives++
	if err := l.open(); err != nil {
		n.w.errorf("node %d, life %d: %v", n.id, n.lives, err)
		n.w.t.FailNow()
	}
	n.life = l
}

func (l *life) open() (err error) {
	fs, segment := l.fs(), 32<<10
	if l.roomy {
		segment = 256 << 10
	}
	logs := raftlog.Config{Dir: "/d/raft", FS: fs, SegmentSize: segment, MustExist: l.ran, Fatal: l.failed}
	if err := l.check(logs); err != nil {
		return err
	}
	if l.log, err = raftlog.Open(logs); err != nil {
		return err
	}
	if l.state, err = store.Open(store.Config{Dir: "/d/state", FS: fs, MemTableSize: 64 << 10, Fatal: l.failed}); err != nil {
		return err
	}
	was := l.state.Applied()
	if err := l.log.Create(1); err != nil {
		return err
	}
	l.ran = l.ran || !l.dead.Load()
	l.shard, err = Start(Config{
		ID: 1, Replica: l.id, Voters: l.voters, Ran: l.ran, Log: l.log, State: l.state, Transport: l, Fatal: l.failed,
		Hooks:  Hooks{Elected: l.hooks.elected, BeforeSeal: l.hooks.beforeSeal, Committed: l.hooks.committed, Dropped: l.hooks.dropped},
		Time:   store.TimeSource{Wall: l.now, Elapsed: func() time.Duration { return time.Since(simStart) }},
		Logger: l.w.logger(),
		Limits: Limits{
			RoundBytes: 2000, RoundCalls: 6, CallBytes: 6000,
			ReplayEntries: 200, ReplayBytes: 100 << 10, KeepBytes: l.w.keepBytes,
		},
	})
	if err == nil && was.Index > 1 {
		l.w.some.hit("restart from a state")
	}
	return err
}

// check looks at what is on the disk, as a node does before it opens anything: what the last life has left is not damaged.
func (l *life) check(logs raftlog.Config) error {
	log, err := raftlog.Load(logs)
	if err != nil {
		return err
	}
	look := func(state *store.Store) error {
		return Check(Config{ID: 1, Replica: l.id, Voters: l.voters, Ran: l.ran, Log: log, State: state})
	}
	found, err := store.Peek(store.Config{Dir: "/d/state", FS: logs.FS, MustExist: l.ran}, look)
	if !found && err == nil {
		err = look(nil)
	}
	return errors.Join(err, log.Close())
}

// now returns the node's wall clock.
func (n *node) now() time.Time { return time.Now().Add(time.Duration(n.wall.Load())) }

var simStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// end takes the node down: cleanly, or by power loss, immediately if its fuse hasn't blown.
func (n *node) end(clean bool) {
	// Virtual time stands still while a goroutine waits for a mutex, so it must not be held over anything that takes time.
	n.mu.Lock()
	l := n.life
	n.life = nil
	n.mu.Unlock()
	if !clean {
		if l.fuse.Load() > 0 {
			n.w.some.hit("power loss at rest")
		} else {
			n.w.some.hit("power loss in a write")
		}
		l.losePower()
		<-l.lost
	}
	close(l.down)
	l.shard.Stop()
	l.coming.Wait()
	sound := l.fault.Load() == nil // the stores on a faulty disk may not close properly
	if err := l.log.Close(); err != nil && sound {
		n.w.errorf("node %d: close of the log: %v", n.id, err)
	}
	if err := l.state.Close(); err != nil && sound {
		n.w.errorf("node %d: close of the state: %v", n.id, err)
	}
	if l.dead.Load() {
		n.mem = l.after.Load()
	}
}

func (n *node) alive() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// hookCheck is a leader's memory, as a broker would keep it: the sum of all counters. It checks that the hooks keep it
// correct at any time, and that nothing is left pending by a round, not even by one that wrote nothing.
type hookCheck struct {
	l      *life
	valid  bool
	term   uint64
	sum    uint64
	sealed *store.Tx // the round that has neither been committed nor dropped
}

func (h *hookCheck) elected(o LeaderTerm) {
	if h.valid {
		h.l.w.errorf("node %d: elected for term %d, and not dropped since term %d", h.l.id, o.Term, h.term)
	}
	if o.Began < o.Before {
		h.l.w.errorf("leadership began at %d, before the last entry's time %d", o.Began, o.Before)
	}
	h.l.w.terms.began(h.l.w, o.Term, h.l.replica)
	h.valid, h.term, h.sum = true, o.Term, number(h.l.state, sumKey)
}

func (h *hookCheck) beforeSeal(tx *store.Tx) {
	if !h.valid {
		h.l.w.errorf("node %d: a round without leadership", h.l.id)
	}
	if h.sealed != nil {
		h.l.w.errorf("node %d: round %d begins, and %d was neither committed nor dropped", h.l.id, tx.Index(), h.sealed.Index())
	}
	h.sealed = tx
	n, _ := tx.Local.(uint64)
	if got := number(tx, sumKey); got != h.sum+n {
		h.l.w.errorf("node %d: memory says that the sum is %d+%d, the round sees %d", h.l.id, h.sum, n, got)
	}
	if n > 1 {
		h.l.w.some.hit("round of several writes")
	}
}

func (h *hookCheck) committed(tx *store.Tx, at Stamp) {
	index := tx.Index()
	if tx.Empty() {
		index--
		h.l.w.some.hit("round without writes")
	}
	if !h.valid || at.Term != h.term || index != at.Index || h.sealed != tx {
		h.l.w.errorf("node %d: committed at %+v, leading %v for term %d, round computed for %d", h.l.id, at, h.valid, h.term, index)
	}
	h.sealed = nil
	n, _ := tx.Local.(uint64)
	h.sum += n
	if got := number(h.l.state, sumKey); got != h.sum {
		h.l.w.errorf("node %d: memory says that the sum is %d, the state has %d", h.l.id, h.sum, got)
	}
}

func (h *hookCheck) dropped(bool) {
	if !h.valid {
		h.l.w.errorf("node %d: dropped twice", h.l.id)
	}
	h.valid, h.sealed = false, nil
}

// terms records who led in which term, and how the shard's time passed meanwhile.
type terms struct {
	mu    sync.Mutex
	terms map[uint64]*term
}

type term struct {
	leader uint64
	first  time.Time // when the first answer was seen; zero: none yet
	// The bounds on how far the shard's time is ahead of true time.
	least, most time.Duration
}

// began checks that a term has one leader.
func (o *terms) began(w *world, number, leader uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.terms == nil {
		o.terms = map[uint64]*term{}
	}
	if o.terms[number] == nil {
		o.terms[number] = &term{leader: leader}
	}
	if t := o.terms[number]; t.leader != leader {
		w.errorf("replicas %d and %d both lead in term %d", t.leader, leader, number)
	}
}

// count returns how many terms had a leader so far.
func (o *terms) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.terms)
}

// saw checks that within a term the shard's time passes like true time, whatever the wall clocks do, within 500 millionths.
// The answer's time is from some moment since the call began.
func (o *terms) saw(w *world, at Stamp, begun time.Time) {
	now := time.Now()
	least, most := at.Time.Sub(store.TimeOf(now)), at.Time.Sub(store.TimeOf(begun))
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.terms[at.Term]
	if t == nil {
		w.errorf("an answer from term %d, in which nobody leads", at.Term)
		return
	}
	if t.first.IsZero() {
		t.first, t.least, t.most = now, least, most
	}
	slack := time.Millisecond + now.Sub(t.first)/2000
	if least > t.most+slack || most < t.least-slack {
		w.errorf("in term %d the shard's time was ahead by %v to %v, and is now by %v to %v", at.Term, t.least, t.most, least, most)
	}
	t.least, t.most = max(t.least, least), min(t.most, most)
}

// sometimes counts what a batch of seeds must have seen.
type sometimes struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *sometimes) hit(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[what]++
}

func (s *sometimes) want(t *testing.T, whats ...string) {
	t.Helper()
	t.Logf("seen: %v", s.seen)
	for _, what := range whats {
		if s.seen[what] == 0 {
			t.Errorf("no seed saw: %s", what)
		}
	}
}

// eachSeed runs a simulation for each seed of the batch, n of them unless the environment sets another number.
func eachSeed(t *testing.T, n int, whats []string, simulate func(*testing.T, uint64, *sometimes)) {
	some := new(sometimes)
	first, count := uint64(1), uint64(seedCount(n))
	if v, err := strconv.ParseUint(os.Getenv("PAWL_SEED"), 10, 64); err == nil {
		first, count, whats = v, 1, nil
	}
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed, some) })
	}
	if !t.Failed() && meetsAll {
		some.want(t, whats...)
	}
}

// seedCount returns the size of a batch of n seeds, which the environment may override.
func seedCount(n int) int {
	if v, err := strconv.Atoi(os.Getenv("PAWL_SEEDS")); err == nil && v > 0 {
		return v
	}
	return n
}

func number(r store.Reader, key []byte) uint64 {
	b, _ := r.Get(key)
	v, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return v
}

// logger returns a logger that logs if PAWL_SIM_LOG is set.
func (w *world) logger() *slog.Logger {
	if w.log != nil {
		return w.log
	}
	return simLogger()
}

func simLogger() *slog.Logger {
	if os.Getenv("PAWL_SIM_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}
