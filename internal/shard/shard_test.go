package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// bench is a single-replica shard in memory that records the calls of its hooks.
type bench struct {
	*Shard
	t     *testing.T
	mem   *vfs.MemFS
	log   *raftlog.Log
	state *store.Store
	loop  *loop

	mu     sync.Mutex
	hooks  []string
	fatals []error
}

// fixture is what differs from a usual bench.
type fixture struct {
	mem        *vfs.MemFS
	inject     errorfs.Injector
	voters     []uint64
	limits     Limits
	time       store.TimeSource
	logger     *slog.Logger
	beforeSeal func(*bench, *store.Tx)
}

// smallSegment is the segment size of a node in memory. Segments of the Raft log are filled with zeros up front: at the
// size used on disk, that would cost more than most tests.
const smallSegment = 256 << 10

func startBench(t *testing.T, f fixture) *bench {
	t.Helper()
	b := &bench{t: t, mem: f.mem}
	if b.mem == nil {
		b.mem = vfs.NewCrashableMem()
	}
	fs := vfs.FS(b.mem)
	if f.inject != nil {
		fs = errorfs.Wrap(fs, f.inject)
	}
	fatal := func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fatals = append(b.fatals, err)
	}
	var err error
	if b.log, err = raftlog.Open(raftlog.Config{Dir: "/d/raft", FS: fs, SegmentSize: smallSegment, Fatal: fatal}); err != nil {
		t.Fatal(err)
	}
	if b.state, err = store.Open(store.Config{Dir: "/d/state", FS: fs, Fatal: fatal}); err != nil {
		t.Fatal(err)
	}
	if f.voters == nil {
		f.voters = []uint64{1}
	}
	cfg := Config{ID: 1, Replica: 1, Voters: f.voters, Log: b.log, State: b.state, Fatal: fatal, Limits: f.limits,
		Time: f.time, Logger: f.logger}
	cfg.Hooks = Hooks{
		Elected: func(o LeaderTerm) { b.note("elected %d", o.Term) },
		BeforeSeal: func(tx *store.Tx) {
			if f.beforeSeal != nil {
				f.beforeSeal(b, tx)
			}
		},
		Committed: func(tx *store.Tx, at Stamp) {
			if tx.Empty() {
				b.note("read %d", at.Index)
			} else {
				b.note("committed %d", at.Index)
			}
		},
		Dropped: func(bool) { b.note("dropped") },
	}
	if b.Shard, b.loop, err = prepare(cfg); err != nil {
		t.Fatal(err)
	}
	go b.run(b.loop)
	return b
}

func (b *bench) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hooks = append(b.hooks, fmt.Sprintf(format, args...))
}

// wantHooks checks which hooks were called since its last call.
func (b *bench) wantHooks(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.hooks, want) {
		b.t.Errorf("hooks were %q, want %q", b.hooks, want)
	}
	b.hooks = nil
}

func (b *bench) close() {
	b.t.Helper()
	b.Stop()
	if err := errors.Join(b.log.Close(), b.state.Close()); err != nil {
		b.t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fatals) > 0 {
		b.t.Errorf("fatal was called with %v", b.fatals)
	}
}

// set writes a row.
func (b *bench) set(key, value string) (Stamp, error) {
	_, at, err := Update(context.Background(), b.Shard, func(tx *store.Tx) (struct{}, error) {
		tx.Set([]byte(key), []byte(value))
		return struct{}{}, nil
	})
	return at, err
}

func (b *bench) get(key string) string {
	b.t.Helper()
	v, _, err := View(context.Background(), b.Shard, func(r store.Reader) (string, error) {
		v, _ := r.Get([]byte(key))
		return string(v), nil
	})
	if err != nil {
		b.t.Error(err)
	}
	return v
}

