package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// world is a broker with one data shard in memory, in fake time.
type world struct {
	*Broker
	t    *testing.T
	dead *fullArchive
	log  *syncBuffer
	// spans are the broker's traces.
	spans *tracetest.SpanRecorder
	// addShard starts another data shard with one replica. The returned function removes and stops it.
	addShard func(id uint32) (stop func())
	patience *time.Timer

	// Hooks that may refuse the broker's calls to the rest of the node. Nil: nothing is refused.
	onTheWay atomic.Pointer[func(*OutboxMessage) error]
	together atomic.Bool // a message that fails on the way fails all that are sent with it
	onStep   atomic.Pointer[func(shard uint32, c StepCall) error]
	onRoom   atomic.Pointer[error]
	onQueue  atomic.Pointer[func(queue string) error]

	behind  atomic.Int64 // nanoseconds by which the wall clock was set back
	instant atomic.Int64 // the last one at which time was read
	asked   atomic.Int64 // how often it was read then
}

// elapsed returns the elapsed time, and fails a test that reads it again and again at the same instant: in fake time that would never
// end.
func (w *world) elapsed(now time.Duration) time.Duration {
	if w.instant.Swap(int64(now)) != int64(now) {
		w.asked.Store(0)
	}
	if w.asked.Add(1) == 1_000_000 {
		panic("something goes round and round until time passes")
	}
	return now
}

// syncBuffer is a log that tests read while it is being written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const (
	one = 1 // the data shard
	ns  = "default"
)

// pass lets time pass. It is the fake time of inWorld, so nobody has to wait.
func (w *world) pass(d time.Duration) {
	w.patience.Stop()
	time.Sleep(d)
	w.patience.Reset(longest)
}

// longest is how long a test may wait for something, in fake time, in addition to the time that it lets pass.
const longest = 2 * time.Hour

// smallSegment is the segment size of a node in memory. Segments of the Raft log are filled with zeros up front: at the
// size used on disk, that would cost more than most tests.
const smallSegment = 256 << 10

// patience ends a test that waits for something that never comes. Otherwise it would wait forever: the shards' clocks keep fake time going.
func patience() *time.Timer {
	return time.AfterFunc(longest, func() {
		debug.SetTraceback("all")
		panic("the test has waited for two hours of fake time; the stacks below say for what")
	})
}

// receive receives the value that a test waits for.
func receive[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(longest / 2):
		t.Errorf("timed out waiting for %s", what)
	}
	return v
}

// inWorld runs a test in a bubble of fake time.
func inWorld(t *testing.T, test func(w *world)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, log: &syncBuffer{}, spans: tracetest.NewSpanRecorder(), patience: patience()}
		defer w.patience.Stop()
		start := time.Now()
		src := store.TimeSource{Wall: func() time.Time { return time.Now().Add(-time.Duration(w.behind.Load())) },
			Elapsed: func() time.Duration { return w.elapsed(time.Since(start)) }}
		fs := vfs.NewMem()
		fatal := func(err error) { t.Error(err) }
		logs, err := raftlog.Open(raftlog.Config{Dir: "log", FS: fs, SegmentSize: smallSegment, Fatal: fatal})
		w.must(err)
		dead, err := archive.Open(archive.Config{Dir: dir})
		w.must(err)
		w.dead = &fullArchive{Archive: dead, dir: dir}
		w.Broker = New(Config{Limits: task.DefaultLimits(), Archive: w.dead, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
			Namespaces: func() []string { return []string{ns} },
			EnsureQueue: func(ctx context.Context, id uint32, ns, queue string) error {
				if refuses := w.onQueue.Load(); refuses != nil {
					if err := (*refuses)(queue); err != nil {
						return err
					}
				}
				return copyQueues(ctx, w.Broker, id, map[string]task.QueueConfig{queue: {Version: 1, Settings: task.DefaultSettings()}})
			},
			Tracer:     sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans)).Tracer("pawl"),
			SendOutbox: w.deliver, RunStep: w.step, ShardOf: func(_, queue string, _ int) uint32 { return shardOf(queue) },
			HasShard: func(_ context.Context, id uint32) (bool, error) { _, err := w.replica(id); return err == nil, nil },
			Room: func() error {
				if full := w.onRoom.Load(); full != nil {
					return *full
				}
				return nil
			}})
		w.addShard = func(id uint32) (stop func()) {
			state, err := store.Open(store.Config{Dir: fmt.Sprintf("state%d", id), FS: fs, Identity: store.Identity{Shard: id},
				Fatal: fatal})
			w.must(err)
			var group *shard.Shard
			w.must(w.Add(id, func(h shard.Hooks) (*shard.Shard, error) {
				group, err = shard.Start(shard.Config{ID: id, Replica: 1, Voters: []uint64{1}, Log: logs, State: state, Hooks: h,
					Time: src, Fatal: fatal})
				return group, err
			}))
			return func() {
				w.Remove(id)
				group.Stop()
				w.must(state.Close())
			}
		}
		stop := w.addShard(one)
		w.Start()
		w.pass(5 * time.Second) // until there is a leader
		test(w)
		w.Stop()
		stop()
		w.must(errors.Join(logs.Close(), w.dead.Close()))
	})
}

