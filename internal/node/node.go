package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/metrics"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/workers"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/ui"
	"github.com/pawlq/pawl/internal/webhook"
)

// Node is a running node.
type Node struct {
	cfg        Config
	identity   *identityStore
	began      time.Time
	disk       *spaceGuard  // nil: in memory
	checkSpace func() error // returns an error when the disk is short of space; nil: never

	transport *transport.Transport
	replicas  *replicas
	images    *images
	parts
	gateway *gateway.Gateway
	pages   *ui.UI
	state

	closers []func() error // in the order of opening
	fatal   sync.Once
	stop    sync.Once
	err     error // of Stop
}

// parts are the components of a member. They exist once the node is one.
type parts struct {
	stats      *stats.Book
	metrics    *metrics.Page
	broker     *broker.Broker
	router     *router.Router
	control    *cluster.Control
	copy       *cluster.Copy
	registry   *registry.Registry
	reconciler *cluster.Reconciler
	system     *system
	auth       *auth.Authenticator
	groups     *groups

	sender     *webhook.Sender
	watches    *watches
	dispatcher *webhooks.Dispatcher
	webhooks   *webhookCalls
}

// state is shared between the goroutines of a node.
type state struct {
	known       *cluster.Map                    // as it was before the start; nil: unknown
	member      atomic.Bool                     // parts exist
	sees        atomic.Value                    // []string: introduction.Sees
	heard       atomic.Int64                    // when the system shard's leader was last heard from, in Unix nanoseconds
	waitsForOwn atomic.Bool                     // this node waits for its own changes, which arrive without delay
	offset      atomic.Int64                    // of the wall clock, in nanoseconds
	damaged     atomic.Bool                     // waits to be readmitted
	barred      atomic.Bool                     // must not be given leadership: the offset is too large, or the disk slow
	slow        atomic.Bool                     // the disk is slow
	leaving     atomic.Bool                     // stopping, and leads no more
	serves      atomic.Pointer[gateway.Gateway] // the gateway, for fail, which may be called before Start returns

	work    sync.WaitGroup  // a member's goroutines
	serving sync.WaitGroup  // serves clients
	peering sync.WaitGroup  // serves other nodes
	ctx     context.Context // of work
	end     context.CancelFunc

	debugging context.Context // of the debug server
	stopDebug context.CancelFunc
}

// ErrDamaged: the directory has lost something that was synced, and Start has changed nothing; errors.As with *DamageError says
// where. The cure is an intact copy of the directory or, for a log, Config.AcceptDataLoss.
var ErrDamaged = ondisk.ErrDamaged

// DamageError says which part of which file is lost.
type DamageError = ondisk.DamageError

// Names in the data directory: the logs, and the archive of dead letters.
const (
	logDir     = "raft"
	archiveDir = "archive"
)

// cacheSize is the memory for blocks read from disk, shared by all stores of the node.
const cacheSize = 12 << 20

// Start starts a node: a standalone one, or a member of a cluster, which it joins or founds first if its directory is new. When
// Start returns, a standalone node serves; a member serves as soon as its shards have leaders. After an error nothing is left
// running.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, images: newImages(), began: time.Now()}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.debugging, n.stopDebug = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, n.shut())
		}
	}()
	damage, err := n.openDir()
	if err == nil {
		err = n.openTransport()
	}
	if err != nil {
		return nil, err
	}
	opened := len(n.closers)
	if err = damage; err == nil {
		err = steps(ctx, n.bootstrap, n.openReplicas, n.recallMap, n.assemble, n.runReplicas)
	}
	if n.replaceable(err) {
		n.member.Store(false)
		if err := n.close(opened); err != nil {
			return nil, err
		}
		if err := n.replace(ctx, err); err != nil {
			return nil, err
		}
		err = steps(ctx, n.openReplicas, n.assemble, n.runReplicas)
	}
	if err == nil {
		err = n.startWork(ctx)
	}
	if err != nil {
		return nil, err
	}
	n.serve()
	return n, nil
}

