package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/webhook"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/test/bufconn"
)

// network connects nodes: pipes by address.
type network struct {
	t     *testing.T
	mu    sync.Mutex
	pipes map[string]*bufconn.Listener
	nodes map[string]*server
	began time.Time
	fatal func(error)                    // of nodes started from now on; nil: the test fails
	certs string                         // directory of the nodes' certificates; "": none
	wrong map[string]time.Duration       // how far the wall clocks of nodes are ahead
	admin string                         // token of all nodes, which then require tokens; "": not required
	hooks *receiver                      // of webhooks; nil: there is none
	drops atomic.Pointer[droppedAnswers] // of one node; nil: of none
	full  sync.Map                       // names of nodes whose disks have less than one byte free
	lines *logLines                      // of all nodes, from level info on; nil: not kept
	// export is the collector of all nodes; nil: there is none.
	export func(context.Context, []slog.Record) (rejected int, err error)
	slept  atomic.Int64 // how long the machines of all nodes have been suspended, in nanoseconds
}

// sleep suspends the machines of all nodes: whatever falls due meanwhile is late, and no test time passes.
func (w *network) sleep(d time.Duration) { w.slept.Add(int64(d)) }

func (w *network) sleptFor() time.Duration { return time.Duration(w.slept.Load()) }

func newNetwork(t *testing.T) *network {
	return &network{t: t, pipes: map[string]*bufconn.Listener{}, nodes: map[string]*server{}, began: time.Now()}
}

// pipe is the listener at an address.
type pipe struct {
	*bufconn.Listener
	address string
}

func (p pipe) Addr() net.Addr { return address(p.address) }

type address string

func (a address) Network() string { return "pipe" }
func (a address) String() string  { return string(a) }

func (w *network) listen(at string) pipe {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pipes[at] = bufconn.Listen(64 << 10)
	return pipe{w.pipes[at], at}
}

func (w *network) dial(ctx context.Context, at string) (net.Conn, error) {
	w.mu.Lock()
	l := w.pipes[at]
	w.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody is there")
	}
	return l.DialContext(ctx)
}

// droppedAnswers is the state of a node that receives no answers from other nodes until over is closed.
type droppedAnswers struct {
	name string
	over chan struct{}
}

// dropAnswers makes a node receive no answers from other nodes for a while. It still receives what they send by themselves.
func (w *network) dropAnswers(name string, d time.Duration) {
	now := &droppedAnswers{name, make(chan struct{})}
	w.drops.Store(now)
	time.AfterFunc(d, func() {
		w.drops.Store(nil)
		close(now.over)
	})
}

// answers is a connection from a node to another. It takes no lock, which would hide races between nodes.
type answers struct {
	net.Conn
	w      *network
	name   string
	closed chan struct{}
	close  func()
}

func (w *network) answers(conn net.Conn, name string) *answers {
	closed := make(chan struct{})
	return &answers{conn, w, name, closed, sync.OnceFunc(func() { close(closed) })}
}