// two and three are further data shards, for tests that add them. They have the queues whose names begin with "far" and "third".
const two, three = 2, 3

func shardOf(queue string) uint32 {
	switch {
	case strings.HasPrefix(queue, "far"):
		return two
	case strings.HasPrefix(queue, "third"):
		return three
	}
	return one
}

// deliver delivers messages to their shards.
func (w *world) deliver(ctx context.Context, ns string, messages []*OutboxMessage) []Enqueued {
	out := make([]Enqueued, len(messages))
	if lost := w.onTheWay.Load(); lost != nil && w.together.Load() {
		for _, m := range messages {
			if err := (*lost)(m); err != nil {
				for i := range out {
					out[i].Err = err
				}
				return out
			}
		}
	}
	for i, m := range messages {
		if lost := w.onTheWay.Load(); lost != nil {
			if out[i].Err = (*lost)(m); out[i].Err != nil {
				continue
			}
		}
		switch {
		case m.Notice != nil:
			_, out[i].Err = RecordNotices.Call(ctx, w, GroupNotices{OnShard{m.Notice.Group.Shard(), ns}, []*Notice{m.Notice}})
		case m.Cancel != task.ID{}:
			out[i].Err = operateTask(ctx, w.Broker, Cancel, m.Cancel)
		default:
			if got, _, err := w.Enqueue(ctx, shardOf(m.Spec.Queue), ns, []task.Spec{m.Spec}); err != nil {
				out[i].Err = err
			} else {
				out[i] = got[0]
			}
		}
	}
	return out
}

// step runs a step of an operation in its shard.
func (w *world) step(ctx context.Context, shard uint32, ns string, c StepCall) (StepAnswer, error) {
	if fails := w.onStep.Load(); fails != nil {
		if err := (*fails)(shard, c); err != nil {
			return StepAnswer{}, err
		}
	}
	out, err := RunStep.Call(ctx, w, StepOrder{OnShard{shard, ns}, c})
	return out.Step, err
}

// fullArchive is an archive whose disk can be full, or slow.
type fullArchive struct {
	*archive.Archive
	dir  string
	full atomic.Bool
	slow atomic.Int64 // a duration
}

func (a *fullArchive) Append(ns string, records [][]byte, now time.Time) error {
	if a.full.Load() {
		return errors.New("no space left on device")
	}
	time.Sleep(time.Duration(a.slow.Load()))
	return a.Archive.Append(ns, records, now)
}

// archived returns what was archived of a queue, newest first.
func (w *world) archived(queue string) (all []archive.Record) {
	w.t.Helper()
	files, err := archive.FilesIn(w.dead.dir)
	w.must(err)
	for _, f := range files {
		for found, err := range f.Records() {
			w.must(err)
			if found.Queue == queue {
				all = append(all, found.Record)
			}
		}
	}
	slices.Reverse(all)
	return all
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// deadLetter creates a task that becomes a dead letter by failing in the given way.
func (w *world) deadLetter(s task.Spec, how Failing) task.ID {
	w.t.Helper()
	w.enqueue(s)
	claimed := <-w.claim(context.Background(), call(s.Queue), 0)
	w.settle(Settle{Verb: Fail, Hold: hold(claimed[0]), Fail: how})
	return claimed[0].ID
}

func (w *world) enqueue(specs ...task.Spec) []task.ID {
	w.t.Helper()
	for i := range specs {
		specs[i].Type = "job"
		specs[i].Fill()
	}
	got, _, err := w.Enqueue(context.Background(), one, ns, specs)
	w.must(err)
	var ids []task.ID
	for _, e := range got {
		w.must(e.Err)
		ids = append(ids, e.ID)
	}
	return ids
}

func call(queues ...string) ClaimCall {
	c := ClaimCall{Namespace: ns, Max: 1, MaxBytes: 1 << 20, Worker: "w"}
	for _, q := range queues {
		c.Queues = append(c.Queues, Share{Queue: q})
	}
	return c
}

// claim runs a claim in the background and sends its tasks, or nil.
func (w *world) claim(ctx context.Context, c ClaimCall, wait time.Duration) <-chan []Claimed {
	out := make(chan []Claimed, 1)
	go func() {
		got, _, err := w.Claim(ctx, one, c, wait)
		if err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		out <- got
	}()
	synctest.Wait()
	return out
}

func (w *world) settle(s Settle) Settled {
	w.t.Helper()
	got, _, err := w.Settle(context.Background(), one, []Settle{s})
	w.must(err)
	return got[0]
}

func hold(c Claimed) Hold { return Hold{Namespace: ns, ID: c.ID, Token: c.Token} }

func TestWaitingClaimsAreServedInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		first := w.claim(ctx, call("a", "b"), time.Minute)
		second := w.claim(ctx, call("b"), time.Minute)
		third := w.claim(ctx, call("b", "a"), time.Minute)
		ids := w.enqueue(task.Spec{Queue: "b"}, task.Spec{Queue: "b"}, task.Spec{Queue: "a"})
		for i, got := range []<-chan []Claimed{first, second, third} {
			tasks := <-got
			want := []task.ID{ids[2], ids[0], ids[1]}[i] // the first prefers a
			if len(tasks) != 1 || tasks[0].ID != want {
				t.Errorf("claim %d got %v, want the task %s", i, tasks, want)
			}
		}
	})
}

