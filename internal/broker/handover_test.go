package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// group is one data shard on three nodes in memory, in fake time.
type group struct {
	t     *testing.T
	nodes map[uint64]*member // by replica

	loses atomic.Pointer[func(*pb.Message) bool] // whether a message is lost; nil: none is
}

type member struct {
	*Broker
	shard *shard.Shard
	inbox chan *pb.Message
}

// wire delivers messages to the others in the order in which they were sent.
type wire struct{ g *group }

func (w wire) Send(ms []*pb.Message) {
	loses := w.g.loses.Load()
	for _, m := range ms {
		if loses != nil && (*loses)(m) {
			continue
		}
		select {
		case w.g.nodes[m.GetTo()].inbox <- m:
		default: // lost
		}
	}
}

func (w wire) SendSnapshot(context.Context, *pb.Message, uint64, func(io.Writer) error) error {
	return errors.New("nobody needs one here")
}

func inGroup(t *testing.T, test func(g *group)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := &group{t: t, nodes: map[uint64]*member{}}
		start := time.Now()
		src := store.TimeSource{Wall: time.Now, Elapsed: func() time.Duration { return time.Since(start) }}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		fatal := func(err error) { t.Error(err) }
		for id := range uint64(3) {
			g.nodes[id+1] = &member{inbox: make(chan *pb.Message, 1000)}
		}
		var closers []func() error
		for id, m := range g.nodes {
			fs := vfs.NewMem()
			logs, err := raftlog.Open(raftlog.Config{Dir: "log", FS: fs, SegmentSize: smallSegment, Fatal: fatal})
			must(err)
			state, err := store.Open(store.Config{Dir: "state", FS: fs, Identity: store.Identity{Shard: one}, Fatal: fatal})
			must(err)
			dead, err := archive.Open(archive.Config{Dir: fmt.Sprintf("%s/%d", dir, id)})
			must(err)
			m.Broker = New(Config{Limits: task.DefaultLimits(), Archive: dead, Logger: slog.New(slog.DiscardHandler),
				Namespaces: func() []string {
					return []string{ns}
				},
				EnsureQueue: func(ctx context.Context, shard uint32, ns, queue string) error {
					return copyQueues(ctx, m.Broker, shard, map[string]task.QueueConfig{queue: {Version: 1,
						Settings: task.DefaultSettings()}})
				},
				RunStep: func(context.Context, uint32, string, StepCall) (StepAnswer, error) {
					return StepAnswer{}, task.Unavailable(time.Second, "no way there")
				},
				HasShard: func(context.Context, uint32) (bool, error) { return false, nil }})
			must(m.Add(one, func(h shard.Hooks) (*shard.Shard, error) {
				m.shard, err = shard.Start(shard.Config{ID: one, Replica: id, Voters: []uint64{1, 2, 3}, Log: logs, State: state,
					Hooks: h, Time: src, Transport: wire{g}, Fatal: fatal})
				return m.shard, err
			}))
			closers = append(closers, state.Close, logs.Close, dead.Close)
		}
		for _, m := range g.nodes {
			m.Start()
			go func() {
				for msg := range m.inbox {
					_ = m.shard.Step(msg) // messages to a stopped replica are lost
				}
			}()
		}
		time.Sleep(5 * time.Second) // until there is a leader
		test(g)
		for _, m := range g.nodes {
			m.Stop()
			m.shard.Stop()
		}
		for _, m := range g.nodes {
			close(m.inbox)
		}
		for _, end := range closers {
			must(end())
		}
	})
}

// leader returns the leading member.
func (g *group) leader() (m *member, replica uint64) {
	g.t.Helper()
	for id, m := range g.nodes {
		if lead, _ := m.shard.Leader(); lead == id {
			return m, id
		}
	}
	g.t.Fatal("no node leads the shard")
	return nil, 0
}

// pass lets fake time pass.
func (g *group) pass(d time.Duration) { time.Sleep(d) }

// handOver transfers leadership to the next member.
func (g *group) handOver() {
	g.t.Helper()
	from, id := g.leader()
	if err := from.shard.Transfer(context.Background(), id%3+1, "a test"); err != nil {
		g.t.Fatal(err)
	}
}

// Calls that wait at a leader end as soon as another one leads: they would miss a task that becomes ready there.
func TestWaitsEndWithAHandover(t *testing.T) {
	inGroup(t, func(g *group) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		old, _ := g.leader()
		s := task.Spec{Type: "job", Queue: "b"}
		s.Fill()
		made, _, err := old.Enqueue(ctx, one, ns, []task.Spec{s})
		if err != nil || made[0].Err != nil {
			t.Fatal(err, made)
		}
		waits := map[string]func() error{
			"Claim": func() error { _, _, err := old.Claim(ctx, one, call("a"), time.Minute); return err },
			"Await": func() error { return old.Await(ctx, one, call("a")) },
			"Task":  func() error { _, _, err := old.Task(ctx, ns, made[0].ID, time.Minute); return err },
		}
		ends := map[string]chan error{}
		for what, wait := range waits {
			end := make(chan error, 1)
			ends[what] = end
			go func() { end <- wait() }()
		}
		synctest.Wait()
		began := time.Now()
		g.handOver()
		for what, end := range ends {
			var notLeader *NotLeader
			err := receive(t, "the end of "+what+" at the old leader", end)
			if took := time.Since(began); !errors.As(err, &notLeader) || took > time.Second {
				t.Errorf("%s ended %v after the handover with %v, want NotLeader within a second", what, took, err)
			}
		}
	})
}