func (a *answers) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if now := a.w.drops.Load(); now != nil && now.name == a.name {
		select {
		case <-now.over:
		case <-a.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

func (a *answers) Close() error {
	a.close()
	return a.Conn.Close()
}

// start starts a node with a name, joining the given addresses.
func (w *network) start(name, dir string, join ...string) *server {
	w.t.Helper()
	s, err := w.tryStart(w.t.Context(), name, dir, join...)
	if err != nil {
		w.t.Fatalf("node %s: %v", name, err)
	}
	return s
}

func (w *network) tryStart(ctx context.Context, name, dir string, join ...string) (*server, error) {
	for i := range join {
		join[i] += ":7296"
	}
	api, peer := w.listen(name+":7295"), w.listen(name+":7296")
	s := &server{t: w.t, pipe: api.Listener}
	cfg := Config{Name: name, Dir: dir, Listener: api, PeerListener: peer, Join: join, MinFree: 1,
		Time: store.TimeSource{Wall: func() time.Time { return time.Now().Add(w.wrong[name]).Add(w.sleptFor()) },
			Elapsed: func() time.Duration { return time.Since(w.began) + w.sleptFor() }}}
	cfg.diskBytes = func(string) (free, total int64, err error) {
		if _, full := w.full.Load(name); full {
			return 0, 1 << 40, nil
		}
		return 1 << 39, 1 << 40, nil
	}
	cfg.DialPeer = func(ctx context.Context, at string) (net.Conn, error) {
		conn, err := w.dial(ctx, at)
		if err != nil {
			return nil, err
		}
		return w.answers(conn, name), nil
	}
	if w.admin != "" {
		cfg.Tokens, cfg.AdminToken = TokensAlways, func() string { return w.admin }
	}
	if w.hooks != nil {
		cfg.WebhookNetworks, cfg.dialWebhook = webhook.Networks{auth.AllNamespaces: {netip.MustParsePrefix("192.0.2.0/24")}}, w.hooks.dial
	}
	if w.certs != "" {
		at := func(file string) string { return filepath.Join(w.certs, file) }
		cfg.PeerTLS = &transport.TLS{CertFile: at(name + ".crt"), KeyFile: at(name + ".key"), CAFile: at("ca.crt")}
	}
	fatal := w.fatal
	if fatal == nil {
		fatal = func(err error) { w.t.Errorf("node %s: %v", name, err) }
	}
	cfg.Fatal = func(err error) {
		if !s.crashed.Load() {
			fatal(err)
		}
	}
	if w.lines != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(w.lines, nil)).With("node", name)
	}
	if os.Getenv("PAWL_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	}
	if w.export != nil {
		cfg.Trail = trail.New(trail.Config{Log: slog.New(slog.DiscardHandler), Export: w.export})
	}
	var err error
	if s.Node, err = Start(ctx, cfg); err != nil {
		return nil, errors.Join(err, api.Close(), peer.Close())
	}
	w.mu.Lock()
	w.nodes[name] = s
	w.mu.Unlock()
	w.t.Cleanup(s.end)
	return s, nil
}

// form starts three nodes that form a cluster, and waits until each has a replica of every shard.
func (w *network) form() {
	w.t.Helper()
	all := []string{"n1", "n2", "n3"}
	var starts sync.WaitGroup
	for _, name := range all {
		dir := w.t.TempDir()
		starts.Go(func() { w.start(name, dir, append([]string(nil), all...)...) })
	}
	starts.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
	w.until("three voters each", w.replicated(3))
}

// grow starts three nodes one after the other, in directories that it returns, and waits until each has a replica of every shard.
func (w *network) grow() (dirs map[string]string) {
	w.t.Helper()
	dirs = map[string]string{}
	for _, name := range []string{"n1", "n2", "n3"} {
		dirs[name] = w.t.TempDir()
		w.start(name, dirs[name], "n1")
	}
	w.until("three voters each", w.replicated(3))
	return dirs
}

// addShard adds a second data shard, and waits until every node has a replica of it.
func (w *network) addShard() {
	w.t.Helper()
	if err := admin.New(w.anyone()).Cluster().AddShards(w.t.Context(), 2); err != nil {
		w.t.Fatal(err)
	}
	w.until("three voters each", w.replicated(3))
}

// anyone returns a client of a running node.
func (w *network) anyone() *pawl.Client {
	for _, s := range w.nodes {
		return s.client()
	}
	return nil
}

// pass lets time pass, which is instant in a bubble with fake time. Benchmarks use real time.
func pass(d time.Duration) { time.Sleep(d) }

// until waits up to a minute for a condition.
func (w *network) until(what string, is func() error) {
	w.t.Helper()
	w.within(time.Minute, 100*time.Millisecond, what, is)
}

// within waits up to limit for a condition, checking it at an interval.
func (w *network) within(limit, every time.Duration, what string, is func() error) {
	w.t.Helper()
	var last error
	for range limit / every {
		if last = is(); last == nil {
			return
		}
		pass(every)
	}
	w.t.Fatalf("%s: not in %s: %v", what, limit, last)
}

// replicated returns a condition: all shards have the given number of voters, and no change is in progress.
func (w *network) replicated(voters int) func() error {
	return func() error {
		for _, s := range w.nodes {
			o, err := s.control.Placement.Overview(w.t.Context())
			if err != nil {
				continue
			}
			for _, sh := range o.Shards {
				n := 0
				for _, m := range sh.Members {
					if m.Voter && m.Answers {
						n++
					}
				}
				if n != voters || len(sh.Members) != voters {
					return fmt.Errorf("shard %d has %d voters of %+v (%s, %s)", sh.ID, n, sh.Members, sh.Problem, sh.LastStep)
				}
			}
			return nil
		}
		return errors.New("nobody leads the system shard")
	}
}

// Three nodes form one cluster with three replicas of each shard, whichever of them is asked.
func TestForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		id := w.nodes["n1"].ClusterID()
		for name, s := range w.nodes {
			if s.ClusterID() != id {
				t.Errorf("%s is of cluster %s, n1 of %s", name, s.ClusterID(), id)
			}
			if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail")); err != nil {
				t.Errorf("enqueue at %s: %v", name, err)
			}
		}
		for name, s := range w.nodes {
			got, err := claims.New(s.client()).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Wait: time.Second})
			if err != nil || len(got) != 1 {
				t.Errorf("claim at %s: %d tasks, %v", name, len(got), err)
				continue
			}
			if err := claims.New(s.client()).Ack(t.Context(), got[0]); err != nil {
				t.Errorf("ack at %s: %v", name, err)
			}
		}
	})
}