func TestUpdateAndView(t *testing.T) {
	b := startBench(t, fixture{})
	at, err := b.set("a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if at.Shard != 1 || at.Index != 3 || at.Term != 2 || at.Time == 0 { // 1 is the bootstrap's, 2 is the leader's own
		t.Errorf("stamp is %+v", at)
	}
	if got := b.get("a"); got != "1" {
		t.Errorf("a is %q", got)
	}
	if node, term := b.Leader(); node != 1 || term != 2 {
		t.Errorf("Leader = node %d in term %d, want node 1 in term 2", node, term)
	}
	if _, ok := b.Now(); !ok {
		t.Error("the leader has no shard time")
	}
	_, seen, err := Update(context.Background(), b.Shard, func(tx *store.Tx) (struct{}, error) { return struct{}{}, errRefused })
	if err != errRefused || seen.Index != 3 {
		t.Errorf("Update returned %v at %+v, want the refusal at entry 3", err, seen)
	}
	b.wantHooks("elected 2", "committed 3", "read 3")
	b.close()
	b.wantHooks("dropped")
	if _, err := b.set("a", "2"); err != ErrStopped {
		t.Errorf("Update after Stop: %v, want ErrStopped", err)
	}
	if _, ok := b.Now(); ok {
		t.Error("a replica that stopped still has a shard time")
	}
}

// proposeStale proposes an entry that was computed on another state, so that no replica applies it.
func (b *bench) proposeStale(tx *store.Tx) {
	stale := b.state.Begin(tx.Now(), 77)
	defer stale.Close()
	stale.Set([]byte("stale"), []byte("x"))
	entry := stale.Seal(make([]byte, headerLen))
	header{b.loop.leading.Term, 76, tx.Now()}.put(entry)
	if err := b.loop.raft.Propose(entry); err != nil {
		b.t.Error(err)
	}
}

// An entry that was computed on another state is dropped by every replica. The leader reruns the calls.
func TestGuard(t *testing.T) {
	once := sync.Once{}
	b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
		once.Do(func() { b.proposeStale(tx) }) // an unplanned proposal takes the round's place
	}})
	runs := 0
	_, at, err := Update(context.Background(), b.Shard, func(tx *store.Tx) (struct{}, error) {
		runs++
		tx.Set([]byte("k"), fmt.Append(nil, tx.Index()))
		return struct{}{}, nil
	})
	if err != nil || runs != 2 || at.Index != 5 {
		t.Errorf("the call ran %d times, stamp %+v, %v, want 2 runs and entry 5", runs, at, err)
	}
	if got := b.get("k"); got != "5" {
		t.Errorf("the call wrote index %s, want 5", got)
	}
	if got := b.get("stale"); got != "" {
		t.Error("an entry was applied to a state other than the one it was computed on")
	}
	b.wantHooks("elected 2", "dropped", "elected 2", "committed 5")
	b.close()
}

// A change of membership in Raft's first form ends the replica: parsed as the second form, it would change nothing.
func TestMembershipChangeV1(t *testing.T) {
	once := sync.Once{}
	b := startBench(t, fixture{beforeSeal: func(b *bench, _ *store.Tx) {
		once.Do(func() {
			if err := b.loop.raft.ProposeConfChange(&pb.ConfChange{Type: pb.ConfChangeAddNode.Enum(), NodeId: new(uint64(7))}); err != nil {
				t.Error(err)
			}
		})
	}})
	if _, err := b.set("k", "v"); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrStopped) {
		t.Errorf("the concurrent call returned %v, want ErrUnknown or ErrStopped", err)
	}
	b.Stop()
	b.mu.Lock()
	if len(b.fatals) != 1 || !strings.Contains(b.fatals[0].Error(), "entry 3: a membership change in Raft's v1 format") {
		t.Errorf("fatal was called with %v, want one error about Raft's v1 format", b.fatals)
	}
	b.fatals = nil
	b.mu.Unlock()
	b.close()
}

// hold holds the loop until release is closed.
func (b *bench) hold(t *testing.T, release <-chan struct{}) {
	_, _, err := Update(context.Background(), b.Shard, func(*store.Tx) (struct{}, error) { <-release; return struct{}{}, nil })
	if err != nil {
		t.Error(err)
	}
}