func TestClaimIsServedInTheEnqueuesRound(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.claim(context.Background(), call("a"), time.Minute)
		w.enqueue(task.Spec{Queue: "warm"})
		_, _, before := w.Leader(one)
		w.enqueue(task.Spec{Queue: "a"})
		<-got
		// One round creates the queue on first use, and one stores the task and serves the claim.
		if _, _, after := w.Leader(one); after > before+2 {
			t.Errorf("an enqueue and its claim took %d rounds, want at most 2", after-before)
		}
	})
}

func TestOnlyListedTypesAreClaimed(t *testing.T) {
	inWorld(t, func(w *world) {
		rare := call("a")
		rare.Types = []string{"rare"}
		other := w.claim(context.Background(), rare, time.Minute)
		any := w.claim(context.Background(), call("a"), time.Minute)
		w.enqueue(task.Spec{Queue: "a"})
		if got := <-any; len(got) != 1 {
			t.Errorf("a claim for any type got %v, want one task", got)
		}
		if got := <-other; got != nil {
			t.Errorf("a claim for another type got %v", got)
		}
	})
}

// Claims for any type and claims for a single type are served in their order of arrival, too.
func TestClaimsOfDifferentTypesAreServedInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		jobs := call("a")
		jobs.Types = []string{"job", "rare"}
		for _, order := range [][2]ClaimCall{{jobs, call("a")}, {call("a"), jobs}} {
			first := w.claim(context.Background(), order[0], time.Minute)
			second := w.claim(context.Background(), order[1], time.Minute)
			ids := w.enqueue(task.Spec{Queue: "a"})
			if got := receive(t, "the task", first); len(got) != 1 || got[0].ID != ids[0] {
				t.Errorf("the claim that came first got %v, want the first task", got)
			}
			w.enqueue(task.Spec{Queue: "a"})
			if got := receive(t, "the other task", second); len(got) != 1 {
				t.Errorf("the claim that came second got %v, want one task", got)
			}
		}
	})
}

// Await returns when there is a task, and does not claim it.
func TestAwaitClaimsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		ended := make(chan error, 1)
		go func() { ended <- w.Await(context.Background(), one, call("a")) }()
		synctest.Wait()
		w.enqueue(task.Spec{Queue: "a"})
		if err := receive(t, "the end of the wait", ended); err != nil {
			t.Error(err)
		}
		if err := w.Await(context.Background(), one, call("a")); err != nil { // it is ready
			t.Error(err)
		}
		if got := <-w.claim(context.Background(), call("a"), 0); len(got) != 1 || got[0].Exec.Fence != 1 {
			t.Errorf("a claim after Await got %v, want the task with fence 1", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.Await(ctx, one, call("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Await of an empty queue ended with %v, want a deadline error", err)
		}
	})
}

func TestClaimTimesOut(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		if got := <-w.claim(context.Background(), call("a"), 20*time.Second); got != nil || time.Since(began) != 20*time.Second {
			t.Errorf("a claim of an empty queue got %v after %s, want nothing after 20s", got, time.Since(began))
		}
		began = time.Now()
		if got := <-w.claim(context.Background(), call("a"), 0); got != nil || time.Since(began) > time.Second {
			t.Errorf("a claim without a wait got %v after %s, want nothing immediately", got, time.Since(began))
		}
		w.enqueue(task.Spec{Queue: "a"}) // no claim is waiting
		if got := <-w.claim(context.Background(), call("a"), 0); len(got) != 1 || time.Since(began) > time.Second {
			t.Errorf("a claim of a ready task got %v after %s", got, time.Since(began))
		}
	})
}