// crash disconnects a node from the network, then stops it.
func (w *network) crash(name string) {
	w.t.Helper()
	w.mu.Lock()
	s := w.nodes[name]
	s.crashed.Store(true)
	delete(w.nodes, name)
	for _, port := range []string{":7295", ":7296"} {
		_ = w.pipes[name+port].Close()
		delete(w.pipes, name+port)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Stop(ctx)
}

// leaderOf returns the name of the node that leads a shard.
func (w *network) leaderOf(shard uint32) (name string) {
	w.t.Helper()
	w.until("a leader", func() error {
		for n, s := range w.nodes {
			if rep := s.replicas.get(shard); rep != nil {
				if _, leads := rep.shard.Now(); leads {
					name = n
					return nil
				}
			}
		}
		return fmt.Errorf("shard %d has none", shard)
	})
	return name
}

// certify makes certificates for nodes, all from one authority.
func (w *network) certify(names ...string) {
	w.t.Helper()
	w.certs = w.t.TempDir()
	ca, err := certs.NewAuthority(time.Now(), 10)
	if err != nil {
		w.t.Fatal(err)
	}
	pairs := map[string]certs.Pair{"ca": ca}
	for _, name := range names {
		if pairs[name], err = certs.NewNode(ca, time.Now(), 5, name, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, pair := range pairs {
		for file, text := range map[string][]byte{name + ".crt": pair.Cert, name + ".key": pair.Key} {
			if err := os.WriteFile(filepath.Join(w.certs, file), text, 0o600); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// Nodes with certificates form a cluster, and admit no node with another authority's certificate, or with none.
func TestFormWithCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.certify("n1", "n2", "n3", "n4")
		w.form()
		enqueue(t, w.nodes["n2"].client(), "mail")
		ours := w.certs
		for what, prepare := range map[string]func(){"another authority": func() { w.certify("n4") }, "no certificate": func() {
			w.certs = ""
		}} {
			prepare()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if _, err := w.tryStart(ctx, "n4", t.TempDir(), "n1"); err == nil {
				t.Errorf("a node with %s was let in", what)
			}
			cancel()
		}
		w.certs = ours
		w.start("n4", t.TempDir(), "n1")
	})
}

// When the leading node dies, the others continue with everything it had acknowledged.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		leader := w.leaderOf(1)
		var other *server
		for name, s := range w.nodes {
			if name != leader {
				other = s
			}
		}
		c := other.client()
		ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.crash(leader)
		got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Wait: 10 * time.Second,
			Lease: time.Minute})
		if err != nil || len(got) != 1 || got[0].ID != ref.ID {
			t.Fatalf("claim after the leader's death: %+v, %v", got, err)
		}
		t.Logf("the others served after %v", time.Since(began))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the others served only after %v", took)
		}
		if err := claims.New(c).Ack(t.Context(), got[0]); err != nil {
			t.Error(err)
		}
	})
}