func TestMisbehavingCall(t *testing.T) {
	for _, how := range []string{"panics", "writes and refuses"} {
		lines := new(logLines)
		b := startBench(t, fixture{logger: slog.New(slog.NewTextHandler(lines, nil))})
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { b.hold(t, release) }) // until the others are waiting
		bad := func(tx *store.Tx) (struct{}, error) {
			tx.Set([]byte("bad"), []byte("x"))
			if how == "panics" {
				panic("on purpose")
			}
			return struct{}{}, errRefused
		}
		for i := range 8 {
			wg.Go(func() {
				if i == 4 {
					var p *PanicError
					if _, _, err := Update(context.Background(), b.Shard, bad); !errors.As(err, &p) {
						t.Errorf("a call that %s returned %v, want a PanicError", how, err)
					} else if _, n, ok := strings.Cut(err.Error(), "had written "); ok && n != "7 bytes" {
						t.Errorf("the error reports %s written, want 7 bytes", n)
					}
				} else if _, err := b.set(fmt.Sprint("good", i), "x"); err != nil {
					t.Error(err)
				}
			})
		}
		close(release)
		wg.Wait()
		for i := range 8 {
			if got := b.get(fmt.Sprint("good", i)); i != 4 && got != "x" {
				t.Errorf("good%d is %q after a call that %s", i, got, how)
			}
		}
		if got := b.get("bad"); got != "" {
			t.Errorf("a write was kept from a call that %s", how)
		}
		b.close()
		if text := strings.Join(lines.lines, ""); strings.Contains(text, "on purpose") != (how == "panics") ||
			strings.Contains(text, "TestMisbehavingCall.func") != (how == "panics") {
			t.Errorf("after a call that %s the log has %s, want its stack if it panics", how, text)
		}
	}
}

// A call whose writes make the end of its round panic fails alone; those that shared the round with it do not.
func TestCallThatSpoilsTheEndOfItsRound(t *testing.T) {
	lines := new(logLines)
	again := false
	b := startBench(t, fixture{logger: slog.New(slog.NewTextHandler(lines, nil)), beforeSeal: func(_ *bench, tx *store.Tx) {
		if _, bad := tx.Get([]byte("bad")); bad {
			tx.Set([]byte("bad's"), []byte("x"))
			panic("the end, on purpose")
		}
		if _, first := tx.Get([]byte("good0")); first && !again {
			again = true
			panic(RunAgain{})
		}
	}})
	release := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { b.hold(t, release) }) // until the others are waiting
	for i := range 8 {
		wg.Go(func() {
			if i != 4 {
				if _, err := b.set(fmt.Sprint("good", i), "x"); err != nil {
					t.Error(err)
				}
				return
			}
			var p *PanicError
			if _, err := b.set("bad", "x"); !errors.As(err, &p) || p.Value != "the end, on purpose" {
				t.Errorf("the call to blame returned %v, want a PanicError", err)
			}
		})
	}
	close(release)
	wg.Wait()
	for i := range 8 {
		if got := b.get(fmt.Sprint("good", i)); i != 4 && got != "x" {
			t.Errorf("good%d is %q after the panic", i, got)
		}
	}
	if b.get("bad") != "" || b.get("bad's") != "" || !again {
		t.Errorf("writes were kept of a round whose end panicked")
	}
	b.close()
	if text := strings.Join(lines.lines, ""); !strings.Contains(text, "the end, on purpose") ||
		!strings.Contains(text, "TestCallThatSpoils") || strings.Contains(text, "RunAgain") {
		t.Errorf("the log has %s, want the panic with its stack", text)
	}
}