func steps(ctx context.Context, all ...func(context.Context) error) error {
	for _, step := range all {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openDir locks and opens the data directory. Damage is what is known to be lost in it.
func (n *Node) openDir() (damage, err error) {
	if n.cfg.InMemory {
		n.cfg.Dir, err = os.MkdirTemp("", "pawl-archive-")
		if err != nil {
			return nil, err
		}
		dir := n.cfg.Dir
		n.closers = append(n.closers, func() error { return os.RemoveAll(dir) })
		n.identity, err = openIdentity("", n.cfg.Name, n.cfg.Logger)
		return nil, err
	}
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(n.cfg.Dir)
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, lock.Close)
	n.known = readMap(n.cfg.Dir)
	if err := n.checkLevel(n.known); err != nil {
		return nil, err
	}
	n.identity, err = openIdentity(n.cfg.Dir, n.cfg.Name, n.cfg.Logger)
	if errors.Is(err, ErrDamaged) {
		n.identity = &identityStore{dir: n.cfg.Dir, id: newIdentity(n.cfg.Name)}
		n.watchSpace()
		return err, nil
	}
	if err == nil {
		err = errors.Join(n.finishAside(), n.mayAcceptLoss())
	}
	if err != nil {
		return nil, err
	}
	n.watchSpace()
	return n.foundDamage(), nil
}

// watchSpace starts watching the free space of the node's disk.
func (n *Node) watchSpace() {
	free := func(dir string) (int64, error) {
		free, _, err := n.cfg.diskBytes(dir)
		return free, err
	}
	n.disk = &spaceGuard{node: n.identity.read().Name, dir: n.cfg.Dir, min: n.cfg.MinFree, free: free}
	n.checkSpace = n.disk.check
}

// openTransport connects this node with other nodes.
func (n *Node) openTransport() (err error) {
	n.transport, err = transport.New(transport.Config{Self: n.self, Handler: peerHandler{n}, Admit: n.admitPeer, Open: []string{methodHello, methodJoin},
		TLS: n.cfg.PeerTLS, Dial: n.cfg.DialPeer, Unreachable: n.unreachable, Wall: n.cfg.Time.Wall, Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, func() error { n.transport.Close(); return nil })
	if n.cfg.PeerListener != nil {
		n.peering.Go(func() {
			if err := n.transport.Serve(n.cfg.PeerListener); err != nil && n.ctx.Err() == nil {
				n.fail(fmt.Errorf("serve nodes on %s: %w", n.cfg.PeerListener.Addr(), err))
			}
		})
	}
	return nil
}

// segmentSize is the segment size of the Raft logs on disk; 0: raftlog's default. Tests use a smaller one: a segment is read whole
// when a node starts, and the race detector makes that slow.
var segmentSize int

// openReplicas opens what all replicas share.
func (n *Node) openReplicas(context.Context) error {
	if err := n.checkLogs(); err != nil {
		return err
	}
	fs, segment := vfs.Default, segmentSize
	if n.cfg.InMemory {
		fs, segment = vfs.NewMem(), 256<<10
	}
	cache := pebble.NewCache(cacheSize)
	n.closers = append(n.closers, func() error { cache.Unref(); return nil })
	me := n.identity.read()
	log, err := raftlog.Open(raftlog.Config{Dir: n.path(logDir), FS: fs, Identity: raftlog.Identity{Cluster: decodeID(me.Cluster), Node: uint64(me.Node)},
		SegmentSize: segment, AcceptDataLoss: n.cfg.AcceptDataLoss, Logger: n.cfg.Logger, Fatal: n.fail})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, log.Close)
	n.replicas = &replicas{cfg: n.cfg, identity: n.identity, nodeName: n.nameOf, fs: fs, cache: cache, log: log, path: n.path, fatal: n.fail,
		link: func(id uint32) shard.Transport { return link{id, n.transport} }, running: map[uint32]*replica{}}
	n.closers = append(n.closers, n.replicas.close)
	return n.replicas.finishLeaving()
}

// checkLogs refuses states of shards without their logs. To raftlog a missing directory is a new one, and whatever the states had
// not flushed would be lost silently.
func (n *Node) checkLogs() error {
	if n.cfg.InMemory || n.cfg.AcceptDataLoss {
		return nil
	}
	if _, err := os.Stat(n.path(logDir)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for id, h := range n.identity.read().Replicas {
		if _, err := os.Stat(n.path(stateDir(id, h.Replica))); err == nil {
			return &DamageError{What: "log", File: n.path(logDir), Reason: "it is missing, but there are states of shards"}
		}
	}
	return nil
}

// assemble creates the components between the replicas and the gateway.
func (n *Node) assemble(context.Context) error {
	dead, err := archive.Open(archive.Config{Dir: filepath.Join(n.cfg.Dir, archiveDir), MaxBytes: n.cfg.ArchiveMaxBytes,
		MaxAge: time.Duration(n.cfg.ArchiveMaxAge) * 24 * time.Hour})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, dead.Close)
	if err := n.openStats(); err != nil {
		return err
	}
	n.metrics = n.newMetrics()
	n.replicas.observe = func(id uint32) shard.Observer { return n.metrics.Shard(id) }
	n.copy = cluster.NewCopy(n.known)
	n.auth = newAuthenticator(n.cfg, n.waitsForOwn.Load)
	n.copy.OnAccess(n.auth.Replace)
	n.registry = registry.New()
	n.copy.OnQuiet(workers.TellRegistry(n.registry))
	n.broker = broker.New(broker.Config{Limits: n.cfg.Limits, Archive: dead, Logger: n.cfg.Logger, LogHeaders: n.cfg.LogHeaders, Room: n.checkSpace, Stats: n.stats, Namespaces: n.copy.Namespaces, AuditKeep: n.copy.AuditKeep, Tracer: n.cfg.tracer(),
		EnsureQueue: func(ctx context.Context, shard uint32, ns, queue string) error {
			return n.router.Queues.EnsureQueue(ctx, shard, ns, queue)
		}, SendOutbox: func(ctx context.Context, ns string, messages []*broker.OutboxMessage) []broker.Enqueued {
			return n.router.Outbox.Send(ctx, ns, messages)
		}, HasShard: func(ctx context.Context, shard uint32) (bool, error) { return n.router.HasShard(ctx, shard) },
		Workers: func(ctx context.Context, queues []broker.QueueName) []task.QueueWorkers {
			return n.router.Workers.QueueWorkers(ctx, queues)
		},
		RunStep: func(ctx context.Context, shard uint32, ns string, c broker.StepCall) (broker.StepAnswer, error) {
			out, err := broker.RunStep.Call(ctx, n.router, broker.StepOrder{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Step: c})
			return out.Step, err
		}})
	n.closers = append(n.closers, func() error { n.broker.Stop(); return nil })
	n.control = cluster.NewControl(cluster.Config{System: tables{n.replicas}, Shards: routerShards{n}, Own: n.report, Node: n.identity.read().Node, MaxQueues: n.cfg.MaxQueues, Room: n.checkSpace, Logger: n.cfg.Logger})
	n.closers = append(n.closers, func() error { n.control.Close(); return nil })
	n.router = router.New(router.Config{Node: n.identity.read().Node, Broker: router.Local(n.broker), Control: newRouterControl(n.control), Map: routerMap{n}, Registry: n.registry,
		Peers: routerPeers{n.transport}, NotSent: notSent, Stats: n.stats, SystemLeader: n.systemLeader, Logger: n.cfg.Logger})
	n.closers = append(n.closers, func() error { n.router.Close(); return nil })
	n.system = newSystem(n.router.Forwarder, n.control)
	n.groups = newGroups(n.router.Forwarder, n.replicas)
	n.openWebhooks()
	n.reconciler = cluster.NewReconciler(cluster.ReconcilerConfig{Placement: n.control.Placement, Groups: n.groups,
		ReplaceAfter: n.cfg.ReplaceAfter, Logger: n.cfg.Logger})
	n.member.Store(true)
	n.transport.SetPeers(addresses(n.known))
	return nil
}

// runReplicas starts the replicas in the directory. The first node of a cluster writes its tables.
func (n *Node) runReplicas(ctx context.Context) error {
	me := n.identity.read()
	for _, id := range slices.Sorted(maps.Keys(me.Replicas)) {
		if err := n.startReplica(id, me.Replicas[id]); err != nil {
			return err
		}
	}
	n.broker.Start()
	if me.Node != 1 || !n.alone() {
		return nil
	}
	if err := n.replicas.untilLed(ctx, systemShard); err != nil {
		return err
	}
	return n.control.Placement.Found(ctx, cluster.FirstNode{Name: me.Name, PeerAddress: n.cfg.PeerAddress, APIAddress: n.cfg.APIAddress,
		Version: n.cfg.Version, MinLevel: minLevel, MaxLevel: maxLevel}, len(me.Replicas)-1)
}

// startWork starts the work of a member. On a standalone node all shards have leaders when it returns.
func (n *Node) startWork(ctx context.Context) error {
	works := []func(context.Context){n.agent, n.reconciler.Run, n.dispatcher.Run, n.watchClock, n.auth.Watch, n.requireTokens, n.noteRefusals, n.saveStats, func(ctx context.Context) { n.copy.Follow(ctx, n.fetch, n.noteCurrent) },
		n.router.Workers.Watch}
	if n.cfg.PeerListener != nil || n.alone() {
		works = append(works, n.announce)
	}
	for _, work := range works {
		n.work.Go(func() { work(n.ctx) })
	}
	if !n.alone() {
		return nil
	}
	return n.untilReady(ctx)
}

// alone reports whether there were no other nodes, as far as was known before the start.
func (n *Node) alone() bool { return n.known == nil || len(n.known.Members()) <= 1 }

// untilReady waits until the map is known, and the shards whose only replica is here have leaders.
func (n *Node) untilReady(ctx context.Context) error {
	for n.copy.Version() == 0 {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("no map of the cluster yet: %w", err)
		}
	}
	m := n.copy.Map()
	if err := n.checkLevel(m); err != nil {
		return err
	}
	if err := n.addMissingShards(ctx, m); err != nil {
		return err
	}
	for _, id := range n.copy.Shards() {
		if row, ok := n.copy.Shard(id); ok && len(row.Replicas) == 1 && row.Replicas[0].Node == n.identity.read().Node {
			if err := n.replicas.untilLed(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Millisecond):
		return nil
	}
}

// addMissingShards adds the data shards that Config.DataShards asks for beyond the existing ones.
func (n *Node) addMissingShards(ctx context.Context, m *cluster.Map) error {
	has := m.Settings.DataShards
	switch {
	case n.cfg.DataShards == 0 || n.cfg.DataShards == has:
		return nil
	case n.cfg.DataShards < has: // tasks would become unreachable
		return fmt.Errorf("--shards (DataShards) is %d, but the cluster has %d data shards, and their number can only grow: give %d or more, or leave it out",
			n.cfg.DataShards, has, has)
	}
	by := task.Author{Name: n.cfg.Name, Face: task.FaceNode, Reason: "--shards"}
	if m.Settings.Level < cluster.PoliciesLevel {
		by = task.Author{}
	}
	if err := n.system.addShards(ctx, by, n.cfg.DataShards); err != nil {
		return err
	}
	for len(n.copy.Shards()) < n.cfg.DataShards {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("new shards: %w", err)
		}
	}
	return nil
}