// When most nodes have died, the remaining one soon reports the state of the cluster by itself; once they are back, their leader
// does.
func TestOverviewWithoutMostNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		left := w.nodes["n2"].client()
		w.crash("n1")
		w.crash("n3")
		pass(20 * time.Second)
		began := time.Now()
		info, err := admin.New(left).Cluster().Status(t.Context())
		if err != nil || time.Since(began) > overviewTime {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		var alive []string
		for _, n := range info.Nodes {
			if n.Alive {
				alive = append(alive, n.Name)
			} else if n.Silent < 15*time.Second {
				t.Errorf("%s is silent for %v", n.Name, n.Silent)
			}
		}
		if info.SeenBy != "n2" || len(info.Nodes) != 3 || strings.Join(alive, " ") != "n2" || len(info.Problems) != 4 {
			t.Errorf("seen by %q, alive %q of %d nodes: %q", info.SeenBy, alive, len(info.Nodes), info.Problems)
		}
		for _, s := range info.Shards {
			if s.Leader != "" || len(s.Members) != 3 {
				t.Errorf("shard %d: %+v", s.Shard, s)
			}
		}
		w.start("n1", dirs["n1"])
		w.until("two of three agree on who leads", func() error {
			info, err := admin.New(left).Cluster().Status(t.Context())
			if err != nil || info.SeenBy != "" {
				return fmt.Errorf("%+v, %w", info, err)
			}
			return nil
		})
	})
}

// Nodes join a standalone one, which loses nothing. Its data is then on all of them.
func TestGrowFromOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := t.TempDir()
		alone := start(t, Config{Dir: dir})
		id, _ := enqueue(t, alone.client(), "old")
		alone.end()
		w.start("n1", dir)
		w.start("n2", t.TempDir(), "n1")
		w.start("n3", t.TempDir(), "n1", "n2")
		w.until("three voters each", w.replicated(3))
		w.crash("n1")
		info, err := w.nodes["n3"].client().Task(t.Context(), id)
		if err != nil || info.State != pawltype.StateReady {
			t.Errorf("the task of before is %+v, %v", info, err)
		}
	})
}

// A node whose disk is lost comes back empty, under its old name, and is filled again. Its old number is gone.
func TestReplaceDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
		old := w.nodes["n3"].dir.Identity.Read().Node
		w.crash("n3")
		w.start("n3", t.TempDir(), "n1", "n2", "n3")
		if got := w.nodes["n3"].dir.Identity.Read().Node; got == old {
			t.Errorf("it has its old number %d again", got)
		}
		w.until("three voters each", w.replicated(3))
		w.crash("n1")
		if info, err := w.nodes["n3"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
			t.Errorf("the task is %+v, %v", info, err)
		}
	})
}