// Calls for which a round had no room run once, even if that round is dropped.
func TestCallsOfADroppedRoundRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := false
		b := startBench(t, fixture{limits: Limits{RoundBytes: 100}, beforeSeal: func(_ *bench, tx *store.Tx) {
			if !tx.Empty() && !dropped {
				dropped = true
				panic(RunAgain{})
			}
		}})
		release := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() { b.hold(t, release) }) // until the others are waiting
		synctest.Wait()
		for _, size := range []int{100, 0, 0} {
			calls.Go(func() {
				_, _, err := Update(t.Context(), b.Shard, func(tx *store.Tx) (int, error) {
					tx.Set([]byte("count"), []byte(row(tx, "count")+"1"))
					tx.Set([]byte("large"), make([]byte, size))
					return 0, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(release)
		calls.Wait()
		if got := b.get("count"); got != "111" || !dropped {
			t.Errorf("three calls counted to %q", got)
		}
		b.close()
	})
}

// A read that panics fails alone, and the log has its stack.
func TestReadThatPanics(t *testing.T) {
	lines := new(logLines)
	b := startBench(t, fixture{logger: slog.New(slog.NewTextHandler(lines, nil))})
	cause := errors.New("nobody can read this")
	if _, _, err := View(context.Background(), b.Shard, func(store.Reader) (int, error) { panic(cause) }); !errors.Is(err, cause) {
		t.Errorf("the read returned %v, want the panic", err)
	}
	if _, err := b.set("k", "v"); err != nil || b.get("k") != "v" {
		t.Errorf("after a read that panicked: %v", err)
	}
	fails := func(store.Reader) (int, error) { panic(&store.Failure{Err: cause}) }
	if _, _, err := View(context.Background(), b.Shard, fails); err == nil || errors.As(err, new(*PanicError)) {
		t.Errorf("a read of a state that has failed returned %v, want its failure", err)
	}
	b.close()
	if text := strings.Join(lines.lines, ""); !strings.Contains(text, "nobody can read this") ||
		!strings.Contains(text, "TestReadThatPanics") {
		t.Errorf("the log has %s, want the panic with its stack", text)
	}
}

// TestOwnersOfCalls: the calls of two owners that wait take turns.
func TestOwnersOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		release := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() { b.hold(t, release) })
		synctest.Wait()
		var order string
		for _, owner := range []string{"x", "x", "x", "y"} {
			calls.Go(func() {
				_, _, err := UpdateOf(t.Context(), b.Shard, owner, func(*store.Tx) (struct{}, error) {
					order += owner
					return struct{}{}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(release)
		calls.Wait()
		if order != "xyxx" {
			t.Errorf("the calls ran in the order %q, want xyxx", order)
		}
		b.close()
	})
}

// TestLoneReplicaTakesOverFromNobody: the log names a new leader only where another replica could have led.
func TestLoneReplicaTakesOverFromNobody(t *testing.T) {
	lines := new(logLines)
	b := startBench(t, fixture{logger: slog.New(slog.NewTextHandler(lines, nil))})
	if _, err := b.set("k", "v"); err != nil {
		t.Fatal(err)
	}
	b.close()
	if text := strings.Join(lines.lines, ""); strings.Contains(text, "new leader") {
		t.Errorf("the log has %s", text)
	}
}

// Calls that a round has no room for run in the next rounds, which start immediately.
func TestCallsWithoutRoomWaitForTheNextRound(t *testing.T) {
	for name, limits := range map[string]Limits{"for their bytes": {RoundBytes: 100}, "for their number": {RoundCalls: 1}} {
		synctest.Test(t, func(t *testing.T) {
			b := startBench(t, fixture{limits: limits})
			defer b.close()
			release := make(chan struct{})
			began := time.Now()
			var calls sync.WaitGroup
			calls.Go(func() { b.hold(t, release) }) // until the others are waiting
			synctest.Wait()
			indexes := make(chan uint64, 5)
			for i := range cap(indexes) {
				calls.Go(func() {
					at, err := b.set(fmt.Sprint("k", i), strings.Repeat("v", 200))
					if err != nil {
						t.Error(err)
					}
					indexes <- at.Index
				})
			}
			synctest.Wait()
			close(release)
			calls.Wait()
			close(indexes)
			seen := map[uint64]bool{}
			for at := range indexes {
				seen[at] = true
			}
			if took := time.Since(began); len(seen) != cap(indexes) || took > 0 {
				t.Errorf("without room %s, %d calls took %d rounds and %v, want one round each and no waiting", name,
					cap(indexes), len(seen), took)
			}
		})
	}
}

// A view whose caller has left is released when it is answered: the replica ends only when all are.
func TestViewWithoutACallerIsReleased(t *testing.T) {
	b := startBench(t, fixture{})
	b.onLoop(func(l *loop) {
		c := newCall(context.Background())
		c.state.Store(callLeft)
		(&read{calls: []*call{c}}).answer(l)
	})
	b.close()
}

// A caller that leaves before its call ran knows that it didn't run; one that leaves later doesn't know.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		release := make(chan struct{})
		slow := func(tx *store.Tx) (struct{}, error) {
			tx.Set([]byte("slow"), []byte("x"))
			<-release
			return struct{}{}, nil
		}
		ran := false
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wg.Go(func() {
			_, _, err := Update(ctx, b.Shard, slow)
			if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call whose context ended while it ran returned %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			_, _, err := Update(ctx, b.Shard, func(*store.Tx) (struct{}, error) { ran = true; return struct{}{}, nil })
			if errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call whose context ended before it ran returned %v", err)
			}
		})
		wg.Wait()
		close(release)
		if got := b.get("slow"); got != "x" {
			t.Errorf("the call that ran wrote %q, want x", got)
		}
		if ran {
			t.Error("a call ran although its caller was told that it did not")
		}
		b.close()
	})
}

