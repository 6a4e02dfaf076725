package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// refreshSoon is how long after one fetch of the map another may follow if a response names a node that the map lacks; refreshLater, if
	// a node can't be reached. Both are randomized by a factor of 0.5 to 1.5.
	refreshSoon  = 5 * time.Second
	refreshLater = time.Minute
	// refreshTimeout bounds one fetch of the map, and connecting to a node.
	refreshTimeout = 5 * time.Second
	// A node that can't be reached directly is tried again after firstRedial, and less and less often, down to every maxRedial.
	firstRedial = time.Second
	maxRedial   = time.Minute
)

// Router sends each call straight to the node that leads its shard. It is the connection of a Client's services.
//
//	call ─▶ destination (task id, queue) ─▶ topology (who leads) ─▶ channel to that node, if it works
//	                                                └─▶ the channel to an address of Dial, which takes every call
//	response ─▶ trailers (shard, leader elsewhere) ─▶ topology
//
// Calls never wait for this: the map is fetched and channels are made in the background, and meanwhile calls use the channel that takes
// every call. A server with a single node never reports that another leads, so nothing is fetched there.
//
// The channels are a small pool of grpc.ClientConns behind grpc.ClientConnInterface, which is stable. One ClientConn with our own
// balancer would depend on APIs marked experimental, and on a registry in a package variable.
type Router struct {
	any       *channel // to an address of Dial
	dial      func(addr string) (*conn, error)
	who       caller
	log       *slog.Logger
	clustered atomic.Bool // the server has been seen to have several nodes; before, all calls use any
	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup

	mu         sync.RWMutex // guards the fields below
	topology   topology
	nodes      map[string]*node  // those that were needed, by name
	channels   map[*channel]bool // all except any
	refreshing bool
	refreshed  time.Time
	jitter     float64 // stretches the time until the next fetch, by a different factor each time
	closed     bool
}

// node is a node of the cluster that calls reach directly if they can. Guarded by Router.mu.
type node struct {
	name, addr string
	channel    *channel // nil: none that works
	dialing    bool
	tries      int       // failed since the last channel
	next       time.Time // of the next try
	logged     bool      // logged that it can't be reached; not since the last channel
}

// channel is a connection to a node whose identity was checked. One that breaks is not used again, since another server may listen at the
// address by then: another cluster would accept a task as well.
type channel struct {
	name     string // of the node; "": an address of Dial, whichever node that is
	conn     *conn
	producer *producer
	calls    atomic.Int64 // in flight
	retired  atomic.Bool  // closed when the last of its calls ends
	unready  atomic.Bool  // the node has no contact with its cluster: calls go to another one, if there is one
}

func newRouter(conn *conn, cfg *Config) *Router {
	d := &Router{dial: cfg.connectTo, who: cfg.caller(), log: cfg.Log, topology: newTopology(), nodes: map[string]*node{},
		channels: map[*channel]bool{}, jitter: 1}
	d.any = d.newChannel("", conn)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *Router) newChannel(name string, conn *conn) *channel {
	return &channel{name: name, conn: conn, producer: &producer{conn: conn, caller: d.who}}
}

// Close closes all connections and stops the background work.
func (d *Router) Close() error {
	d.cancel()
	d.mu.Lock()
	d.closed = true
	for l := range d.channels {
		_ = l.producer.close() // fails only if already closed
	}
	d.mu.Unlock()
	err := d.any.producer.close()
	d.work.Wait()
	return err
}

// Invoke implements grpc.ClientConnInterface.
func (d *Router) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	a := destinationOf(req)
	to := d.pick(a)
	defer d.release(to)
	w, err := to.producer.invoke(ctx, method, req, resp, opts)
	if !a.nowhere() {
		d.learn(a, to, w, err)
	}
	to.backOff(err)
	return err
}

// destinationKey is the key of a stream's destination in its context.
type destinationKey struct{}

// WithDestination returns a context that makes a stream go to a destination.
func WithDestination(ctx context.Context, a Destination) context.Context {
	return context.WithValue(ctx, destinationKey{}, a)
}

// OnlyShardOf returns the shard from which all responses about a queue came, so far.
func (d *Router) OnlyShardOf(queue string) (shard uint32, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	shard, known = d.topology.queues[queue]
	return shard, known && !d.topology.spread[queue]
}

// HasSeveralNodes records that the server has several nodes.
func (d *Router) HasSeveralNodes() { d.clustered.Store(true) }

// NewStream implements grpc.ClientConnInterface. The context must end when the stream does.
func (d *Router) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	a, _ := ctx.Value(destinationKey{}).(Destination)
	to := d.pick(a)
	stream, err := to.conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		d.release(to)
		return nil, err
	}
	if to != d.any {
		context.AfterFunc(ctx, func() { d.release(to) })
	}
	return stream, nil
}