// All nodes stop and start again: everything acknowledged is there.
func TestRestartOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := map[string]string{"n1": t.TempDir(), "n2": t.TempDir(), "n3": t.TempDir()}
		startAll := func() {
			var starts sync.WaitGroup
			for name, dir := range dirs {
				starts.Go(func() { w.start(name, dir, "n1", "n2", "n3") })
			}
			starts.Wait()
		}
		startAll()
		w.until("three voters each", w.replicated(3))
		id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
		for range 2 {
			for name := range dirs {
				w.crash(name)
			}
			startAll()
			for name, s := range w.nodes {
				if info, err := s.client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
					t.Errorf("at %s the task is %+v, %v", name, info, err)
				}
			}
		}
	})
}

// A node that stops cleanly transfers its leaderships first: nobody waits for an election.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		leader := w.leaderOf(1)
		s := w.nodes[leader]
		delete(w.nodes, leader)
		began := time.Now()
		s.end()
		next := w.leaderOf(1)
		if took := time.Since(began); next == leader || took > time.Second {
			t.Errorf("%s stopped, %s leads after %v", leader, next, took)
		}
	})
}

// damages are losses in a member's directory. State is that of data shard 1.
var damages = map[string]func(t *testing.T, dir, state string){
	"marks are missing":          func(t *testing.T, dir, _ string) { lose(t, dir, "raft/marks") },
	"logs are missing":           func(t *testing.T, dir, _ string) { lose(t, dir, "raft") },
	"log in its middle":          func(t *testing.T, dir, _ string) { spoil(t, dir, "raft/log/*.log", 5_000) },
	"state is missing":           func(t *testing.T, _, state string) { lose(t, state, "") },
	"state is empty":             func(t *testing.T, _, state string) { lose(t, state, "*") },
	"tables":                     func(t *testing.T, _, state string) { spoil(t, state, "*.sst", 20) },
	"list of tables":             func(t *testing.T, _, state string) { spoil(t, state, "MANIFEST-*", 20) },
	"name of the list of tables": func(t *testing.T, _, state string) { lose(t, state, "marker.manifest.*") },
	"identity and its copy":      func(t *testing.T, dir, _ string) { spoil(t, dir, "node.json*", 20) },
	"all but the map":            func(t *testing.T, dir, _ string) { lose(t, dir, "[^c]*") },
}

// lose deletes what matches a pattern in a directory, or the directory.
func lose(t *testing.T, dir, pattern string) {
	t.Helper()
	for _, path := range glob(t, dir, pattern) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// spoil flips a bit in every file that matches a pattern.
func spoil(t *testing.T, dir, pattern string, at int) {
	t.Helper()
	for _, path := range glob(t, dir, pattern) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at < len(b) {
			b[at] ^= 0x10
		}
		put(t, path, string(b))
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("nothing matches %q in %s: %v", pattern, dir, err)
	}
	return paths
}

// A member that has lost something no longer votes. The others refill it within 30 s, no shard has fewer than three voters
// meanwhile, and the damaged data is kept.
func TestDamagedMemberIsRefilled(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "tables" && name != "logs are missing" {
				t.Skip("the others take the same way")
			}
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t)
				dir := w.grow()["n3"]
				id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
				pass(time.Second) // so that the third has it
				old := w.nodes["n3"].dir.Identity.Read()
				if err := w.nodes["n3"].replicas.get(1).state.Flush(); err != nil {
					t.Fatal(err)
				}
				w.crash("n3")
				refused(t, Config{Dir: dir, Name: "n3", AcceptDataLoss: true}, "is one of 3")
				damage(t, dir, filepath.Join(dir, datadir.StateDir(1, old.Replicas[1].Replica)))
				w.refilled("n3", dir, old.Node)
				w.crash("n1")
				if info, err := w.nodes["n3"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
					t.Errorf("the task is %+v, %v", info, err)
				}
			})
		})
	}
}