// announce tells the cluster this node's address and capabilities, once in its life.
func (n *Node) announce(ctx context.Context) {
	p := cluster.Presence{Number: n.identity.read().Node, PeerAddress: n.cfg.PeerAddress, APIAddress: n.cfg.APIAddress,
		Version: n.cfg.Version, MinLevel: minLevel, MaxLevel: maxLevel}
	for {
		_, err := n.system.announce(ctx, p)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, task.ErrWrongState): // this version of the program can't work there
			n.fail(err)
			return
		}
		n.cfg.Logger.Warn("the cluster doesn't know this node's address yet", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// serve starts serving clients.
func (n *Node) serve() {
	n.pages = ui.New(ui.Config{BasePath: n.cfg.BasePath, Logger: n.cfg.Logger, OpenAPI: rest.OpenAPI, Dial: func(ctx context.Context, from string) (net.Conn, error) {
		return n.gateway.DialInProcess(ctx, from)
	}})
	n.gateway = gateway.New(gateway.Config{
		Broker: n.router, Cluster: n.router.Queues, Schedules: n.router.Schedules, Groups: n.router.Groups, Operations: n.router.Operations, Workers: n.router.Workers, Events: n.router.Events, Registry: n.registry, Stats: n.router.Stats,
		Metrics: n.metrics, Meter: n.metrics,
		Admin: newClusterAdmin(n), Auth: n.auth, Webhooks: n.webhooks, Ready: n.ready, Limits: n.cfg.Limits, Logger: n.cfg.Logger, Tracers: n.cfg.Tracers, Certificate: n.cfg.Certificate, ClientCertificates: n.cfg.ClientCertificates,
		Pages: n.pages, SQS: n.cfg.SQS, BasePath: n.cfg.BasePath, Hosts: n.cfg.Hosts, MaxConnsPerAddress: n.cfg.MaxConnsPerAddress, Version: n.cfg.Version, ClusterID: n.ClusterID(), Node: n.cfg.Name, NodeName: n.nodeName,
	})
	n.serves.Store(n.gateway)
	n.serveDebug()
	n.serving.Go(func() {
		// Server closed: Stop was called before Serve.
		if err := n.gateway.Serve(n.cfg.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("serve on %s: %w", n.cfg.Listener.Addr(), err))
		}
	})
}

