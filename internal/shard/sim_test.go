package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// The simulator runs whole groups in virtual time, on disks that lose power in the middle of a write and on a network
// that loses, delays and reorders. A seed gives the plan of faults, not the order of goroutines, so a repeat is close,
// but not exact. PAWL_SEED runs one seed, PAWL_SEEDS that many.

// world is one simulated group.
type world struct {
	t     *testing.T
	seed  uint64
	nodes []*node
	some  *sometimes

	mu  sync.Mutex
	rng *rand.Rand
	cut map[[2]uint64]bool // directed links that carry nothing

	keepBytes uint64 // of the shards' limits

	newest  atomic.Uint64 // the highest index in any answer so far
	history sync.Map      // index to time of answered writes
}

// node is a machine with a disk and, mostly, a replica.
type node struct {
	w      *world
	num    uint64
	id     uint64   // of its replica: an incarnation above 32 bits, and num
	voters []uint64 // the first members, if its replica is one of them

	mu    sync.Mutex
	life  *life // nil: down
	mem   *vfs.MemFS
	lives int
}

// life is a node from a start to a power loss or stop.
type life struct {
	*node
	replica uint64
	mem     *vfs.MemFS
	log     *raftlog.Log
	state   *store.Store
	shard   *Shard
	hooks   hookCheck

	dead  atomic.Bool // the power is gone: what it says from now on doesn't count
	after *vfs.MemFS  // what its disk held then
	fuse  atomic.Int64
	lost  chan struct{} // closed when the fuse has blown

	coming sync.WaitGroup // snapshots that come in
	ended  chan struct{}  // closed when it is taken down
}

func newWorld(t *testing.T, seed uint64, replicas int, some *sometimes) *world {
	w := &world{t: t, seed: seed, some: some, rng: rand.New(rand.NewPCG(seed, 99)), cut: map[[2]uint64]bool{}}
	for i := range replicas {
		w.nodes = append(w.nodes, &node{w: w, num: uint64(i + 1), id: uint64(i + 1), mem: vfs.NewCrashableMem()})
	}
	for _, n := range w.nodes {
		for _, v := range w.nodes {
			n.voters = append(n.voters, v.id)
		}
	}
	return w
}

// life returns the running replica with this id, nil if there is none.
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

// wait lets virtual time pass: all of a world happens in the bubble that eachSeed opens.
func (w *world) wait(d time.Duration) { time.Sleep(d) }

func (w *world) ms(n int) time.Duration { return time.Duration(w.intn(n)) * time.Millisecond }

// start gives a node power. Its fuse blows after as many writes to its disk; 0: never.
func (n *node) start(fuse int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &life{node: n, replica: n.id, mem: n.mem, lost: make(chan struct{}), ended: make(chan struct{})}
	l.hooks.l = l
	l.fuse.Store(int64(fuse))
	n.lives++
	if err := l.open(); err != nil {
		n.w.errorf("node %d, life %d: %v", n.id, n.lives, err)
		n.w.t.FailNow()
	}
	n.life = l
}