// refilled starts a member on a damaged directory, and waits until it has joined again and all its replicas vote.
func (w *network) refilled(name, dir string, old uint32) {
	w.t.Helper()
	began := time.Now()
	w.start(name, dir)
	if now := w.nodes[name].dir.Identity.Read(); now.Node == old || now.Aside != "" {
		w.t.Errorf("it is %+v", now)
	}
	if _, err := os.Stat(filepath.Join(dir, "damaged-1")); err != nil {
		w.t.Errorf("nothing was set aside: %v", err)
	}
	w.within(30*time.Second-time.Since(began), 100*time.Millisecond, "three voters each", func() error {
		w.mustHaveVoters(3)
		w.mustNotBeReadyEarly(name)
		return w.replicated(3)()
	})
	w.until("it is ready", w.nodes[name].health.ready)
	w.t.Logf("whole %v after its start", time.Since(began))
}

// mustNotBeReadyEarly fails the test if a node is ready before its replicas vote.
func (w *network) mustNotBeReadyEarly(name string) {
	w.t.Helper()
	n := w.nodes[name]
	if n.health.ready() != nil {
		return
	}
	for id := range uint32(2) {
		rep := n.replicas.get(id)
		if rep == nil {
			w.t.Errorf("%s is ready, and has no replica of shard %d", name, id)
			continue
		}
		if st, err := rep.shard.Status(w.t.Context()); err != nil || !slices.Contains(st.Voters, rep.id) {
			w.t.Errorf("%s is ready, and its replica of shard %d does not vote: %+v, %v", name, id, st, err)
		}
	}
}

// mustHaveVoters fails the test if a shard has fewer than n voters.
func (w *network) mustHaveVoters(n int) {
	w.t.Helper()
	for _, s := range w.nodes {
		for _, id := range s.replicas.all() {
			rep := s.replicas.get(id)
			if _, leads := rep.shard.Now(); !leads {
				continue
			}
			if st, err := rep.shard.Status(w.t.Context()); err == nil && len(st.Voters) < n {
				w.t.Errorf("shard %d has %d voters, want %d", id, len(st.Voters), n)
			}
		}
	}
}

// A node that asks a member which does not lead the system shard is admitted, with a number and the map.
func TestJoinThroughAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.start("n1", t.TempDir(), "n1")
		w.start("n2", t.TempDir(), "n1")
		asked := w.nodes["n2"]
		if leader := asked.replicas.systemLeader(); leader == asked.dir.Identity.Read().Node {
			t.Fatal("n2 leads the system shard")
		}
		n3 := w.start("n3", t.TempDir(), "n2")
		if number, got := n3.dir.Identity.Read().Node, n3.bootstrap.known.Load(); number != 3 || got == nil || len(got.Members()) != 3 {
			t.Errorf("it was admitted with number %d and the map %+v, want 3 and a map of three members", number, got)
		}
		w.until("three voters each", w.replicated(3))
	})
}

// No verb has the name of a method of the node's own, which would be called in its place.
func TestVerbsWithTheNamesOfMethods(t *testing.T) {
	for _, name := range ownMethods {
		var verbs verb.Table[int]
		var parts verb.Parts
		verb.NewVoid(&verbs, verb.Rule{Name: name, Where: verb.System}, func(int, context.Context, verb.Nothing) error { return nil })
		verbs.Serve(1, &parts)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a node has a verb named %q", name)
				}
			}()
			checkNames(&parts)
		}()
	}
}

// A member whose map of the cluster is lost or damaged finds the others through its replica of the system shard.
func TestLostMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := w.grow()["n3"]
		id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
		for _, damage := range []func(){func() { lose(t, dir, datadir.MapFile) }, func() {
			put(t, filepath.Join(dir, datadir.MapFile), "{")
		}} {
			old := w.nodes["n3"].dir.Identity.Read().Node
			w.crash("n3")
			damage()
			w.start("n3", dir)
			w.until("three voters each", w.replicated(3))
			if now := w.nodes["n3"].dir.Identity.Read().Node; now != old {
				t.Errorf("it has number %d, want its old one, %d", now, old)
			}
			if info, err := w.nodes["n3"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
				t.Errorf("the task is %+v, %v", info, err)
			}
		}
	})
}