// A claim whose caller is gone must not keep its task, nor use up an attempt.
func TestAbandonedClaimIsReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 50 {
			ctx, cancel := context.WithCancel(context.Background())
			got := w.claim(ctx, call("a"), time.Minute)
			go cancel()
			ids := w.enqueue(task.Spec{Queue: "a"})
			tasks := <-got
			synctest.Wait()
			v, _, err := w.Task(context.Background(), ns, ids[0], 0)
			w.must(err)
			switch {
			case len(tasks) == 0 && (v.Exec.State != task.Ready || v.Exec.Attempt() != 1):
				t.Fatalf("the claim's caller was gone, but the task is %s at attempt %d", v.Exec.State, v.Exec.Attempt())
			case len(tasks) == 1 && v.Exec.State != task.Claimed:
				t.Fatalf("the claim returned the task, but it is %s", v.Exec.State)
			}
			err = operateTask(context.Background(), w.Broker, Cancel, ids[0])
			w.must(err)
		}
	})
}

func TestRepeatedClaimGetsTheSameTasks(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		c := call("a")
		c.ClaimKey = "k"
		for range 3 {
			if got := <-w.claim(context.Background(), c, time.Minute); len(got) != 1 || got[0].ID != ids[0] || got[0].Exec.Fence != 1 {
				t.Errorf("a repeated claim got %v, want the first task with fence 1", got)
			}
		}
		// The same if both waited for the task.
		c.ClaimKey = "l"
		c.Queues[0].Queue = "b"
		first, second := w.claim(context.Background(), c, time.Minute), w.claim(context.Background(), c, time.Minute)
		w.enqueue(task.Spec{Queue: "b"}, task.Spec{Queue: "b"})
		if a, b := <-first, <-second; len(a) != 1 || len(b) != 1 || a[0].Token != b[0].Token {
			t.Errorf("two waiting claims with the same key got %v and %v, want the same task", a, b)
		}
	})
}

func TestTimePasses(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		w.enqueue(task.Spec{Queue: "a", Delay: 10 * time.Second})
		got := <-w.claim(context.Background(), call("a"), time.Minute)
		if after := time.Since(began); len(got) != 1 || after < 10*time.Second || after > 10*time.Second+10*time.Millisecond {
			t.Fatalf("a task due in 10s was claimed after %s: %v", after, got)
		}
		// The lease ends, and the task is claimed again.
		again := <-w.claim(context.Background(), call("a"), time.Minute)
		if len(again) != 1 || again[0].Exec.Attempt() != 2 || time.Since(began) > 41*time.Second {
			t.Fatalf("after the lease expired, the task was claimed again after %s: %v", time.Since(began), again)
		}
		if s := w.settle(Settle{Verb: Ack, Hold: hold(got[0])}); !errors.Is(s.Err, &task.Error{Code: task.CodeStaleClaim,
			Reason: task.StaleReclaimed}) {
			t.Errorf("ack by the first holder: %v, want a stale claim", s.Err)
		}
		if s := w.settle(Settle{Verb: Ack, Hold: hold(again[0])}); s.Err != nil {
			t.Errorf("ack by the second holder: %v", s.Err)
		}
	})
}

// A late verb is accepted after its lease has expired as long as nobody else has claimed the task. Any other verb is refused.
func TestLateVerbs(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, c := range []struct {
			verb Verb
			want task.State
		}{{Ack, task.Discarded}, {Release, task.Ready}} {
			w.enqueue(task.Spec{Queue: "a"})
			claimed := <-w.claim(context.Background(), call("a"), 0)
			w.pass(time.Minute)
			s := Settle{Verb: c.verb, Hold: hold(claimed[0])}
			if got := w.settle(s); !errors.Is(got.Err, &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleExpired}) {
				t.Errorf("verb %d after the lease expired: %+v, want a stale claim", c.verb, got)
			}
			s.Late = true
			if got := w.settle(s); got.Err != nil || got.State != c.want {
				t.Errorf("late verb %d after the lease expired: %+v, want %s", c.verb, got, c.want)
			}
		}
	})
}

// While a leader's clock is slewed back to a wall clock that was set back, a timer fires before the shard's time has reached its
// deadline: the ticker then waits again, instead of running round after round.
func TestTimePassesByTheShardsClock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.behind.Store(int64(time.Minute))
		w.pass(90 * time.Millisecond) // some way into the interval between two checks of the clock
		began := time.Now()
		w.enqueue(task.Spec{Queue: "a", Delay: 10 * time.Second})
		got := <-w.claim(context.Background(), call("a"), time.Minute)
		if after := time.Since(began); len(got) != 1 || after < 10*time.Second || after > 10*time.Second+20*time.Millisecond {
			t.Fatalf("a task due in 10s was claimed after %s: %v", after, got)
		}
	})
}

func TestIdleBrokerSleeps(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.claim(context.Background(), call("a"), time.Hour)
		w.enqueue(task.Spec{Queue: "b", Delay: 48 * time.Hour})
		_, _, before := w.Leader(one)
		if tasks := <-got; tasks != nil {
			t.Errorf("a claim of an empty queue got %v", tasks)
		}
		if _, _, after := w.Leader(one); after != before {
			t.Errorf("an idle hour took %d rounds", after-before)
		}
	})
}

func TestResultIsWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.enqueue(task.Spec{Queue: "a"})
		type answer struct {
			v   *View
			err error
		}
		waiting := make(chan answer, 1)
		go func() {
			v, _, err := w.Task(context.Background(), ns, ids[0], time.Minute)
			waiting <- answer{v, err}
		}()
		claimed := <-w.claim(context.Background(), call("a"), 0)
		w.pass(10 * time.Second)
		began := time.Now()
		w.settle(Settle{Verb: Ack, Hold: hold(claimed[0]), Result: Result{Data: []byte("42")}})
		a := <-waiting
		w.must(a.err)
		if string(a.v.Result.Data) != "42" || time.Since(began) > time.Second {
			t.Errorf("result %q arrived %s after the ack", a.v.Result.Data, time.Since(began))
		}
		if v, _, err := w.Task(context.Background(), ns, w.enqueue(task.Spec{Queue: "a"})[0], 5*time.Second); err != nil ||
			v.Exec.State != task.Ready {
			t.Errorf("a wait for a task that did not end returned %+v, %v", v, err)
		}
	})
}

func TestHolderIsNotifiedOfLostClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		c := call("a")
		c.Max = 3
		claimed := <-w.claim(context.Background(), c, 0)
		watch, lost := w.watch()
		for _, t := range claimed {
			if !watch.Add(hold(t)) {
				w.t.Fatalf("%s is not watched", t.ID)
			}
		}
		err := operateTask(context.Background(), w.Broker, Cancel, claimed[0].ID)
		w.must(err)
		if l := <-lost; l.ID != claimed[0].ID || l.Reason != task.StaleCancelled {
			t.Errorf("after a cancel, %+v was reported as lost", l)
		}
		watch.Remove(claimed[1].ID, claimed[1].Token)
		w.pass(31 * time.Second)
		if l := <-lost; l.ID != claimed[2].ID || l.Reason != task.StaleExpired {
			t.Errorf("after the lease expired, %+v was reported as lost", l)
		}
		if len(lost) > 0 {
			t.Error("a claim was reported as lost after Remove")
		}
	})
}

func TestDeadLettersAreLoggedAndArchived(t *testing.T) {
	inWorld(t, func(w *world) {
		hour := time.Hour
		w.enqueue(task.Spec{Queue: "a", Payload: []byte(`"secret"`), MaxAttempts: 1, Retention: &hour, Headers: map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "authorization": "secret"}})
		claimed := <-w.claim(context.Background(), call("a"), 0)
		w.settle(Settle{Verb: Fail, Hold: hold(claimed[0]), Fail: Failing{Failure: Failure{Message: "smtp closed"}}})
		line := w.log.String()
		for _, want := range []string{"dead-lettered", "task_id=" + claimed[0].ID.String(), "queue=a", "type=job", "attempt=1",
			"reason=attempts_exhausted", `error="smtp closed"`, "trace_id=0af7651916cd43dd8448eb211c80319c", "span_id=b7ad6b7169203331"} {
			if !strings.Contains(line, want) {
				t.Errorf("the log line lacks %q: %s", want, line)
			}
		}
		if strings.Contains(line, "secret") || strings.Count(line, "dead-lettered") != 1 {
			t.Errorf("the log line has a secret, or there is more than one: %s", line)
		}
		w.pass(61 * time.Minute) // its retention
		if _, _, err := w.Task(context.Background(), ns, claimed[0].ID, 0); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("Task after the retention: %v, want ErrNotFound", err)
		}
		tasks := w.archived("a")
		if len(tasks) != 1 || tasks[0].ID != claimed[0].ID.String() || tasks[0].Attempts[0].Message != "smtp closed" ||
			string(tasks[0].Payload) != `"secret"` || tasks[0].Cause != "retention" {
			t.Fatalf("archived are %+v, want the dead letter", tasks)
		}
	})
}

// A dead letter whose retention has ended stays until it is in the archive.
func TestDeadLettersWaitForTheArchive(t *testing.T) {
	inWorld(t, func(w *world) {
		hour := time.Hour
		id := w.deadLetter(task.Spec{Queue: "a", MaxAttempts: 1, Retention: &hour}, Failing{})
		w.dead.full.Store(true)
		w.pass(2 * time.Hour)
		if v, _, err := w.Task(context.Background(), ns, id, 0); err != nil || v.Exec.State != task.Dead {
			t.Errorf("with a full archive disk the expired dead letter is %+v, %v", v, err)
		}
		if tasks := w.archived("a"); len(tasks) != 0 {
			t.Errorf("with a full archive disk there are %d archived tasks", len(tasks))
		}
		if line := "dead letters could not be archived and stay where they are"; !strings.Contains(w.log.String(), line) {
			t.Errorf("the log lacks %q: %s", line, w.log)
		}
		w.dead.full.Store(false)
		w.pass(archiveRetry + time.Second)
		if _, _, err := w.Task(context.Background(), ns, id, 0); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("Task after the archive had space again: %v, want ErrNotFound", err)
		}
		if tasks := w.archived("a"); len(tasks) != 1 || tasks[0].ID != id.String() {
			t.Errorf("archived are %+v, want the dead letter", tasks)
		}
	})
}