func (n *Node) nodeName(number uint64) string {
	if node, ok := n.copy.Node(uint32(number)); ok {
		return node.Name
	}
	return fmt.Sprintf("node %d", number)
}

// nameOf returns the name of a replica's node, or its number if the map doesn't have it.
func (n *Node) nameOf(replica uint64) string {
	if node, ok := n.copy.Node(nodeOf(replica)); ok {
		return node.Name
	}
	return fmt.Sprint(nodeOf(replica))
}

func (n *Node) path(name string) string {
	if n.cfg.InMemory {
		return name
	}
	return filepath.Join(n.cfg.Dir, name)
}

// ClusterID returns the id of the node's cluster.
func (n *Node) ClusterID() string { return n.identity.read().Cluster }

// handOverTime is how long a stopping node tries to transfer its leaderships.
const handOverTime = 3 * time.Second

// Stop drains the node: it transfers its leaderships to other nodes, accepts no new connections, tells streams to settle what they
// hold, waits for them until ctx ends, and closes everything. It may be called more than once.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.handOver(ctx)
		n.broker.Drain()
		_ = n.pages.Close() // requests still running on its connections are cut off
		n.gateway.Shutdown(ctx)
		n.stopDebug()
		n.serving.Wait()
		n.err = n.shut()
	})
	return n.err
}