// Without a replica of that shard, it finds them at the addresses of --join, and fails if there are none.
func TestLostMapWithoutSystemShard(t *testing.T) {
	bySameGoroutines(t, "TestLostMap")
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.grow()
		dir := t.TempDir()
		w.start("n4", dir, "n1")
		if err := admin.New(w.nodes["n4"].client()).Cluster().DrainNode(t.Context(), "n4"); err != nil {
			t.Fatal(err)
		}
		w.until("it holds nothing", func() error {
			row, _ := w.nodes["n4"].copy.Map().Named("n4")
			if held := w.nodes["n4"].dir.Identity.Read().Replicas; len(held) > 0 || row.State != cluster.Draining {
				return fmt.Errorf("it is %v and holds %v", row.State, held)
			}
			return nil
		})
		w.crash("n4")
		lose(t, dir, datadir.MapFile)
		if _, err := w.tryStart(t.Context(), "n4", dir); err == nil || !strings.Contains(err.Error(), "--join") {
			t.Errorf("it started without a map and without --join: %v", err)
		}
		w.start("n4", dir, "n9", "n2")
		w.until("it knows them all", func() error {
			if m := w.nodes["n4"].copy.Map(); len(m.Members()) < 4 {
				return fmt.Errorf("it knows %d nodes", len(m.Members()))
			}
			return nil
		})
	})
}

// Damage that a member finds while it runs ends it, once: the next start sets its data aside.
func TestDamageFoundLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		ended := make(chan error, 1)
		w.fatal = func(err error) { ended <- err }
		dir := w.grow()["n3"]
		id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
		pass(time.Second)
		n3 := w.nodes["n3"]
		old := n3.dir.Identity.Read()
		state := n3.replicas.get(1).state
		if err := state.Flush(); err != nil {
			t.Fatal(err)
		}
		pass(time.Second) // tables are compacted, and then stay
		spoil(t, filepath.Join(dir, datadir.StateDir(1, old.Replicas[1].Replica)), "*.sst", 20)
		if v, err := newClusterAdmin(w.nodes["n1"].Node).Verify(t.Context(), 1); err != nil || v.Replicas[2].Known {
			t.Errorf("replicas that are compared: %+v, %v", v, err)
		}
		var damage *DamageError
		if err := soon(t, ended); !errors.As(err, &damage) || !strings.HasSuffix(damage.File, ".sst") || !strings.Contains(err.Error(),
			"start it again, and the other nodes will fill it") {
			t.Errorf("it ended with %v", err)
		}
		w.crash("n3")
		w.refilled("n3", dir, old.Node)
		if info, err := w.nodes["n3"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
			t.Errorf("the task is %+v, %v", info, err)
		}
	})
}

// A node that was removed while it was down learns of it, and ends.
func TestRemovedNodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := t.TempDir()
		w.start("n1", t.TempDir(), "n1")
		w.start("n2", t.TempDir(), "n1")
		w.start("n3", dir, "n1")
		w.until("three voters each", w.replicated(3))
		w.crash("n3")
		w.until("removed", func() error {
			for _, s := range w.nodes {
				if err := s.control.Placement.Remove(t.Context(), task.Author{}, "n3", true); err == nil {
					return nil
				}
			}
			return errors.New("not yet")
		})
		ended := make(chan error, 1)
		w.fatal = func(err error) {
			select {
			case ended <- err:
			default:
			}
		}
		s := w.start("n3", dir)
		select {
		case err := <-ended:
			// Which of its first requests is answered decides the wording.
			if !strings.Contains(err.Error(), "removed") {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("it goes on")
		}
		_ = s
	})
}