// pick returns the channel for a call. It counts as in use until release.
func (d *Router) pick(a Destination) *channel {
	if !d.clustered.Load() {
		return d.any
	}
	d.mu.RLock()
	name := d.topology.leader(a)
	to, wanted := d.any, false
	switch n := d.nodes[name]; {
	case n.works() && name != d.topology.defaultNode:
		to = n.channel
	case d.any.unready.Load() || !d.any.conn.ready():
		to = d.fallbackLocked()
	default:
		wanted = name != "" && name != d.topology.defaultNode
	}
	if to != d.any {
		to.calls.Add(1)
	}
	d.mu.RUnlock()
	if wanted {
		d.prepare(name)
	}
	return to
}

// works reports whether calls can go to a node directly right now.
func (n *node) works() bool {
	return n != nil && n.channel != nil && !n.channel.unready.Load() && n.channel.conn.GetState() == connectivity.Ready
}

// fallbackLocked returns a channel that works while no address of Dial answers, or none has yet: any node accepts any call.
func (d *Router) fallbackLocked() *channel {
	for _, n := range d.nodes {
		if n.works() {
			return n.channel
		}
	}
	return d.any
}

// backOffTime is how long calls avoid a node that is not ready, if they can.
const backOffTime = time.Second

// backOff makes calls avoid a channel for a while, if its node has answered that it is not ready.
func (l *channel) backOff(err error) {
	if convert.NotReady(err) && l.unready.CompareAndSwap(false, true) {
		time.AfterFunc(backOffTime, func() { l.unready.Store(false) })
	}
}

// release ends a call's use of a channel.
func (d *Router) release(l *channel) {
	if l != d.any && l.calls.Add(-1) == 0 && l.retired.Load() {
		d.closeChannel(l)
	}
}

// learn updates the topology from a response.
func (d *Router) learn(a Destination, from *channel, w stamp, err error) {
	if w.leader != "" {
		d.clustered.Store(true)
	}
	if !w.stamped {
		// It has not reached the shard. Another node may.
		if from != d.any && (err == nil || convert.IsUnavailable(err)) {
			d.mu.Lock()
			d.topology.forget(a, from.name)
			d.mu.Unlock()
		}
		return
	}
	d.mu.RLock()
	knew := d.topology.knows(a, from.name, w)
	d.mu.RUnlock()
	if knew {
		return
	}
	d.mu.Lock()
	d.topology.learn(a, from.name, w)
	leader := d.topology.leaders[w.shard]
	away := leader != "" && leader != d.topology.defaultNode
	d.mu.Unlock()
	if away {
		d.prepare(leader) // so that the next call goes there
	}
}

// prepare starts to get what is missing for calls to go to a node directly: a map that has it, or a channel.
func (d *Router) prepare(name string) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	addr, member := d.topology.addrs[name]
	rest := refreshLater
	if !member {
		rest = refreshSoon
	}
	if n := d.dialLocked(name, addr, now); n != nil {
		d.work.Go(func() { d.connect(d.ctx, n) })
	} else if addr == "" && d.mayRefreshLocked(now, rest) {
		d.work.Go(func() {
			d.refresh(d.ctx)
			d.prepare(name)
		})
	}
}

// mayRefreshLocked reports whether it is time to fetch the map. If so, the caller must do it.
func (d *Router) mayRefreshLocked(now time.Time, rest time.Duration) bool {
	if d.closed || d.refreshing || now.Sub(d.refreshed) < time.Duration(float64(rest)*d.jitter) {
		return false
	}
	d.refreshing, d.refreshed, d.jitter = true, now, 0.5+rand.Float64()
	return true
}

// refresh fetches the map.
func (d *Router) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	from := d.pick(Destination{})
	m, err := pawlv1.NewClusterServiceClient(from.conn).GetMap(ctx, &pawlv1.GetMapRequest{})
	d.release(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refreshing = false
	if err != nil {
		d.log.Debug("no map of the cluster", "error", err)
		return
	}
	d.topology.update(m, from == d.any)
	for name, n := range d.nodes {
		if addr, member := d.topology.addrs[name]; !member || addr != n.addr {
			d.retireLocked(n)
			delete(d.nodes, name)
		}
	}
}

// dialLocked returns the node if it is time to connect to it, else nil. If it is, the caller must do it.
func (d *Router) dialLocked(name, addr string, now time.Time) *node {
	n := d.nodes[name]
	if n == nil && addr != "" {
		n = &node{name: name, addr: addr}
		d.nodes[name] = n
	}
	if n == nil || d.closed || n.dialing || n.channel != nil || now.Before(n.next) {
		return nil
	}
	n.dialing = true
	return n
}