// Every way to drop a dead letter archives it first, and drops nothing if it can't.
func TestDiscardWaitsForTheArchive(t *testing.T) {
	ctx := context.Background()
	ways := map[string]func(*world, task.ID, task.State) error{
		"Discard": func(w *world, id task.ID, _ task.State) error {
			err := operateTask(ctx, w.Broker, Discard, id)
			return err
		},
		"an operation": func(w *world, _ task.ID, state task.State) error {
			_, err := RunStep.Call(ctx, w, StepOrder{OnShard{one, ns}, StepCall{Operation: task.NewID(one, 1, uint64(state)), Step: 1,
				Action: task.Discard, Filter: Filter{States: []task.State{state}}, Count: 10}})
			return err
		},
	}
	inWorld(t, func(w *world) {
		for _, state := range []task.State{task.Dead, task.Poisoned} {
			for way, discard := range ways {
				what := fmt.Sprintf("%s of a task that is %s", way, state)
				id := w.deadLetter(task.Spec{Queue: "a"}, Failing{Action: map[task.State]FailResult{task.Dead: FailDead,
					task.Poisoned: FailPoison}[state]})
				w.dead.full.Store(true)
				if err := discard(w, id, state); !errors.Is(err, task.ErrUnavailable) {
					t.Errorf("%s with a full archive: %v, want unavailable", what, err)
				}
				if v, _, err := w.Task(ctx, ns, id, 0); err != nil || v.Exec.State != state {
					t.Errorf("%s with a full archive left the task as %+v, %v", what, v.Exec, err)
				}
				w.dead.full.Store(false)
				w.must(discard(w, id, state))
				if v, _, err := w.Task(ctx, ns, id, 0); err != nil || v.Exec.State != task.Discarded {
					t.Errorf("%s left the task as %+v, %v, want it discarded", what, v.Exec, err)
				}
				if tasks := w.archived("a"); len(tasks) == 0 || tasks[0].ID != id.String() || tasks[0].Cause != "discard" {
					t.Errorf("%s archived %+v, want the dead letter", what, tasks)
				}
			}
		}
	})
}

// A command for tasks in some states leaves a task in another one as it is, and does not archive it.
func TestCommandForStates(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, verb := range []TaskVerb{Retry, Discard} {
			dead := w.deadLetter(task.Spec{Queue: "a"}, Failing{Action: FailDead})
			for _, c := range []struct {
				id     task.ID
				state  task.State
				states []task.State
				want   error
			}{
				{w.enqueue(task.Spec{Queue: "b"})[0], task.Ready, []task.State{task.Dead}, task.ErrWrongState},
				{dead, task.Dead, []task.State{task.Poisoned, task.Ready}, task.ErrWrongState},
				{dead, task.Dead, []task.State{task.Poisoned, task.Dead}, nil},
				{task.NewID(one, 1, 1), 0, []task.State{task.Dead}, task.ErrNotFound},
			} {
				before := len(w.archived("a"))
				_, err := OperateTask.Call(context.Background(), w, TaskCommand{Verb: verb, OnTask: OnTask{ns, c.id}, States: c.states})
				if !errors.Is(err, c.want) {
					t.Errorf("%s of a task that is %s, for %v: %v, want %v", verb, c.state, c.states, err, c.want)
				}
				if c.want == nil || c.state == 0 {
					continue
				}
				v, _, err := w.Task(context.Background(), ns, c.id, 0)
				if w.must(err); v.Exec.State != c.state || len(w.archived("a")) != before {
					t.Errorf("%s for %v of a task that is %s left it %s, with %d archived, %d before", verb, c.states, c.state,
						v.Exec.State, len(w.archived("a")), before)
				}
			}
		}
	})
}