// A single one of three replicas answers nothing.
func TestNotLeader(t *testing.T) {
	b := startBench(t, fixture{voters: []uint64{1, 2, 3}})
	var no *NotLeader
	if _, err := b.set("a", "1"); !errors.As(err, &no) || no.Leader != 0 {
		t.Errorf("Update without a leader returned %v, want NotLeader", err)
	}
	_, _, err := View(context.Background(), b.Shard, func(store.Reader) (int, error) { return 0, nil })
	if !errors.As(err, &no) {
		t.Errorf("View without a leader returned %v, want NotLeader", err)
	}
	b.close()
	b.wantHooks()
}

// A replica that can't start returns why: it has no id, something panicked, or its state is behind the start of its log.
func TestStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{limits: Limits{ReplayEntries: 5}})
		for range 20 {
			if _, err := b.set("k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.state.Flush(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); b.status().First < 10; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("after a minute, no tick has cut the log: %+v", b.status())
			}
		}
		b.close() // a cut is not synced
		log, state, stop := atRest(t, b.mem)
		defer stop()
		fresh, err := store.Open(store.Config{Dir: "/d/fresh", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer fresh.Close()
		for what, c := range map[string]struct {
			Config
			want string
		}{
			"no number":         {Config{Log: log, State: state}, "cannot use none as id"},
			"a logger panics":   {Config{Replica: 1, Log: log, State: state, Logger: slog.New(panicky{})}, "panic: no disk to log to"},
			"a state is behind": {Config{Replica: 1, Voters: []uint64{1}, Log: log, State: fresh}, "state"},
		} {
			c.ID = 1
			s, err := Start(c.Config)
			if err == nil {
				s.Stop()
			}
			if err == nil || !strings.HasPrefix(err.Error(), "shard 1: ") || !strings.Contains(err.Error(), c.want) ||
				errors.Is(err, ondisk.ErrDamaged) != (what == "a state is behind") {
				t.Errorf("%s: %v, want %q", what, err, c.want)
			}
		}
		if at, err := Reach(log, fresh, 1); err == nil || !errors.Is(err, raftlog.ErrStateBehind) {
			t.Errorf("Reach with a state behind the log = %+v, %v", at, err)
		}
		if at, err := Recover(log, fresh, 1, 1, nil); err == nil || !errors.Is(err, raftlog.ErrStateBehind) {
			t.Errorf("Recover with a state behind the log = %+v, %v", at, err)
		}
	})
}