func (l *life) open() (err error) {
	fatal := func(err error) {
		if !l.dead.Load() {
			l.w.errorf("node %d: %v", l.id, err)
		}
	}
	fs := errorfs.Wrap(l.mem, errorfs.InjectorFunc(l.burn))
	if l.log, err = raftlog.Open(raftlog.Config{Dir: "/d/raft", FS: fs, MemTableSize: 64 << 10, Fatal: fatal}); err != nil {
		return err
	}
	if l.state, err = store.Open(store.Config{Dir: "/d/state", FS: fs, MemTableSize: 64 << 10, Fatal: fatal}); err != nil {
		return err
	}
	was := l.state.Applied()
	l.shard, err = Start(Config{
		ID: 1, Replica: l.id, Voters: l.voters, Log: l.log, State: l.state, Transport: l, Fatal: fatal,
		Hooks:  Hooks{Elected: l.hooks.elected, BeforeSeal: l.hooks.beforeSeal, Committed: l.hooks.committed, Dropped: l.hooks.dropped},
		Time:   store.TimeSource{Wall: time.Now, Elapsed: func() time.Duration { return time.Since(simStart) }},
		Logger: simLogger(),
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

var simStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// burn counts a write to the disk. The last one of the fuse finds the power gone, halfway through whatever it is part
// of: the disk keeps what was synced and some of the rest.
func (l *life) burn(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && l.fuse.Add(-1) == 0 {
		l.losePower()
	}
	return nil
}

func (l *life) losePower() {
	if !l.dead.CompareAndSwap(false, true) {
		return
	}
	percent := []int{0, 0, 20, 50, 80, 100}[l.w.intn(6)]
	if percent > 0 || l.w.intn(2) == 0 {
		l.keepNames()
	}
	l.after = l.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: percent,
		RNG:                 rand.New(rand.NewPCG(l.w.seed, uint64(l.w.intn(1<<30)))),
	})
	if percent%100 != 0 {
		l.w.some.hit("torn writes")
	}
	close(l.lost)
}

// keepNames makes all names of files survive. CrashClone would keep any of them, but file systems with a journal keep
// all up to some moment, and Pebble needs that: it creates a MANIFEST and its marker, then syncs the directory once.
func (l *life) keepNames() {
	for _, dir := range []string{"/", "/d", "/d/raft", "/d/raft/log", "/d/state", "/d/state.staged", "/d/state.ready"} {
		if d, err := l.mem.OpenDir(dir); err == nil { // if it is there yet
			if err := errors.Join(d.Sync(), d.Close()); err != nil {
				l.w.errorf("%v", err)
			}
		}
	}
}

// end takes the node down: by power loss, at once if its fuse hasn't blown, or cleanly.
func (n *node) end(clean bool) {
	// Virtual time stands still while anybody waits for a mutex, so it is not held over what takes time.
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
	close(l.ended)
	l.shard.Stop()
	l.coming.Wait()
	if err := l.log.Close(); err != nil {
		n.w.errorf("node %d: close of the log: %v", n.id, err)
	}
	if err := l.state.Close(); err != nil {
		n.w.errorf("node %d: close of the state: %v", n.id, err)
	}
	if l.dead.Load() {
		n.mem = l.after
	}
}

func (n *node) alive() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// Send implements Transport: each message may be lost, and takes its own time.
func (l *life) Send(ms []*pb.Message) {
	if l.dead.Load() {
		return
	}
	for _, m := range ms {
		from, to := m.GetFrom(), m.GetTo()
		l.w.mu.Lock()
		lost := l.w.cut[[2]uint64{uint64(uint32(from)), uint64(uint32(to))}] || l.w.rng.IntN(100) < 2
		delay := time.Duration(l.w.rng.ExpFloat64() * float64(2*time.Millisecond))
		l.w.mu.Unlock()
		if lost {
			continue
		}
		m = proto.Clone(m).(*pb.Message)
		time.AfterFunc(delay, func() {
			if peer := l.w.life(to); peer != nil {
				_ = peer.shard.Step(m)
			}
		})
	}
}

// SendSnapshot implements Transport: a snapshot may be cut on its way, or damaged.
func (l *life) SendSnapshot(ctx context.Context, m *pb.Message, body func(io.Writer) error) error {
	peer := l.w.life(m.GetTo())
	l.w.mu.Lock()
	cut := l.w.cut[[2]uint64{uint64(uint32(l.replica)), uint64(uint32(m.GetTo()))}]
	left, flip := 1<<30, 1<<30
	switch l.w.rng.IntN(6) {
	case 0:
		left = l.w.rng.IntN(3000)
	case 1:
		flip = l.w.rng.IntN(3000)
	}
	l.w.mu.Unlock()
	if peer == nil || cut || l.dead.Load() {
		return errors.New("no way there")
	}
	r, w := io.Pipe()
	var wrote sync.WaitGroup
	defer wrote.Wait()
	defer r.Close()
	wrote.Go(func() { _ = w.CloseWithError(body(&wire{l, w, left, flip})) })
	peer.coming.Add(1)
	defer peer.coming.Done()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(ctx.Err()) })
	defer stop()
	gone := make(chan struct{})
	defer close(gone)
	go func() {
		select {
		case <-peer.ended:
			_ = r.CloseWithError(errors.New("receiver is gone"))
		case <-gone:
		}
	}()
	was := peer.state.Applied().Index
	err := peer.shard.Receive(ctx, proto.Clone(m).(*pb.Message), r)
	switch at := peer.state.Applied().Index; {
	case err != nil:
		l.w.some.hit("snapshot refused")
	case at > was:
		l.w.some.hit("snapshot installed")
	}
	return err
}