// A claim is watched only where its shard is led: elsewhere its loss would be noticed late, or not at all.
func TestWatchNeedsTheLeader(t *testing.T) {
	inGroup(t, func(g *group) {
		leader, _ := g.leader()
		hold := Hold{Namespace: ns, ID: task.NewID(one, 1, 1), Token: task.Token{Fence: 1}}
		for id, m := range g.nodes {
			w := m.WatchClaims(func(Lost) {}, func([]Hold) {})
			if watched := w.Add(hold); watched != (m == leader) {
				t.Errorf("Add at node %d (leader: %t) = %t", id, m == leader, watched)
			}
			w.Close()
		}
	})
}

// While leadership is being transferred, time can't pass in the shard. It does as soon as the leader knows that the transfer failed, and
// no retries run meanwhile.
func TestTimePassesAfterFailedHandover(t *testing.T) {
	inGroup(t, func(g *group) {
		ctx := context.Background()
		leader, id := g.leader()
		s := task.Spec{Type: "job", Queue: "a", Delay: time.Second}
		s.Fill()
		if _, _, err := leader.Enqueue(ctx, one, ns, []task.Spec{s}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		g.pass(500 * time.Millisecond) // it is due while Raft waits for the other replica
		loses := func(m *pb.Message) bool { return m.GetType() == pb.MsgTimeoutNow }
		g.loses.Store(&loses)
		if err := leader.shard.Transfer(ctx, id%3+1, "a test"); !errors.Is(err, shard.ErrNoTransfer) {
			t.Errorf("a transfer whose message was lost: %v, want ErrNoTransfer", err)
		}
		failed := time.Since(began)
		got, _, err := leader.Claim(ctx, one, call("a"), time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || took < failed || took > failed+2*tickRetry {
			t.Errorf("the handover failed after %v, the task due after a second was claimed after %v: %v, %v", failed, took, got, err)
		}
	})
}

// An operation runs only at the leader of its home shard.
func TestOperationsRunAtTheLeader(t *testing.T) {
	inGroup(t, func(g *group) {
		old, _ := g.leader()
		_, err := StartOperation.Call(context.Background(), old, NewOperation{OnShard: OnShard{one, ns},
			Spec: OperationSpec{Action: task.Cancel,
				Filter: ready("a")}})
		if err != nil {
			t.Fatal(err)
		}
		running := func(m *member) int {
			r, err := m.replica(one)
			if err != nil {
				t.Fatal(err)
			}
			r.operations.mu.Lock()
			defer r.operations.mu.Unlock()
			return len(r.operations.runs)
		}
		g.pass(time.Second)
		if running(old) != 1 {
			t.Error("the operation does not run at the leader")
		}
		g.handOver()
		g.pass(2 * stepLongRetry)
		leader, _ := g.leader()
		for id, m := range g.nodes {
			if want := map[bool]int{true: 1}[m == leader]; running(m) != want {
				t.Errorf("%d operations run on node %d, want %d", running(m), id, want)
			}
		}
	})
}

// Peek at a stopped replica returns an error of the API.
func TestPeekAtStoppedReplica(t *testing.T) {
	inGroup(t, func(g *group) {
		id := task.NewID(one, 1, 1)
		for _, m := range g.nodes {
			if _, _, _, err := m.Peek(context.Background(), ns, id); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Peek of an unknown task: %v, want ErrNotFound", err)
			}
			m.shard.Stop()
			var notLeader *NotLeader
			if _, _, _, err := m.Peek(context.Background(), ns, id); !errors.As(err, &notLeader) {
				t.Errorf("Peek after the replica stopped: %v, want NotLeader", err)
			}
			break
		}
	})
}

// A claim served by a round of unknown outcome ends as soon as another replica leads, just like one that still waits.
func TestServedClaimEndsWithItsRound(t *testing.T) {
	inGroup(t, func(g *group) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		old, replica := g.leader()
		enqueue := func() error {
			specs := []task.Spec{{Type: "job", Queue: "a"}, {Type: "job", Queue: "a"}}
			for i := range specs {
				specs[i].Fill()
			}
			_, _, err := old.Enqueue(ctx, one, ns, specs)
			return err
		}
		all := call("a")
		all.Max = 2
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		if got, _, err := old.Claim(ctx, one, all, 0); err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		ends := map[string]chan error{"the claim": make(chan error, 1), "the wait for a task": make(chan error, 1),
			"the enqueue": make(chan error, 1)}
		go func() { _, _, err := old.Claim(ctx, one, call("a"), time.Hour); ends["the claim"] <- err }()
		go func() { ends["the wait for a task"] <- old.Await(ctx, one, call("a")) }()
		synctest.Wait()
		lost := func(m *pb.Message) bool { return m.GetFrom() == replica || m.GetTo() == replica }
		g.loses.Store(&lost)
		go func() { ends["the enqueue"] <- enqueue() }()
		began := time.Now()
		for what, end := range ends {
			err := receive(t, what, end)
			var notLeader *NotLeader
			if took := time.Since(began); !errors.As(err, &notLeader) && !errors.Is(err, ErrUnknown) || took > 10*time.Second {
				t.Errorf("%s ended after %v with %v, want NotLeader or ErrUnknown within 10s", what, took, err)
			}
		}
	})
}