// panicky is a log handler that panics.
type panicky struct{ slog.Handler }

func (panicky) Enabled(context.Context, slog.Level) bool { panic("no disk to log to") }

// If a loss in the log was accepted, the state and the claims get the new epoch.
func TestEpochOfTheLog(t *testing.T) {
	b := startBench(t, fixture{})
	if _, err := b.set("k", "v"); err != nil {
		t.Fatal(err)
	}
	mem := b.stopped()
	if err := mem.Remove("/d/raft/marks"); err != nil {
		t.Fatal(err)
	}
	fatal := func(err error) { t.Error(err) }
	log, err := raftlog.Open(raftlog.Config{Dir: "/d/raft", FS: mem, SegmentSize: smallSegment, AcceptDataLoss: true, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.Open(store.Config{Dir: "/d/state", FS: mem, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	elected := make(chan LeaderTerm, 1)
	s, err := Start(Config{ID: 1, Replica: 1, Log: log, State: state, Fatal: fatal,
		Hooks: Hooks{Elected: func(o LeaderTerm) { elected <- o }}})
	if err != nil {
		t.Fatal(err)
	}
	o := <-elected
	s.Stop()
	if epoch, err := state.Epoch(); err != nil || epoch != 1 || o.Epoch != 1 {
		t.Errorf("the state has epoch %d, %v, and its leader %d, want 1", epoch, err, o.Epoch)
	}
	if err := errors.Join(log.Close(), state.Close()); err != nil {
		t.Error(err)
	}
}

// Raft's log lines go to debug, except errors, and fatal ones panic.
func TestRaftLogLines(t *testing.T) {
	lines := new(logLines)
	r := raftLogger{slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})), 7}
	for level, say := range map[string][2]func(...any){
		"DEBUG": {r.Debug, func(v ...any) { r.Debugf("%v", v...) }}, "DEBUG ": {r.Info, func(v ...any) { r.Infof("%v", v...) }},
		"DEBUG  ": {r.Warning, func(v ...any) { r.Warningf("%v", v...) }}, "ERROR": {r.Error, func(v ...any) { r.Errorf("%v", v...) }},
	} {
		for i, say := range say {
			lines.lines = nil
			want := fmt.Sprintf("level=%s msg=raft shard=7 event=word-%d", strings.TrimSpace(level), i)
			if say(fmt.Sprint("word-", i)); len(lines.lines) != 1 || !strings.HasSuffix(lines.lines[0], want) {
				t.Errorf("the log has %q, want %q", lines.lines, want)
			}
		}
	}
	for _, say := range []func(...any){r.Fatal, r.Panic, func(v ...any) { r.Fatalf("%v", v...) }, func(v ...any) { r.Panicf("%v", v...) }} {
		func() {
			defer func() {
				if p := recover(); p != "broken" {
					t.Errorf("the logger panicked with %v, want broken", p)
				}
			}()
			say("broken")
		}()
	}
}

// A snapshot that can't be sent is an error of its own, and one that came with another state is refused.
func TestFailingSnapshots(t *testing.T) {
	b := startBench(t, fixture{})
	b.onLoop(func(l *loop) {
		old := l.cfg.Transport
		l.cfg.Transport = brokenTransport{}
		snap := l.cfg.State.Snapshot()
		if err := l.outgoing.write(context.Background(), &pb.Message{}, 0, snap); err == nil || !strings.Contains(err.Error(),
			"panic: no way there") {
			t.Errorf("a transport that panics: %v", err)
		}
		snap.Close()
		l.cfg.Transport = old
		at := l.cfg.State.Applied()
		m := &pb.Message{Snapshot: &pb.Snapshot{Metadata: metadata(at, l.members)}}
		if err := matches(m, at); err != nil {
			t.Errorf("a snapshot with its own position was refused: %v", err)
		}
		for i, other := range []store.Position{{Index: at.Index + 1, Term: at.Term, Conf: at.Conf}, {Index: at.Index, Term: at.Term + 1,
			Conf: at.Conf}, {Index: at.Index, Term: at.Term}} {
			if err := matches(m, other); err == nil {
				t.Errorf("a snapshot with position %d of another state was accepted", i)
			}
		}
	})
	b.close()
}

// A snapshot that is not newer than the state is not read; one for another replica is refused.
func TestUnneededSnapshot(t *testing.T) {
	b := startBench(t, fixture{})
	at, err := b.set("k", "v")
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.Message{Type: pb.MsgSnap.Enum(), To: new(uint64(1)), Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		Index: new(at.Index)}}}
	if err := b.Receive(t.Context(), m, iotest.ErrReader(errors.New("it was read"))); err != nil {
		t.Errorf("a snapshot of what the replica has returned %v", err)
	}
	m.Snapshot.Metadata.Index = new(at.Index + 1)
	if err := b.Receive(t.Context(), m, iotest.ErrReader(errors.New("it was read"))); err == nil ||
		!strings.Contains(err.Error(), "it was read") {
		t.Errorf("a newer snapshot whose body can't be read returned %v", err)
	}
	if m.To = new(uint64(2)); b.Receive(t.Context(), m, strings.NewReader("")) == nil {
		t.Error("a snapshot for another replica was accepted")
	}
	b.close()
}