// Tasks that have not ended, or have ended otherwise, are not dead letters and are not archived when they are discarded.
func TestOnlyDeadLettersAreArchived(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		w.must(operateTask(context.Background(), w.Broker, Discard, ids[0]))
		out, err := RunStep.Call(context.Background(), w, StepOrder{OnShard{one, ns}, StepCall{Operation: task.NewID(one, 1, 1), Step: 2,
			Action: task.Discard, Filter: ready("a"), Count: 10}})
		if err != nil || out.Step.Done != 1 {
			t.Errorf("discard by an operation = %+v, %v, want 1 done", out.Step, err)
		}
		for _, id := range ids {
			if v, _, err := w.Task(context.Background(), ns, id, 0); err != nil || v.Exec.State != task.Discarded {
				t.Errorf("a waiting task after its discard is %+v, %v", v, err)
			}
		}
		if tasks := w.archived("a"); len(tasks) != 0 {
			t.Errorf("archived %+v, want nothing", tasks)
		}
		for what, c := range map[string]StepCall{
			"an earlier step": {Operation: task.NewID(one, 1, 1), Step: 1, Action: task.Discard},
			"a bad cursor":    {Operation: task.NewID(one, 1, 2), Step: 1, Action: task.Discard, Cursor: []byte("x"), Count: 1},
		} {
			if out, err := RunStep.Call(context.Background(), w, StepOrder{OnShard{one, ns}, c}); err == nil {
				t.Errorf("%s was accepted: %+v", what, out)
			}
		}
	})
}

// The message by which another shard cancels a task takes effect once, and that of a caller each time.
func TestCancelMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		on := OnTask{ns, w.enqueue(task.Spec{Queue: "a"})[0]}
		cancel := TaskCommand{Verb: Cancel, OnTask: on}
		message := cancel
		message.Message = task.ID{15: 1}
		retry := TaskCommand{Verb: Retry, OnTask: on}
		for i, c := range []struct {
			call TaskCommand
			want task.State
		}{{message, task.Cancelled}, {retry, task.Ready}, {message, task.Ready}, {cancel, task.Cancelled}, {retry, task.Ready},
			{cancel, task.Cancelled}} {
			out, err := OperateTask.Call(context.Background(), w, c.call)
			if w.must(err); out.View.Exec.State != c.want {
				t.Errorf("after call %d, a %s, the task is %s, want %s", i+1, c.call.Verb, out.View.Exec.State, c.want)
			}
		}
	})
}

// Each operation on a task takes effect, even if the shard has dropped its copy of the task's queue.
func TestOrders(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		do := func(q TaskCommand) *View {
			t.Helper()
			q.Namespace, q.By = ns, task.Author{Name: "op"}
			out, err := OperateTask.Call(ctx, w, q)
			if err != nil || out.At.Index == 0 {
				t.Fatalf("%s: %+v, %v", q.Verb, out, err)
			}
			return out.View
		}
		id := w.enqueue(task.Spec{Queue: "a", Delay: time.Hour})[0]
		on := OnTask{ID: id}
		if v := do(TaskCommand{Verb: Update, OnTask: on, Edit: Edit{Priority: task.High}}); v.Exec.State != task.Scheduled ||
			v.Exec.Priority != task.High {
			t.Errorf("after Update the task is %s at priority %s", v.Exec.State, v.Exec.Priority)
		}
		if v := do(TaskCommand{Verb: RunNow, OnTask: on}); v.Exec.State != task.Ready {
			t.Errorf("after RunNow the task is %s", v.Exec.State)
		}
		if v := do(TaskCommand{Verb: Cancel, OnTask: on}); v.Exec.State != task.Cancelled {
			t.Errorf("after Cancel the task is %s", v.Exec.State)
		}
		if _, err := DropCopy.Call(ctx, w, CopyOf{OnQueue{OnShard{one, ns}, "a"}, 0}); !errors.Is(err, task.ErrWrongState) {
			t.Errorf("DropCopy of an earlier version: %v", err)
		}
		_, err := DropCopy.Call(ctx, w, CopyOf{OnQueue{OnShard{one, ns}, "a"}, math.MaxUint64})
		w.must(err)
		if v := do(TaskCommand{Verb: Retry, OnTask: on}); v.Exec.State != task.Ready {
			t.Errorf("after Retry the task is %s", v.Exec.State)
		}
		if v := do(TaskCommand{Verb: Discard, OnTask: on}); v.Exec.State != task.Discarded {
			t.Errorf("after Discard the task is %s", v.Exec.State)
		}
		if _, err := OperateTask.Call(ctx, w, TaskCommand{Verb: Retry, OnTask: OnTask{ns, task.NewID(one, 1, 1)}}); !errors.Is(err,
			task.ErrNotFound) {
			t.Errorf("Retry of an unknown task: %v, want ErrNotFound", err)
		}
		var notLeader *NotLeader
		if _, err := OperateTask.Call(ctx, w, TaskCommand{Verb: "of a later release", OnTask: OnTask{ns, id}}); !errors.As(err,
			&notLeader) {
			t.Errorf("an unknown verb: %v, want NotLeader", err)
		}
		audit, at, err := w.Audit(ctx, one, AuditQuery{Namespace: ns}, nil, 100)
		if err != nil || at.Index == 0 || len(audit.Entries) != 5 {
			t.Errorf("Audit = %+v, %v, want 5 entries", audit, err)
		}
		if problems, at, err := w.Check(ctx, one); err != nil || len(problems) > 0 || at.Index == 0 {
			t.Errorf("Check at %+v = %v, %v, want no problems", at, problems, err)
		}
	})
}

