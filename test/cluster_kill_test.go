package test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
	"github.com/pawlq/pawl/test/history"
)

// TestClusterKill repeatedly kills one of three servers with -9, usually the leader, and restarts it, under load.
// PAWL_CLUSTER_KILLS sets how often.
func TestClusterKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := c.work()
	kills := outages{w: w}
	for range count(t, "PAWL_CLUSTER_KILLS", 4) {
		n := c.victim()
		kills.begin()
		next := time.After(2*time.Second + rand.N(2*time.Second))
		n.kill()
		time.Sleep(rand.N(2 * time.Second)) // downtime
		n.start()
		n.ready()
		<-next
	}
	kills.report("kill -9")
	w.finish()
	c.whole()
	w.check()
}

// TestClusterPause pauses one of three servers for a while, usually the leader, and resumes it: what it answers then must not be stale.
// PAWL_CLUSTER_PAUSES sets how often.
func TestClusterPause(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := c.work()
	pauses := outages{w: w}
	for i := range count(t, "PAWL_CLUSTER_PAUSES", 4) {
		n := c.victim()
		pauses.begin()
		n.signal(syscall.SIGSTOP)
		pause := burstTime + rand.N(time.Second) // about an election timeout
		if i%2 == 0 {
			pause = time.Second + rand.N(5*time.Second)
		}
		time.Sleep(pause - burstTime)
		w.burst(w.clients[slices.Index(c.all, n)])
		time.Sleep(burstTime)
		n.signal(syscall.SIGCONT)
		n.ready()
		w.flow(&w.accepted)
	}
	pauses.report("SIGSTOP")
	w.finish()
	c.whole()
	w.check()
}

const (
	// burstSize is how many calls wait for a paused server, and burstTime for how long: it answers them first.
	burstSize = 60
	burstTime = 100 * time.Millisecond
)

// burst asks for tasks, some of which have been added or moved while the server was paused, and ends claims.
func (w *workload) burst(c *pawl.Client) {
	for n := range burstSize {
		task, claim := w.pick()
		w.running.Go(func() {
			if claim != nil && n%4 == 0 {
				r, do := verbOf(burstID, c, history.Ack, claim)
				_, _ = w.call(r, disruptTime, do)
				return
			}
			r, _ := w.get(burstID, c, task)
			w.rec.Add(r)
		})
	}
}

// signal sends a signal to the process.
func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.life.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

const (
	// answerTime is how much later than promised an answer may come: the machine may be busy.
	answerTime = 2 * time.Second
	// searchTime is longer than a node looks for a shard's leader.
	searchTime = 20 * time.Second
	shortTime  = 3 * time.Second
)

// TestClusterTwoLost kills two of three servers: calls fail within the caller's timeout, and say why. When the two are
// back, everything continues by itself.
func TestClusterTwoLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := c.work()
	id, _ := w.pick()
	leader := c.leader()
	second := c.other(leader)
	left := c.other(leader, second)
	leader.kill()
	second.kill()
	client := left.dial()

	asks := map[string]func(ctx context.Context) error{
		"an enqueue": func(ctx context.Context) error { return enqueueAt(ctx, client) },
		"a read":     func(ctx context.Context) error { _, err := client.Task(ctx, id); return err },
		"a claim": func(ctx context.Context) error {
			_, err := claims.New(client).Claim(ctx, claims.Request{Queues: pawl.Strict{"a"}})
			return err
		},
	}
	for _, limit := range []time.Duration{searchTime, shortTime} { // later callers don't have to wait that long
		var asking sync.WaitGroup
		for what, ask := range asks {
			asking.Go(func() { failing(t, what, limit, ask) })
		}
		asking.Wait()
	}
	left.refusesOverHTTP()

	back := w.rec.Now()
	leader.launch()
	second.launch()
	leader.serves()
	second.serves()
	w.flow(&w.acked)
	for _, r := range w.changes() {
		if r.ReturnNS > back {
			t.Logf("writes were acknowledged %s after the two servers were started", time.Duration(r.ReturnNS-back).Round(time.Millisecond))
			break
		}
	}
	w.finish()
	c.whole()
	w.check()
}

func enqueueAt(ctx context.Context, client *pawl.Client) error {
	_, err := client.Enqueue(ctx, pawl.RawTask{Type: "job"}, pawl.Queue("elsewhere"))
	return err
}

// failing makes a call that must fail within its timeout, and say that the shard has no leader and that the call may be repeated.
func failing(t *testing.T, what string, limit time.Duration, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	err := call(ctx)
	took := time.Since(began)
	t.Logf("%s with %s, after %s: %v", what, limit, took.Round(time.Millisecond), err)
	if took > limit+answerTime {
		t.Errorf("%s with a timeout of %s took %s", what, limit, took)
	}
	if !errors.Is(err, pawltype.ErrUnavailable) || !strings.Contains(err.Error(), "leader") {
		t.Errorf("with one server of three %s returned %v, want unavailable and the reason", what, err)
	}
}

// refusesOverHTTP checks that REST says the same.
func (n *member) refusesOverHTTP() {
	n.t.Helper()
	resp, err := http.Post("http://"+n.addr+"/api/v1/tasks", "application/json", strings.NewReader(`{"type":"job","queue":"a"}`))
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Code, Detail string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		n.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || problem.Code != "unavailable" {
		n.t.Errorf("an enqueue without a quorum returned %s, Retry-After %q, %+v", resp.Status, resp.Header.Get("Retry-After"), problem)
	}
	ready, err := http.Get("http://" + n.addr + "/readyz")
	if err != nil {
		n.t.Fatal(err)
	}
	defer ready.Body.Close()
	if ready.StatusCode != http.StatusServiceUnavailable {
		n.t.Errorf("/readyz without a quorum returned %s, want 503", ready.Status)
	}
}