// wire is what a snapshot goes over: slow, cut after some bytes, and with one bit wrong.
type wire struct {
	l          *life
	w          io.Writer
	left, flip int
}

func (w *wire) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		w.l.w.some.hit("snapshot cut")
		return 0, errors.New("cut")
	}
	n := len(b)
	if w.flip >= 0 && w.flip < n {
		b = append([]byte(nil), b...)
		b[w.flip] ^= 1
		w.l.w.some.hit("snapshot damaged")
	}
	w.flip -= n
	w.l.w.wait(time.Duration(n) * time.Microsecond)
	return w.w.Write(b)
}

// isolate cuts a node off: both ways, or one.
func (w *world) isolate(num uint64, in, out bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		w.cut[[2]uint64{n.num, num}] = in
		w.cut[[2]uint64{num, n.num}] = out
	}
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cut)
}

// hookCheck is the memory of a leader, as a broker would keep it: the sum of all counters. It checks that the hooks let
// it be right at any time.
type hookCheck struct {
	l     *life
	valid bool
	term  uint64
	sum   uint64
}

func (h *hookCheck) elected(o Office) {
	if h.valid {
		h.l.w.errorf("node %d: elected for term %d, and not dropped since term %d", h.l.id, o.Term, h.term)
	}
	if o.Began < o.Before {
		h.l.w.errorf("office began at %d, before the last entry's time %d", o.Began, o.Before)
	}
	h.valid, h.term, h.sum = true, o.Term, number(h.l.state, sumKey)
}

func (h *hookCheck) beforeSeal(tx *store.Tx) {
	if !h.valid {
		h.l.w.errorf("node %d: a round without office", h.l.id)
	}
	n, _ := tx.Local.(uint64)
	if got := number(tx, sumKey); got != h.sum+n {
		h.l.w.errorf("node %d: memory says that the sum is %d+%d, the round sees %d", h.l.id, h.sum, n, got)
	}
	if n > 1 {
		h.l.w.some.hit("round of several writes")
	}
}

func (h *hookCheck) committed(tx *store.Tx, at Stamp) {
	if !h.valid || at.Term != h.term || tx.Index() != at.Index {
		h.l.w.errorf("node %d: committed at %+v, in office %v for term %d, round computed for %d", h.l.id, at, h.valid, h.term, tx.Index())
	}
	n, _ := tx.Local.(uint64)
	h.sum += n
	if got := number(h.l.state, sumKey); got != h.sum {
		h.l.w.errorf("node %d: memory says that the sum is %d, the state has %d", h.l.id, h.sum, got)
	}
}

func (h *hookCheck) dropped() {
	if !h.valid {
		h.l.w.errorf("node %d: dropped twice", h.l.id)
	}
	h.valid = false
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
			t.Errorf("in no seed: %s", what)
		}
	}
}

// eachSeed runs a simulation for each seed of the batch, n unless the environment says otherwise.
func eachSeed(t *testing.T, n int, whats []string, simulate func(*testing.T, uint64, *sometimes)) {
	some := new(sometimes)
	first, count := uint64(1), uint64(n)
	if v, err := strconv.ParseUint(os.Getenv("PAWL_SEED"), 10, 64); err == nil {
		first, count, whats = v, 1, nil
	} else if v, err := strconv.ParseUint(os.Getenv("PAWL_SEEDS"), 10, 64); err == nil {
		count = v
	}
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed, some) })
	}
	if !t.Failed() {
		some.want(t, whats...)
	}
}

func number(r store.Reader, key []byte) uint64 {
	b, _ := r.Get(key)
	v, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return v
}

// simLogger logs if PAWL_SIM_LOG is set.
func simLogger() *slog.Logger {
	if os.Getenv("PAWL_SIM_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}