// newTasks lists each queue once, and derives the same id from a repeated request.
func TestNewTasks(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		request := task.NewID(one, 1, 1)
		tasks, queues := r.newTasks(ns, []task.Spec{{Queue: "a", RequestID: request}, {Queue: "b"}, {Queue: "a", RequestID: request},
			{Queue: "b"}, {Queue: "b", RequestID: task.ID{6: 0x40}}})
		if !slices.Equal(queues, []string{"a", "b"}) {
			t.Errorf("newTasks lists the queues %q, want a and b", queues)
		}
		if tasks[0].ID != tasks[2].ID || tasks[0].Fresh || tasks[0].ID.Shard() != one || tasks[0].ID.UnixMilli() != request.UnixMilli() {
			t.Errorf("one request gave the ids %s and %s, fresh: %v", tasks[0].ID, tasks[2].ID, tasks[0].Fresh)
		}
		var hasher engine.Hasher
		for i, n := range tasks {
			if want := hasher.Hash(&n.Spec); n.Fingerprint != want {
				t.Errorf("task %d has the fingerprint %d before its round, want %d", i, n.Fingerprint, want)
			}
		}
		if other, _ := r.newTasks("other", []task.Spec{{RequestID: request}}); other[0].ID == tasks[0].ID {
			t.Error("requests of two namespaces gave the same task id")
		}
		for _, i := range []int{1, 3, 4} {
			if n := tasks[i]; !n.Fresh || n.ID.UnixMilli() != time.Now().UnixMilli() || i > 1 && n.ID == tasks[1].ID {
				t.Errorf("task %d has the id %s, fresh: %v", i, n.ID, n.Fresh)
			}
		}
	})
}

// Only these calls must not be repeated when their outcome is unknown: each repeat would do more.
func TestCallsThatAreNotRepeatable(t *testing.T) {
	var once []string
	var parts verb.Parts
	Verbs.Serve(nil, &parts)
	for _, name := range parts.Names() {
		if !parts.Named(name).Rule().Idempotent {
			once = append(once, name)
		}
	}
	slices.Sort(once)
	if want := []string{"operate", "purge"}; !slices.Equal(once, want) {
		t.Errorf("calls that must not be repeated: %q, want %q", once, want)
	}
}

// A tick starts a trace, which is exported when the round of its task is committed.
func TestTicksAreTraced(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"a": {Version: 1, Settings: task.DefaultSettings()}}))
		spec := task.Schedule{Name: "hourly", Every: time.Hour, Task: task.Spec{Queue: "a", Type: "tick"}}
		spec.Fill()
		_, err := PutSchedule.Call(ctx, w, SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: spec, Version: 1}})
		w.must(err)
		w.pass(time.Hour + time.Second)
		got := <-w.claim(ctx, call("a"), 0)
		spans := w.spans.Ended()
		if len(got) != 1 || len(spans) != 1 || got[0].Headers["traceparent"] != fmt.Sprintf("00-%s-%s-01", spans[0].SpanContext().TraceID(),
			spans[0].SpanContext().SpanID()) {
			t.Fatalf("got %d tasks and %d spans, want one of each with the same trace context", len(got), len(spans))
		}
		said := fmt.Sprint(spans[0].Attributes())
		for _, want := range []string{"hourly", "tick", got[0].ID.String()} {
			if !strings.Contains(said, want) {
				t.Errorf("the span lacks %q: %s", want, said)
			}
		}
	})
}

// A warning is not logged when another node leads this shard now. It is logged if that concerns another shard that something waits for.
func TestHandoversLogNoWarning(t *testing.T) {
	var log syncBuffer
	r := &replica{id: one, log: slog.New(slog.NewTextHandler(&log, nil))}
	r.warn("archiving", fmt.Errorf("it failed: %w", &NotLeader{Shard: one}))
	if said := log.String(); said != "" {
		t.Errorf("a handover logged %q", said)
	}
	r.warn("bringing messages", &NotLeader{Shard: 2})
	r.warn("archiving", errors.New("the disk is full"))
	if said := log.String(); strings.Count(said, "level=WARN") != 2 || !strings.Contains(said, "shard 2") ||
		!strings.Contains(said, "the disk is full") {
		t.Errorf("other failures logged %q", said)
	}
}

// operateTask performs an operation on a task, without an author.
func operateTask(ctx context.Context, b *Broker, verb TaskVerb, id task.ID) error {
	_, err := OperateTask.Call(ctx, b, TaskCommand{Verb: verb, OnTask: OnTask{ns, id}})
	return err
}

func copyQueues(ctx context.Context, b *Broker, shard uint32, configs map[string]task.QueueConfig) error {
	_, err := CopyQueues.Call(ctx, b, QueueCopies{OnShard: OnShard{shard, ns}, Configs: configs})
	return err
}