type brokenTransport struct{ Transport }

func (brokenTransport) SendSnapshot(context.Context, *pb.Message, uint64, func(io.Writer) error) error {
	panic("no way there")
}

// A single failure of the disk ends the replica, even if the disk then works again; what was answered before is not lost.
func TestDiskFails(t *testing.T) {
	for _, fault := range []string{"sync", "write"} {
		var on atomic.Bool
		b := startBench(t, fixture{inject: errorfs.InjectorFunc(func(op errorfs.Op) error {
			sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
			hit := fault == "sync" && sync || fault == "write" && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt)
			if hit && strings.HasSuffix(op.Path, ".log") && on.CompareAndSwap(true, false) {
				return errorfs.ErrInjected
			}
			return nil
		})})
		if _, err := b.set("before", "x"); err != nil {
			t.Fatal(err)
		}
		on.Store(true)
		if _, err := b.set("during", "x"); !errors.Is(err, ErrUnknown) {
			t.Errorf("when %s fails Update returns %v, want ErrUnknown", fault, err)
		}
		if _, err := b.set("after", "x"); !errors.Is(err, ErrStopped) {
			t.Errorf("after %s failed Update returns %v, want ErrStopped", fault, err)
		}
		b.Stop()
		b.mu.Lock()
		if len(b.fatals) != 2 { // of the log and of the shard
			t.Errorf("when %s fails fatal was called with %v, want two calls", fault, b.fatals)
		}
		b.mu.Unlock()
		// The stores aren't closed: a process in this state exits.
		again := startBench(t, fixture{mem: b.mem.CrashClone(vfs.CrashCloneCfg{})})
		if again.get("before") != "x" || again.get("after") != "" {
			t.Errorf("after a restart before is %q and after is %q, want x and nothing", again.get("before"), again.get("after"))
		}
		again.close()
	}
}

