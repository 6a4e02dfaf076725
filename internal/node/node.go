package node

import (
	"context"
	"encoding/hex"
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

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/metrics"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/evidence"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/internal/ui"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/webhook"
)

// Node is a running node.
type Node struct {
	cfg        Config
	began      time.Time
	run        string // identifies this process to other nodes
	dir        *datadir.Dir
	disk       *datadir.Space // nil: in memory
	checkSpace func() error   // returns an error when the disk is short of space; nil: never
	bootstrap  *bootstrap
	witness    *members.Witness
	refresher  *members.Refresher
	certs      certs.Watcher
	waits      waits

	transport *transport.Transport
	replicas  *replicas
	parts
	member  atomic.Bool     // parts exist
	waiting *listen.Waiting // answers until the gateway does, which may take as long as other nodes are missing
	gateway *gateway.Gateway
	pages   *ui.UI
	debug   *listen.DebugServer
	serves  atomic.Pointer[gateway.Gateway] // the gateway, for fail, which may be called before Start returns

	work    sync.WaitGroup  // a member's goroutines
	serving sync.WaitGroup  // serves clients
	peering sync.WaitGroup  // serves other nodes
	ctx     context.Context // of work
	end     context.CancelFunc

	closers []func() error // in the order of opening
	fatal   sync.Once
	stop    sync.Once
	err     error // of Stop
}

// parts are the components of a member. They exist once the node is one.
type parts struct {
	stats      *stats.File
	metrics    *metrics.Page
	archive    *archive.Archive
	broker     *broker.Broker
	router     *router.Router
	control    *cluster.Control
	copy       *cluster.Copy
	registry   *registry.Registry
	reconciler *cluster.Reconciler
	auth       *auth.Authenticator
	evidence   evidence.Recorder
	groups     groups
	agent      *agent
	heartbeat  *heartbeat
	health     *health
	images     *images
	comparer   *members.Comparer

	watches    watches
	dispatcher *webhooks.Dispatcher
	webhooks   *webhook.Sender
}

// ErrDamaged: the directory has lost something that was synced, and Start has changed nothing; errors.As with *DamageError says
// where. The cure is an intact copy of the directory or, for a log, Config.AcceptDataLoss.
var ErrDamaged = ondisk.ErrDamaged

// DamageError says which part of which file is lost.
type DamageError = ondisk.DamageError

// cacheSize is the memory for blocks read from disk, shared by all stores of the node.
const cacheSize = 12 << 20

// Start starts a node: a standalone one, or a member of a cluster, which it joins or founds first if its directory is new. When
// Start returns, a standalone node serves; a member serves as soon as its shards have leaders. After an error nothing is left
// running.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, errors.Join(err, cfg.Listener.Close())
	}
	n := &Node{cfg: cfg, began: time.Now(), run: datadir.NewNonce(), refresher: members.NewRefresher()}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.waiting = listen.Wait(listen.Config{Logger: n.cfg.Logger, Certificate: n.cfg.Certificate,
		ClientCertificates: n.cfg.ClientCertificates, MaxConnsPerAddress: n.cfg.MaxConnsPerAddress, WriteTimeout: rest.AnswerTimeout},
		n.cfg.Listener, n.cfg.BasePath, n.waits.text, sqs.Refuse)
	defer func() {
		if err != nil {
			n.waiting.Close()
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
		err = steps(ctx, n.bootstrap.run, n.checkReplicas, n.bootstrap.findMap, n.askOthers, n.openReplicas, n.assemble, n.runReplicas)
	}
	if n.bootstrap.replaceable(ctx, err) {
		n.member.Store(false)
		if err := n.close(opened); err != nil {
			return nil, err
		}
		if err := n.bootstrap.replace(ctx, err); err != nil {
			return nil, err
		}
		err = steps(ctx, n.checkReplicas, n.openReplicas, n.assemble, n.runReplicas)
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
		n.dir = &datadir.Dir{FS: vfs.NewMem(), Path: dir, InMemory: true, Logger: n.cfg.Logger}
		n.bootstrap = &bootstrap{cfg: n.cfg, dir: n.dir, waits: &n.waits}
		n.dir.Identity, err = datadir.OpenIdentity(nil, "", n.cfg.Name, n.cfg.Logger)
		return nil, err
	}
	fs := n.cfg.fs
	if err := ondisk.MakeDir(fs, n.cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := datadir.Lock(fs, n.cfg.Dir)
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, lock.Close)
	n.dir = &datadir.Dir{FS: fs, Path: n.cfg.Dir, AcceptDataLoss: n.cfg.AcceptDataLoss, Logger: n.cfg.Logger}
	n.bootstrap = &bootstrap{cfg: n.cfg, dir: n.dir, waits: &n.waits}
	of, known := members.Saved(n.dir)
	n.bootstrap.of = of
	n.bootstrap.known.Store(known)
	if err := checkLevel(n.cfg.Name, n.bootstrap.known.Load()); err != nil {
		return nil, err
	}
	n.dir.Identity, err = datadir.OpenIdentity(fs, n.cfg.Dir, n.cfg.Name, n.cfg.Logger)
	if errors.Is(err, ErrDamaged) {
		n.dir.Identity = datadir.NewIdentityStore(fs, n.cfg.Dir, datadir.NewIdentity(n.cfg.Name))
		if owner, ok := raftlog.Owner(fs, n.dir.File(datadir.LogDir)); ok && n.bootstrap.of != hex.EncodeToString(owner.Cluster[:]) {
			n.bootstrap.known.Store(nil) // it is the map of another cluster
		}
		n.watchSpace()
		return err, nil
	}
	if err == nil {
		err = n.dir.FinishAside()
	}
	if err != nil {
		return nil, err
	}
	if me := n.dir.Identity.Read(); me.Member() && n.bootstrap.of != me.Cluster {
		n.bootstrap.known.Store(nil)
	}
	n.watchSpace()
	return n.dir.FoundDamage(), nil
}

