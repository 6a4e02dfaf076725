package pawl_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
)

// work runs a worker until the test ends, and counts the tasks that it runs.
func (c *nodes) work(client *pawl.Client) (done *atomic.Int64) {
	done = new(atomic.Int64)
	mux := pawl.NewMux()
	mux.HandleFunc("mail.welcome", func(context.Context, *pawl.Claim) error { done.Add(1); return nil })
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"default", "b"}, Name: "w", Concurrency: 5}).Run(ctx)
	}()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Errorf("the worker ended with %v", err)
		}
	})
	return done
}

// feed enqueues a task in each queue every 300 ms, at n1 as if by other clients, and returns the streams that were opened meanwhile.
func (c *nodes) feed(d time.Duration, queues ...string) (streams []string) {
	c.t.Helper()
	other := c.client("n1:7295", pawl.DialOptions{NoRouting: true})
	defer other.Close()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		for _, q := range queues {
			if _, err := other.Enqueue(c.t.Context(), welcome{}, pawl.Queue(q)); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for _, call := range strings.Split(c.took(), ", ") {
		if node, is := strings.CutSuffix(call, " Work"); is {
			streams = append(streams, node)
		}
	}
	return streams
}

func (c *nodes) wantStreams(what string, got []string, want ...string) {
	c.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("%s: streams were opened at %v, want %v", what, got, want)
	}
}

// A stream that was opened without knowing the leader soon moves to it. When the leader moves, the stream stays for a
// while, and follows if the new leader remains. No task is lost or run twice because of it.
func TestStreamMovesToLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		done := c.work(c.client("n1:7295"))
		c.wantStreams("at first", c.feed(500*time.Millisecond, "default"), "n1")
		c.wantStreams("after a moment", c.feed(3*time.Second, "default"), "n2")
		c.wantStreams("later", c.feed(2*time.Minute, "default"))
		c.lead(1, "n3")
		c.wantStreams("the leader has just moved", c.feed(9*time.Second, "default"))
		c.wantStreams("it stays there", c.feed(65*time.Second, "default"), "n3")
		c.lead(1, "n1")
		c.wantStreams("to the node of Dial", c.feed(75*time.Second, "default"), "n1")
		c.lead(1, "n2")
		c.feed(75*time.Second, "default")
		synctest.Wait()
		if n := int(done.Load()); n != len(c.f.tasks) {
			t.Errorf("got %d runs of %d tasks", n, len(c.f.tasks))
		}
	})
}

// The node of a stream dies: the stream continues at another node, and finally at the new leader.
func TestStreamSurvivesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		done := c.work(c.client("n1:7295"))
		c.feed(4*time.Second, "default")
		c.lead(1, "n3")
		c.kill("n2")
		before := done.Load()
		c.wantStreams("at once", c.feed(900*time.Millisecond, "default"), "n1")
		if n := done.Load() - before; n < 2 {
			t.Errorf("only %d of 3 tasks ran in the first second, want at least 2", n)
		}
		c.wantStreams("in the end", c.feed(40*time.Second, "default"), "n3")
	})
}

// If the leader refuses streams, the worker opens its stream at another node.
func TestStreamLeavesRefusingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		done := c.work(c.client("n1:7295"))
		c.feed(4*time.Second, "default")
		c.before = func(node, method string) error {
			if node == "n2" && method == "Work" {
				return errUnavailable
			}
			return nil
		}
		c.kill("n2")
		c.start("n2")
		c.feed(20*time.Second, "default")
		time.Sleep(time.Minute) // it may be pausing before its next attempt
		synctest.Wait()
		if n := int(done.Load()); n != len(c.f.tasks) {
			t.Errorf("got %d runs of %d tasks", n, len(c.f.tasks))
		}
	})
}

// A stream stays while no tasks arrive, while as many arrive from elsewhere, or while the leader can't be reached.
func TestStreamStays(t *testing.T) {
	for what, x := range map[string]struct {
		prepare func(*nodes)
		queues  []string
		opts    []pawl.DialOptions
	}{
		"idle": {queues: nil},
		"half and half": {prepare: func(c *nodes) { c.homes["b"], c.leaders[1], c.leaders[2] = 2, "n1", "n2" },
			queues: []string{"default", "b"}},
		"two and three": {prepare: func(c *nodes) { c.homes["b"], c.leaders[1], c.leaders[2] = 2, "n1", "n2" }, queues: []string{"default",
			"default", "b", "b", "b"}},
		"out of reach":    {prepare: func(c *nodes) { delete(c.pipes, "n2:7295") }, queues: []string{"default"}},
		"without direct":  {opts: []pawl.DialOptions{{NoRouting: true}}, queues: []string{"default"}},
		"nobody leads it": {prepare: func(c *nodes) { c.leaders[1] = "" }, queues: []string{"default"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := startNodes(t)
			c.lead(1, "n2")
			if x.prepare != nil {
				x.prepare(c)
			}
			c.work(c.client("n1:7295", x.opts...))
			var streams []string
			if x.queues != nil {
				streams = c.feed(2*time.Minute, x.queues...)
			} else {
				time.Sleep(50 * time.Second) // before a silent stream would be reopened
				streams = c.feed(0)
			}
			c.wantStreams(what, streams, "n1")
		})
	}
}

// Many workers don't move in lockstep.
func TestStreamsMoveOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		c.lead(1, "n2")
		var moves []time.Duration
		began := time.Now()
		c.before = func(node, method string) error {
			if node == "n2" && method == "Work" {
				c.set(func() { moves = append(moves, time.Since(began)) })
			}
			return nil
		}
		const workers = 12
		for range workers {
			c.work(c.client("n1:7295"))
		}
		c.feed(40*time.Second, slices.Repeat([]string{"default"}, workers)...)
		c.mu.Lock()
		defer c.mu.Unlock()
		most := 0
		for _, at := range moves {
			n := 0
			for _, other := range moves {
				if other >= at && other < at+100*time.Millisecond {
					n++
				}
			}
			most = max(most, n)
		}
		if len(moves) < workers/2 || most > workers/2 {
			t.Errorf("%d of %d workers moved, and %d of them within 100 ms: %v", len(moves), workers, most, moves)
		}
	})
}