// connect connects to a node, watches the channel in the background, and reports whether it succeeded.
func (d *Router) connect(ctx context.Context, n *node) bool {
	d.mu.RLock()
	cluster := d.topology.cluster
	d.mu.RUnlock()
	l, err := d.dialNode(ctx, n.name, n.addr, cluster)
	d.mu.Lock()
	defer d.mu.Unlock()
	n.dialing = false
	switch {
	case err != nil:
		n.next = time.Now().Add(rpc.Backoff(n.tries, firstRedial, maxRedial))
		n.tries++
		d.logLocked(n, err)
		if d.mayRefreshLocked(time.Now(), refreshLater) { // its address may have changed
			d.work.Go(func() { d.refresh(d.ctx) })
		}
		return false
	case d.closed || d.nodes[n.name] != n:
		_ = l.conn.Close()
		return false
	}
	n.channel, n.tries, n.logged = l, 0, false
	d.channels[l] = true
	d.work.Go(func() { d.watch(n, l) })
	d.log.Debug("calls are sent to a node directly", "node", n.name, "address", n.addr)
	return true
}

// logLocked logs once that a node can't be reached. That is not an error: it may be unreachable by design.
func (d *Router) logLocked(n *node, err error) {
	level := slog.LevelDebug
	if !n.logged && d.ctx.Err() == nil {
		level, n.logged = slog.LevelInfo, true
	}
	d.log.Log(d.ctx, level, "a node can't be reached directly: its calls are routed through another node", "node", n.name, "address",
		n.addr, "error", err)
}

// dialNode connects to an address, and checks that the node of this name and cluster answers there: the address may be that of another
// server on this side of a tunnel or a network's border, which must not see the token.
func (d *Router) dialNode(ctx context.Context, name, addr, cluster string) (*channel, error) {
	conn, err := d.dial(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	is, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{
		Service: pawlv1.NodeService(cluster, name)})
	switch {
	case status.Code(err) == codes.NotFound:
		err = fmt.Errorf("another server answers there, not node %q of cluster %q", name, cluster)
	case err == nil && is.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING: // a node that waits says so of every name
		err = errors.New("the server there is not ready")
	}
	if err == nil { // gRPC admits calls a moment before it reports a connection as ready, which watch would take for a broken one
		conn.WaitForStateChange(ctx, connectivity.Connecting)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return d.newChannel(name, conn), nil
}

// watch waits until a channel breaks, or is idle for so long that gRPC closes it, and takes it out of use.
func (d *Router) watch(n *node, l *channel) {
	l.conn.WaitForStateChange(d.ctx, connectivity.Ready)
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.channel == l {
		d.retireLocked(n)
	}
}

// retireLocked takes a node's channel out of use. Calls in flight on it can finish.
func (d *Router) retireLocked(n *node) {
	l := n.channel
	if n.channel = nil; l == nil {
		return
	}
	l.retired.Store(true)
	if l.calls.Load() == 0 && !d.closed {
		d.work.Go(func() { d.closeChannel(l) })
	}
}

func (d *Router) closeChannel(l *channel) {
	d.mu.Lock()
	delete(d.channels, l)
	d.mu.Unlock()
	_ = l.producer.close() // fails only if already closed
}

// Knows reports whether a stream to a destination would reach its leader directly, as far as is known.
func (d *Router) Knows(a Destination) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	name := d.topology.leader(a)
	return name != "" && (name == d.topology.defaultNode || d.nodes[name].works())
}

// Forget forgets the leader of a destination.
func (d *Router) Forget(a Destination) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.topology.forget(a, d.topology.leader(a))
}

// LeaderNow returns the name of the node that leads a shard, by a map that is at most a few seconds old.
func (d *Router) LeaderNow(ctx context.Context, shard uint32) string {
	d.mu.Lock()
	may := d.mayRefreshLocked(time.Now(), refreshSoon)
	d.mu.Unlock()
	if may {
		d.refresh(ctx)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.topology.leader(Destination{shard: shard, known: true})
}

// Reach reports whether calls can go to a node directly, and connects to it if necessary.
func (d *Router) Reach(ctx context.Context, name string) bool {
	d.mu.Lock()
	n := d.nodes[name]
	works := n.works() || name == d.topology.defaultNode
	if !works {
		n = d.dialLocked(name, d.topology.addrs[name], time.Now())
	}
	d.mu.Unlock()
	return works || n != nil && d.connect(ctx, n)
}

// Open returns a connection to the broker at an address, or to the nodes in a comma-separated list of addresses. The Router is
// nil if cfg.Indirect is set.
func Open(addr string, cfg *Config) (rpc.Conn, *Router, error) {
	target, known, err := cfg.targets(addr)
	if err != nil {
		return nil, nil, err
	}
	base, err := cfg.open(target, known...)
	if err != nil {
		return nil, nil, fmt.Errorf("pawl: dial %q: %w", addr, err)
	}
	if cfg.Indirect {
		return &single{base, &producer{conn: base, caller: cfg.caller()}}, nil, nil
	}
	way := newRouter(base, cfg)
	return way, way, nil
}

// single is the connection of a client that uses only the addresses given to Dial.
type single struct {
	*conn
	producer *producer
}

// Invoke implements grpc.ClientConnInterface.
func (c *single) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	_, err := c.producer.invoke(ctx, method, req, resp, opts)
	return err
}

// Close closes the connection.
func (c *single) Close() error { return c.producer.close() }