// watchSpace starts watching the free space of the node's disk.
func (n *Node) watchSpace() {
	free := func(dir string) (int64, error) {
		free, _, err := n.cfg.diskBytes(dir)
		return free, err
	}
	n.disk = &datadir.Space{Node: n.dir.Identity.Read().Name, Dir: n.cfg.Dir, Min: n.cfg.MinFree, Free: free, Logger: n.cfg.Logger}
	n.checkSpace = n.disk.Check
}

// openTransport connects this node with other nodes.
func (n *Node) openTransport() (err error) {
	peers := peerHandler{n}
	n.witness = members.OpenWitness(n.dir)
	n.transport, err = transport.New(transport.Config{Self: peers.self,
		Handler: peers, Admit: peers.admitPeer, Refused: peers.refused, Open: []string{methodHello, methodJoin},
		TLS: n.cfg.PeerTLS, Dial: n.cfg.DialPeer, Unreachable: peers.unreachable, Wall: n.cfg.Time.Wall, Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.bootstrap.transport = n.transport
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

// checkReplicas reads what the replicas have on disk, and refuses what is damaged or another's. Until openReplicas nothing is changed, so
// that a refused start can be repeated with what was lost put back.
func (n *Node) checkReplicas(context.Context) error {
	n.waits.set("the node opens its data")
	n.bootstrap.recallMap()
	if err := n.bootstrap.mayAcceptLoss(); err != nil {
		return err
	}
	segment := segmentSize
	if n.cfg.InMemory {
		segment = 256 << 10
	}
	cache := pebble.NewCache(cacheSize)
	n.closers = append(n.closers, func() error { cache.Unref(); return nil })
	me := n.dir.Identity.Read()
	log, err := raftlog.Load(raftlog.Config{Dir: n.dir.File(datadir.LogDir), FS: n.dir.FS, Identity: raftlog.Identity{
		Cluster: datadir.DecodeID(me.Cluster), Node: uint64(me.Node)},
		SegmentSize: segment, MustExist: me.Ran(), AcceptDataLoss: n.cfg.AcceptDataLoss, Logger: n.cfg.Logger, Fatal: n.fail})
	if err != nil {
		return foreign(err)
	}
	n.closers = append(n.closers, log.Close)
	n.replicas = &replicas{cfg: n.cfg, dir: n.dir, identity: n.dir.Identity, cache: cache, log: log, fatal: n.fail,
		link: func(id uint32) shard.Transport { return link{id, n.transport} }, running: map[uint32]*replica{},
		checked: map[uint32]checked{}}
	n.closers = append(n.closers, n.replicas.close)
	return foreign(n.replicas.check())
}

// foreign adds to an error about another node's data what can be done.
func foreign(err error) error {
	if !errors.Is(err, raftlog.ErrIdentity) && !errors.Is(err, store.ErrIdentity) {
		return err
	}
	return fmt.Errorf("%w: put back what belongs to the %s of this directory, or move away what does not: the next start then says "+
		"what is missing", err, datadir.IdentityFile)
}

// openReplicas makes what was checked the node's own again: from here on files are changed.
func (n *Node) openReplicas(context.Context) error {
	if err := errors.Join(n.dir.Identity.Keep(), n.dir.ForgetDamage()); err != nil {
		return err
	}
	return n.replicas.begin()
}

// assemble creates the components between the replicas and the gateway.
func (n *Node) assemble(context.Context) (err error) {
	n.archive, err = archive.Open(archive.Config{Dir: filepath.Join(n.cfg.Dir, archive.DirName), Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, n.archive.Close)
	saved := ""
	if !n.cfg.InMemory {
		saved = n.dir.File(datadir.StatsFile)
	}
	n.stats = stats.Open(saved, n.cfg.Logger)
	n.closers = append(n.closers, func() error { n.stats.Save(); return nil }) // when nothing is counted any more
	n.copy = cluster.NewCopy(n.bootstrap.known.Load())
	n.replicas.nodeName = nodeNames{n.copy}.ofReplica
	n.replicas.observe = func(id uint32) shard.Observer { return n.metrics.Shard(id) }
	n.images = newImages(n.dir.Identity, n.transport, n.replicas, nodeNames{n.copy})
	n.comparer = &members.Comparer{Replicas: n.replicas.compared, NodeName: n.replicas.nodeName, Logger: n.cfg.Logger,
		Alone: func() (<-chan struct{}, bool) { return n.copy.Changed(), !hasPeers(n.copy.Map()) },
		Hash: func(ctx context.Context, id uint32, replica, index uint64) (shard.Hash, bool) {
			return peerHandler{n}.hashOf(ctx, nodeOf(replica), hashArgs{id, index})
		}}
	n.health = &health{cfg: n.cfg, identity: n.dir.Identity, began: n.began, disk: n.disk, transport: n.transport,
		replicas: n.replicas, copy: n.copy, certs: &n.certs}
	n.heartbeat = &heartbeat{cfg: n.cfg, identity: n.dir.Identity, copy: n.copy, replicas: n.replicas, report: n.health.report,
		fail: n.fail}
	n.auth = newAuthenticator(n.cfg, n.heartbeat.waitsForOwn.Load)
	n.copy.OnAccess(n.auth.Replace)
	n.stats.Recorder.Born = n.born
	n.registry = registry.New()
	n.copy.OnQuiet(router.TellRegistry(n.registry))
	n.broker = broker.New(broker.Config{Limits: task.DefaultLimits(), Archive: n.archive, Logger: n.cfg.Logger,
		LogHeaders: n.cfg.LogHeaders, Room: n.checkSpace, Stats: n.stats.Recorder,
		Namespaces: n.copy.Namespaces, AuditKeep: n.copy.AuditKeep, Tracer: n.cfg.tracer(),
		EnsureQueue: func(ctx context.Context, shard uint32, ns, queue string) error {
			return n.router.Queues.EnsureQueue(ctx, shard, ns, queue)
		}, SendOutbox: func(ctx context.Context, ns string, messages []*broker.OutboxMessage) []broker.Enqueued {
			return n.router.Outbox.Send(ctx, ns, messages)
		}, ShardOf: func(ns, queue string, slot int) uint32 { return n.router.Enqueuer.ShardOf(ns, queue, slot) },
		HasShard: func(ctx context.Context, shard uint32) (bool, error) { return n.router.HasShard(ctx, shard) },
		Workers: func(ctx context.Context, queues []broker.QueueName) []task.QueueWorkers {
			return n.router.Workers.QueueWorkers(ctx, queues)
		},
		RunStep: func(ctx context.Context, shard uint32, ns string, c broker.StepCall) (broker.StepAnswer, error) {
			return n.router.Operations.RunStep(ctx, shard, ns, c)
		}})
	n.closers = append(n.closers, func() error { n.broker.Stop(); return nil })
	n.control = cluster.NewControl(cluster.Config{System: tables{n.replicas}, Shards: routerShards{n}, Own: n.health.report,
		Node: n.dir.Identity.Read().Node, Room: n.checkSpace, Logger: n.cfg.Logger})
	n.closers = append(n.closers, func() error { n.control.Close(); return nil })
	parts := &verb.Parts{}
	router.Serve(n.broker, parts)
	n.control.Serve(parts)
	groupVerbs.Serve(n.replicas, parts)
	n.router = router.New(router.Config{Node: n.dir.Identity.Read().Node, Parts: parts, Broker: router.Local(n.broker),
		Map: routerMap{n.copy, n.heartbeat}, Registry: n.registry, Peers: routerPeers{n.transport}, NotSent: notSent,
		Stats: n.stats.Recorder, SystemLeader: n.replicas.systemLeader, Since: n.auth.Since, Logger: n.cfg.Logger})
	n.closers = append(n.closers, func() error { n.router.Close(); return nil })
	n.groups = groups{n.router}
	n.heartbeat.auth, n.heartbeat.verbs, n.health.router = n.auth, n.router, n.router
	n.evidence = evidence.Recorder{Node: n.cfg.Name, Auth: n.auth, Trail: n.cfg.Trail, Verbs: n.router, Replicas: n.replicas.compared}
	n.assembleWebhooks(parts)
	checkNames(parts)
	n.metrics = (&collector{cfg: n.cfg, health: n.health, replicas: n.replicas, names: nodeNames{n.copy}, broker: n.broker,
		archive: n.archive, auth: n.auth, registry: n.registry, dispatcher: n.dispatcher, gateway: n.serves.Load}).page(n.stats.Recorder)
	n.reconciler = cluster.NewReconciler(cluster.ReconcilerConfig{Placement: n.control.Placement, Groups: n.groups, Logger: n.cfg.Logger})
	n.agent = &agent{dir: n.dir, transport: n.transport, replicas: n.replicas, copy: n.copy, broker: n.broker, control: n.control,
		reconciler: n.reconciler, logger: n.cfg.Logger, fail: n.fail}
	n.member.Store(true)
	n.transport.SetPeers(addresses(n.bootstrap.known.Load()))
	return nil
}

// assembleWebhooks creates what sends notifications.
func (n *Node) assembleWebhooks(parts *verb.Parts) {
	sender := webhook.NewSender(webhook.Config{Allow: n.cfg.WebhookNetworks, Version: n.cfg.Version, Dial: n.cfg.dialWebhook})
	n.watches = watches{n.copy.Shards, n.router}
	n.dispatcher = webhooks.NewDispatcher(webhooks.DispatcherConfig{Webhooks: n.control.Webhooks, Send: sender.Send,
		Depths: n.watches.depths, Logger: n.cfg.Logger})
	webhooks.DispatcherVerbs.Serve(n.dispatcher, parts)
	n.webhooks = sender
}

// runReplicas starts the replicas in the directory. The first node of a cluster writes its tables.
func (n *Node) runReplicas(ctx context.Context) error {
	me := n.dir.Identity.Read()
	for _, id := range slices.Sorted(maps.Keys(me.Replicas)) {
		if err := n.agent.start(id, me.Replicas[id]); err != nil {
			return err
		}
	}
	n.broker.Start()
	if me.Node != 1 || !n.bootstrap.alone() {
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
	access := accessNotices{n.cfg, n.auth, n.router}
	works := []func(context.Context){n.agent.run, n.reconciler.Run, n.dispatcher.Run, n.health.watchClock, n.watchCertificates,
		n.comparer.Run, n.auth.Watch, n.refreshMap, access.requireTokens, n.evidence.NoteRefusals, n.evidence.ExportEntries,
		n.cfg.Trail.Run, n.stats.SaveRegularly, n.heartbeat.follow, n.router.Workers.Watch}
	if n.cfg.PeerListener != nil || n.bootstrap.alone() {
		works = append(works, n.heartbeat.announce)
	}
	if n.cfg.PeerListener != nil {
		works = append(works, n.tellOthers)
	}
	for _, work := range works {
		n.work.Go(func() { work(n.ctx) })
	}
	if !n.bootstrap.alone() {
		return nil
	}
	return n.untilReady(ctx)
}

// untilReady waits until the map is known, and the shards whose only replica is here have leaders.
func (n *Node) untilReady(ctx context.Context) error {
	for n.copy.Version() == 0 {
		if err := pause(ctx, briefly); err != nil {
			return fmt.Errorf("no map of the cluster yet: %w", err)
		}
	}
	m := n.copy.Map()
	if err := checkLevel(n.cfg.Name, m); err != nil {
		return err
	}
	if err := n.addMissingShards(ctx, m); err != nil {
		return err
	}
	for _, id := range n.copy.Shards() {
		if row, ok := n.copy.Shard(id); ok && len(row.Replicas) == 1 && row.Replicas[0].Node == n.dir.Identity.Read().Node {
			if err := n.replicas.untilLed(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// briefly is how long a poll of this node's own state pauses.
const briefly = 2 * time.Millisecond

// pause waits. Its error is ctx's.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
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
		return fmt.Errorf("--shards (DataShards) is %d, but the cluster has %d data shards, and their number can only grow: give "+
			"%d or more, or leave it out",
			n.cfg.DataShards, has, has)
	}
	by := task.Author{Name: n.cfg.Name, Interface: task.InterfaceNode, Reason: "--shards"}
	if _, err := cluster.AddShards.Call(ctx, n.router, cluster.CountCall{N: n.cfg.DataShards, By: by}); err != nil {
		return err
	}
	for len(n.copy.Shards()) < n.cfg.DataShards {
		if err := pause(ctx, briefly); err != nil {
			return fmt.Errorf("new shards: %w", err)
		}
	}
	return nil
}

// serve starts serving clients.
func (n *Node) serve() {
	n.pages = ui.New(ui.Config{
		BasePath: n.cfg.BasePath, Logger: n.cfg.Logger, OpenAPI: rest.OpenAPI, Idle: n.cfg.UIIdle,
		FindSession: n.auth.FindSessionKey, EndSession: accessNotices{n.cfg, n.auth, n.router}.endSession,
		LoggedIn: func(host string, me *admin.Identity) {
			n.evidence.LoggedIn(host, me.Name, me.Namespace, me.AllNamespaces)
		},
		Dial: func(ctx context.Context, from string) (net.Conn, error) { return n.gateway.DialInProcess(ctx, from) },
	})
	n.gateway = gateway.New(gateway.Config{
		Broker: n.router, Cluster: n.router.Queues, Schedules: n.router.Schedules, Groups: n.router.Groups, Operations: n.router.Operations,
		Workers: n.router.Workers, Events: n.router.Events, Registry: n.registry, Stats: n.router.Stats,
		Metrics: n.metrics, Meter: n.metrics, Trail: n.cfg.Trail, Admin: newClusterAdmin(n), Auth: n.auth, Webhooks: n.webhooks,
		Ready: n.health.ready, Limits: task.DefaultLimits(), Logger: n.cfg.Logger, Tracers: n.cfg.Tracers, Certificate: n.cfg.Certificate,
		ClientCertificates: n.cfg.ClientCertificates, Pages: n.pages, SQS: n.cfg.SQS, BasePath: n.cfg.BasePath, Hosts: n.cfg.Hosts,
		MaxConnsPerAddress: n.cfg.MaxConnsPerAddress, Version: n.cfg.Version, ClusterID: n.ClusterID(), Node: n.cfg.Name,
		NodeName: nodeNames{n.copy}.node,
	})
	n.serves.Store(n.gateway)
	n.debug = listen.NewDebugServer(n.cfg.Debug, n.metrics, n.cfg.Profiles, n.cfg.Logger)
	n.serving.Go(n.debug.Serve)
	listener := n.waiting.Next()
	n.serving.Go(n.waiting.Drained)
	n.serving.Go(func() {
		// Server closed: Stop was called before Serve.
		if err := n.gateway.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("serve on %s: %w", n.cfg.Listener.Addr(), err))
		}
	})
}

// ClusterID returns the id of the node's cluster.
func (n *Node) ClusterID() string { return n.dir.Identity.Read().Cluster }

// Stop drains the node: it transfers its leaderships to other nodes, accepts no new connections, tells streams to settle what they
// hold, waits for them until ctx ends, and closes everything. It may be called more than once.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.health.handOver(ctx)
		n.broker.Drain()
		_ = n.pages.Close() // requests still running on its connections are cut off
		n.gateway.Shutdown(ctx)
		n.debug.Stop()
		n.serving.Wait()
		n.err = n.shut()
	})
	return n.err
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
		others := n.cfg.PeerListener != nil && n.member.Load() && len(n.copy.Map().Members()) > 1
		n.cfg.Fatal(n.dir.NoteDamage(err, others))
	})
}