// whyStops is the reason why a stopping node leads no more.
const whyStops = "the node stops"

// handOver transfers the leadership of the shards that this node leads, where there are other replicas.
func (n *Node) handOver(ctx context.Context) {
	n.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	leads := func() bool {
		for _, id := range n.replicas.all() {
			rep := n.replicas.get(id)
			if row, ok := n.copy.Shard(id); rep == nil || !ok || len(row.Replicas) < 2 {
				continue
			}
			rep.shard.Bar(whyStops)
			if rep.shard.Leads() {
				return true
			}
		}
		return false
	}
	for leads() && pause(ctx) == nil {
	}
}

// shut ends the node's own work, and closes what was opened.
func (n *Node) shut() error {
	n.end()
	n.work.Wait()
	defer n.peering.Wait()
	return n.close(0)
}

// close closes what was opened, in reverse order, except for the first keep.
func (n *Node) close(keep int) (err error) {
	for i := len(n.closers) - 1; i >= keep; i-- {
		err = errors.Join(err, n.closers[i]())
	}
	n.closers = n.closers[:keep]
	return err
}

// fail disconnects all clients, so that they go elsewhere or reconnect, and reports why. The process then exits, which a hanging
// disk can delay for as long as it hangs.
func (n *Node) fail(err error) {
	n.fatal.Do(func() {
		_ = n.cfg.Listener.Close()
		if g := n.serves.Load(); g != nil {
			g.Abort()
		}
		n.cfg.Fatal(n.noteDamage(err))
	})
}