// A state that can't be read ends the replica.
func TestStateFails(t *testing.T) {
	var on atomic.Bool
	b := startBench(t, fixture{inject: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt {
			return errorfs.ErrInjected
		}
		return nil
	})})
	for i := range 100 {
		if _, err := b.set(fmt.Sprint("k", i), strings.Repeat("v", 30_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.state.Flush(); err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	_, _, err := Update(context.Background(), b.Shard, func(tx *store.Tx) (bool, error) {
		_, ok := tx.Get([]byte("k50"))
		return ok, nil
	})
	if err == nil {
		t.Error("the call succeeded although the state can't be read")
	}
	b.Stop()
	if len(b.fatals) == 0 {
		t.Error("fatal was not called")
	}
	on.Store(false)
	if err := errors.Join(b.log.Close(), b.state.Close()); err != nil {
		t.Error(err)
	}
}

func TestShardTimeNeverFalls(t *testing.T) {
	wall, elapsed := time.Unix(2000, 0), time.Hour
	src := store.TimeSource{Wall: func() time.Time { return wall }, Elapsed: func() time.Duration { return elapsed }}
	b := startBench(t, fixture{time: src})
	first, err := b.set("a", "1")
	if err != nil {
		t.Fatal(err)
	}
	b.close()
	wall = time.Unix(1000, 0) // the wall clock was set back during the restart
	var began, before store.Time
	b = startBench(t, fixture{mem: b.mem, time: src})
	at, err := b.set("a", "2")
	if err != nil {
		t.Fatal(err)
	}
	began, before = b.loop.leading.Began, b.loop.leading.Before
	if at.Time < first.Time || before != first.Time || began < before {
		t.Errorf("shard time went from %d to %d; leadership began at %d after %d", first.Time, at.Time, began, before)
	}
	b.close()
}

func FuzzParseEntry(f *testing.F) {
	b := make([]byte, headerLen, headerLen+4)
	header{3, 4, 5}.put(b)
	f.Add(append(b, "body"...))
	f.Add([]byte{entryVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := parseEntry(b)
		if err != nil {
			return
		}
		again := make([]byte, headerLen)
		h.put(again)
		if string(append(again, body...)) != string(b) {
			t.Errorf("%x was parsed, and encoded again as %x", b, again)
		}
	})
}

// An entry of a newer release stops the replica: if it skipped the entry it would diverge from the others.
func TestUnknownEntryStops(t *testing.T) {
	b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
		if err := b.loop.raft.Propose(binary.BigEndian.AppendUint64([]byte{hashEntryVersion + 1}, 1<<60)); err != nil {
			t.Error(err)
		}
	}})
	if _, err := b.set("a", "1"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	b.Stop()
	if len(b.fatals) != 1 {
		t.Errorf("fatal was called with %v, want one call", b.fatals)
	}
	b.fatals = nil
	b.close()
}

// ReadAsync reads the state as it was when it was called. The replica ends after it.
func TestReadAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		applied, ended := make(chan struct{}), make(chan struct{})
		var read string
		b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
			if tx.Index() != 4 {
				return
			}
			b.ReadAsync(func(from store.Reader) {
				<-applied
				v, _ := from.Get([]byte("k"))
				read = string(v)
			})
		}})
		for _, v := range []string{"first", "second", "third"} {
			if _, err := b.set("k", v); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			defer close(ended)
			b.close()
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the replica stopped before the read had ended")
		default:
		}
		close(applied)
		if <-ended; read != "first" {
			t.Errorf("ReadAsync read %q, want first", read)
		}
	})
}

// A panic in ReadAsync ends the replica, like one in a hook.
func TestReadAsyncPanics(t *testing.T) {
	b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
		if tx.Index() == 3 {
			b.ReadAsync(func(store.Reader) { panic("a row that nobody can read") })
		}
	}})
	for range 2 {
		_, _ = b.set("k", "v") // which may coincide with the end of the replica
	}
	select {
	case <-b.done:
	case <-time.After(time.Minute):
		t.Fatal("the replica did not stop")
	}
	b.Stop()
	if err := errors.Join(b.log.Close(), b.state.Close()); err != nil {
		t.Error(err)
	}
	if len(b.fatals) != 1 || !strings.Contains(b.fatals[0].Error(), "a row that nobody can read") {
		t.Errorf("fatal was called with %v", b.fatals)
	}
}
