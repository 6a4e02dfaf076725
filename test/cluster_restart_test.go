package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// TestClusterRollingRestart stops each server in turn as an update does, with SIGTERM, and restarts it when it has
// gone. SDK clients that know all addresses see no error, and workers run all tasks. PAWL_CLUSTER_ROUNDS sets how often
// each is restarted.
func TestClusterRollingRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	cfg := c.faultless()
	w := cfg.start(t)
	w.flow(&w.acked)
	stream := startStream(t, cfg.addrs[0])
	restarts := outages{w: w}
	for range count(t, "PAWL_CLUSTER_ROUNDS", 1) {
		for _, n := range c.all {
			began := time.Now()
			restarts.begin()
			n.end()
			ended := time.Since(began)
			n.start()
			n.ready()
			c.whole()
			t.Logf("%s: exited after %s, complete again after %s", n.name, ended.Round(time.Millisecond),
				time.Since(began).Round(time.Millisecond))
			w.flow(&w.acked)
		}
	}
	restarts.report("SIGTERM")
	w.finish()
	stream.check()
	w.check()
}

// end stops the process as an update does.
func (n *member) end() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	if status := n.exit(); status != 0 {
		n.t.Errorf("%s exited with status %d on SIGTERM, want 0", n.name, status)
	}
}

// stream is a producer and workers that use the SDK as users do.
type stream struct {
	t       *testing.T
	client  *pawl.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	drain   context.CancelFunc
	workers sync.WaitGroup
	ran     sync.Map // from payloads to *atomic.Int64
	refs    []*pawl.Ref
}

const (
	streamQueue = "streamed"
	streamPause = 5 * time.Millisecond
)

type streamed struct{ N int }

// TaskType implements pawl.Args.
func (streamed) TaskType() string { return "streamed" }

func startStream(t *testing.T, addr string) *stream {
	client, err := pawl.Dial(addr, pawl.DialOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, client: client}
	mux := pawl.NewMux()
	pawl.Handle(mux, func(_ context.Context, task *pawl.Task[streamed]) error {
		n, _ := s.ran.LoadOrStore(task.Args.N, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return nil
	})
	var producing, working context.Context
	producing, s.cancel = context.WithCancel(context.Background())
	working, s.drain = context.WithCancel(context.Background())
	for n := range workers {
		s.workers.Go(func() {
			cfg := pawl.WorkerConfig{Queues: pawl.Strict{streamQueue}, Name: fmt.Sprint("stream-", n),
				Logger: slog.New(slog.DiscardHandler)}
			if err := pawl.NewWorker(client, mux, cfg).Run(working); err != nil {
				t.Errorf("an SDK worker ended with %v", err)
			}
		})
	}
	s.running.Go(func() { s.produce(producing) })
	t.Cleanup(func() {
		s.cancel()
		s.running.Wait()
		s.drain()
		s.workers.Wait()
		_ = client.Close()
	})
	return s
}

func (s *stream) produce(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		ref, err := s.client.Enqueue(context.Background(), streamed{i}, pawl.Queue(streamQueue))
		if err != nil {
			s.t.Errorf("an SDK producer got an error: %v", err)
			continue
		}
		s.refs = append(s.refs, ref)
		select {
		case <-ctx.Done():
		case <-time.After(streamPause):
		}
	}
}

// check waits until every task has run.
func (s *stream) check() {
	s.t.Helper()
	s.cancel()
	s.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	more := 0
	for i, ref := range s.refs {
		info, err := ref.Wait(ctx)
		if err != nil || info.State != pawltype.StateSucceeded {
			s.t.Errorf("task %d of the SDK's workers: %+v, %v", i, info, err)
			if errors.Is(err, context.DeadlineExceeded) {
				return
			}
			continue
		}
		if n, ok := s.ran.Load(i); !ok {
			s.t.Errorf("task %d succeeded without having run", i)
		} else if n.(*atomic.Int64).Load() > 1 {
			more++
		}
	}
	s.t.Logf("%d tasks for the SDK's workers, %d ran more than once", len(s.refs), more)
}

// TestClusterReplaceDisk takes away the disk of one server. It comes back empty, under its name, and is refilled by the
// others: then it can stand in for the next one that is lost.
func TestClusterReplaceDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := c.work()
	lost := c.victim()
	began := time.Now()
	lost.kill()
	if err := os.RemoveAll(lost.data); err != nil {
		t.Fatal(err)
	}
	lost.start()
	joined := time.Since(began)
	c.whole()
	whole := time.Since(began)
	t.Logf("the server rejoined %s after it was lost, and the cluster was complete after %s", joined.Round(time.Millisecond),
		whole.Round(time.Millisecond))

	next := c.leader()
	if next == lost {
		next = c.other(lost)
	}
	kills := outages{w: w}
	kills.begin()
	next.kill()
	w.flow(&w.acked)
	kills.report("a server lost beside the one that came back")
	next.start()
	w.flow(&w.acked)
	w.finish()
	c.whole()
	w.check()
}

// hangBudget is the time in which writes must continue after a leader's disk has stopped responding.
const hangBudget = 8 * time.Second

// TestClusterHungDisk delays the syncs of the leader's log: another server must take over.
func TestClusterHungDisk(t *testing.T) {
	t.Parallel()
	needStrace(t)
	c := newCluster(t)
	w := c.work()
	n := c.leader()
	hangs := n.inject(fault{calls: "fsync,fdatasync", does: "delay_enter=600000000:when=1+", file: n.file("raft/log/*.log")})
	eventually(t, "a sync hangs", startLimit, func() bool { _, _, ok := hangs.first(hungCall); return ok })
	hung := outages{w: w}
	hung.begin()
	began := w.rec.Now()
	eventually(t, "another server leads", startLimit, func() bool { return c.leader() != n })
	taken := time.Duration(w.rec.Now() - began)
	w.flow(&w.acked)
	t.Logf("another server became leader after %s", taken.Round(time.Millisecond))
	hung.report("the leader's disk hangs")
	budget(t, "gap in answered writes", hung.gaps()[0], hangBudget)
	hangs.lift()
	n.kill() // unless it has given up by itself
	n.start()
	w.flow(&w.acked)
	w.finish()
	c.whole()
	w.check()
}