// All replicas have the same state, and report so.
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		for range 20 {
			enqueue(t, w.nodes["n2"].client(), "mail")
		}
		for id := range uint32(2) {
			v, err := newClusterAdmin(w.nodes["n2"].Node).Verify(t.Context(), id)
			if err != nil || !v.Equal || len(v.Replicas) != 3 || len(v.Problems) > 0 || v.Rows == 0 {
				t.Errorf("shard %d: %+v, %v", id, v, err)
			}
			for _, r := range v.Replicas {
				if !r.Known || r.Hash == 0 {
					t.Errorf("shard %d: %+v", id, r)
				}
			}
		}
	})
}

// A shard that does not answer delays a comparison, but not forever. The error names it.
func TestVerifyWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		leader := w.leaderOf(1)
		asked := "n1"
		if leader == asked {
			asked = "n2"
		}
		n := newClusterAdmin(w.nodes[asked].Node)
		w.dropAnswers(asked, 20*time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := n.Verify(ctx, 1)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "shard 1 has no leader that answered") ||
			took > markTime {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// withTimeout distinguishes a check that took too long from a caller that no longer waits.
func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		err := withTimeout(t.Context(), checkTime, "shard 7: its numbers were not checked", hangs)
		if took := time.Since(began); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(),
			"shard 7: its numbers were not checked within 5m0s") || took != checkTime {
			t.Errorf("after %s: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := withTimeout(ctx, time.Hour, "it", hangs); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own end is told as %v", err)
		}
	})
}

// A client with the addresses of all nodes sees no error while one after the other dies and comes back.
func TestClientOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		c, err := pawl.Dial("n1:7295,n2:7295,n3:7295", pawl.DialOptions{Dialer: w.dial, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ids := map[string]bool{}
		for _, name := range []string{"n1", "n2", "n3", "n1"} {
			for i := range 20 {
				if i == 10 {
					w.crash(name)
				}
				ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
				if err != nil {
					t.Fatalf("while %s was down: %v", name, err)
				}
				ids[ref.ID] = true
			}
			w.start(name, dirs[name])
			w.until("three voters each", w.replicated(3))
		}
		for len(ids) > 0 {
			got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 100, Wait: time.Second})
			if err != nil || len(got) == 0 {
				t.Fatalf("%d tasks are missing: %v", len(ids), err)
			}
			for _, task := range got {
				if !ids[task.ID] {
					t.Errorf("task %s came twice, or from nowhere", task.ID)
				}
				delete(ids, task.ID)
			}
		}
	})
}

// With the majority gone, a stale read still returns the state, and its maximum age.
func TestStaleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		id, _ := enqueue(t, w.nodes["n1"].client(), "mail")
		for name, s := range w.nodes {
			w.until("at "+name, func() error {
				stale, err := admin.New(s.client()).Tasks().GetStale(t.Context(), id)
				if err == nil && stale.Age > 2*time.Second {
					t.Errorf("at %s it is %v old at once", name, stale.Age)
				}
				return err
			})
		}
		w.crash("n1")
		w.crash("n2")
		pass(time.Minute)
		c := w.nodes["n3"].client()
		if got, err := admin.New(c).Tasks().GetStale(t.Context(), id); err != nil || got.State != pawltype.StateReady ||
			got.Age < time.Minute || got.Age > 70*time.Second {
			t.Errorf("alone for a minute it says %+v, %v", got, err)
		}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Task(short, id); err == nil {
			t.Error("it answers as if it led")
		}
	})
}

// A node whose wall clock is wrong leads nothing: it would run tasks early.
func TestWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.wrong = map[string]time.Duration{"n1": 2 * time.Second}
		w.form() // the first by name founds the cluster, and leads at first
		w.until("three voters each", w.replicated(3))
		pass(time.Minute)
		for _, other := range []string{"n2", "n3"} {
			for shard := range uint32(2) {
				if name := w.leaderOf(shard); name == "n1" {
					t.Errorf("shard %d is led by the node with the wrong clock", shard)
				}
			}
			if other == "n3" {
				break
			}
			w.crash(other)
			pass(20 * time.Second)
		}
	})
}
