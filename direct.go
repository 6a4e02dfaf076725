package pawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// lookSoon is how long after the last look at the map another may follow, when an answer names a node that it lacks;
	// lookLater, when a node can't be reached. Both take from half to one and a half of it.
	lookSoon  = 5 * time.Second
	lookLater = time.Minute
	// askTime bounds one look, and what it takes to connect to a node.
	askTime = 5 * time.Second
	// A node that can't be reached directly is tried again after firstRedial, and ever more seldom down to maxRedial.
	firstRedial = time.Second
	maxRedial   = time.Minute
)

// direct sends each call straight to the node that leads its shard. It is what a Client's services run on.
//
//	call ─▶ aim (task id, queue) ─▶ chart (who leads) ─▶ line to that node, if it works
//	                                                └─▶ the line to an address of Dial, which takes every call
//	answer ─▶ trailers (shard, leader elsewhere) ─▶ chart
//
// A call waits for none of this: the map is fetched and lines are made in the background, and meanwhile calls go by the
// line that takes every call. A server of one node never says that another leads, so that nothing is fetched there.
//
// The lines are a small pool of grpc.ClientConns behind grpc.ClientConnInterface, which is stable. One ClientConn
// with a balancer of our own would stand on APIs marked experimental, and on a registry in a package variable.
type direct struct {
	any     *line // to an address of Dial
	dial    func(addr string) (*grpc.ClientConn, error)
	who     caller
	log     *slog.Logger
	several atomic.Bool // the server has shown that it has several nodes; before, nothing is learned
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu       sync.RWMutex // guards what follows
	chart    chart
	nodes    map[string]*node // by name: those that were wanted
	lines    map[*line]bool   // all but any
	looking  bool
	lastLook time.Time
	unrest   float64 // stretches the time until the next look, by another factor each time
	closed   bool
}

// node is a node of the cluster to which calls go directly if they can. Guarded by direct.mu.
type node struct {
	name, addr string
	line       *line // nil: there is none that works
	dialing    bool
	tries      int       // in vain since the last line
	next       time.Time // of the next try
	told       bool      // that it can't be reached
}

// line is one connection, to a node that has said who it is. One that breaks is not used again, since another server may
// listen at the address by then: another cluster would accept a task as well.
type line struct {
	name      string // of the node; "": an address of Dial, whoever that is
	conn      *grpc.ClientConn
	producing *producing
	calls     atomic.Int64 // that run on it
	retired   atomic.Bool  // closed with the last of its calls
	unready   atomic.Bool  // the node has no contact with its cluster: calls go to another one, if there is one
}

func newDirect(conn *grpc.ClientConn, cfg *dialConfig) *direct {
	d := &direct{dial: cfg.connectTo, who: cfg.caller(), log: cfg.log, chart: newChart(), nodes: map[string]*node{}, lines: map[*line]bool{}, unrest: 1}
	d.any = d.newLine("", conn)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *direct) newLine(name string, conn *grpc.ClientConn) *line {
	return &line{name: name, conn: conn, producing: &producing{conn: conn, who: d.who}}
}

// Close ends all connections and what runs in the background.
func (d *direct) Close() error {
	d.cancel()
	d.mu.Lock()
	d.closed = true
	for l := range d.lines {
		_ = l.producing.close() // fails only if it is closed
	}
	d.mu.Unlock()
	err := d.any.producing.close()
	d.work.Wait()
	return err
}

// Invoke implements grpc.ClientConnInterface.
func (d *direct) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	a := aimOf(req)
	to := d.toward(a)
	defer d.release(to)
	w, err := to.producing.invoke(ctx, method, req, resp, opts)
	if !a.nowhere() {
		d.heard(a, to, w, err)
	}
	to.rest(err)
	return err
}

// aimKey is of a stream's context: its aim.
type aimKey struct{}

// NewStream implements grpc.ClientConnInterface. The context must end when the stream does.
func (d *direct) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	a, _ := ctx.Value(aimKey{}).(aim)
	to := d.toward(a)
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

// toward gives the line for a call, which counts as in use until release.
func (d *direct) toward(a aim) *line {
	if !d.several.Load() {
		return d.any
	}
	d.mu.RLock()
	name := d.chart.leader(a)
	to, wanted := d.any, false
	switch n := d.nodes[name]; {
	case n.works() && name != d.chart.here:
		to = n.line
	case d.any.unready.Load() || d.any.conn.GetState() == connectivity.TransientFailure:
		to = d.spareLocked()
	default:
		wanted = name != "" && name != d.chart.here
	}
	if to != d.any {
		to.calls.Add(1)
	}
	d.mu.RUnlock()
	if wanted {
		d.want(name)
	}
	return to
}

// works says whether calls can go to a node directly, at this moment.
func (n *node) works() bool {
	return n != nil && n.line != nil && !n.line.unready.Load() && n.line.conn.GetState() == connectivity.Ready
}

// spareLocked gives a line that works while no address of Dial answers: any node takes any call.
func (d *direct) spareLocked() *line {
	for _, n := range d.nodes {
		if n.works() {
			return n.line
		}
	}
	return d.any
}

// restTime is how long calls keep away from a node that is not ready, if they can.
const restTime = time.Second

// rest keeps calls away from a line for a while, if the node there has answered that it is not ready.
func (l *line) rest(err error) {
	if notReady(err) && l.unready.CompareAndSwap(false, true) {
		time.AfterFunc(restTime, func() { l.unready.Store(false) })
	}
}

// release ends the use of a line.
func (d *direct) release(l *line) {
	if l != d.any && l.calls.Add(-1) == 0 && l.retired.Load() {
		d.closeLine(l)
	}
}

// heard learns from an answer.
func (d *direct) heard(a aim, from *line, w word, err error) {
	switch {
	case w.leader != "":
		d.several.Store(true)
	case !d.several.Load():
		return
	}
	if !w.stamped {
		// It has not reached the shard. By another way it may.
		if from != d.any && (err == nil || isUnavailable(err)) {
			d.mu.Lock()
			d.chart.forget(a, from.name)
			d.mu.Unlock()
		}
		return
	}
	d.mu.RLock()
	knew := d.chart.knew(a, from.name, w)
	d.mu.RUnlock()
	if knew {
		return
	}
	d.mu.Lock()
	d.chart.heard(a, from.name, w)
	leader := d.chart.leaders[w.shard]
	away := leader != "" && leader != d.chart.here
	d.mu.Unlock()
	if away {
		d.want(leader) // the next call need not find out
	}
}

// want begins what is missing for calls to go to a node directly: a map that has it, or a line.
func (d *direct) want(name string) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	addr, member := d.chart.addrs[name]
	rest := lookLater
	if !member {
		rest = lookSoon
	}
	if n := d.dialLocked(name, addr, now); n != nil {
		d.work.Go(func() { d.connect(d.ctx, n) })
	} else if addr == "" && d.mayLookLocked(now, rest) {
		d.work.Go(func() {
			d.look(d.ctx)
			d.want(name)
		})
	}
}

// mayLookLocked says whether it is time for a look at the map, and if so, that one begins.
func (d *direct) mayLookLocked(now time.Time, rest time.Duration) bool {
	if d.closed || d.looking || now.Sub(d.lastLook) < time.Duration(float64(rest)*d.unrest) {
		return false
	}
	d.looking, d.lastLook, d.unrest = true, now, 0.5+rand.Float64()
	return true
}

// look fetches the map.
func (d *direct) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	from := d.toward(aim{})
	m, err := pawlv1.NewClusterServiceClient(from.conn).GetMap(ctx, &pawlv1.GetMapRequest{})
	d.release(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looking = false
	if err != nil {
		d.log.Debug("no map of the cluster", "error", err)
		return
	}
	d.chart.take(m, from == d.any)
	for name, n := range d.nodes {
		if addr, member := d.chart.addrs[name]; !member || addr != n.addr {
			d.retireLocked(n)
			delete(d.nodes, name)
		}
	}
}

// dialLocked gives the node if it is time to connect to it, and says that this begins; else nil.
func (d *direct) dialLocked(name, addr string, now time.Time) *node {
	n := d.nodes[name]
	if n == nil && addr != "" {
		n = &node{name: name, addr: addr}
		d.nodes[name] = n
	}
	if n == nil || d.closed || n.dialing || n.line != nil || now.Before(n.next) {
		return nil
	}
	n.dialing = true
	return n
}

// connect makes a line to a node, looks after it in the background, and says whether there is one.
func (d *direct) connect(ctx context.Context, n *node) bool {
	d.mu.RLock()
	cluster := d.chart.cluster
	d.mu.RUnlock()
	l, err := d.lineTo(ctx, n.name, n.addr, cluster)
	d.mu.Lock()
	defer d.mu.Unlock()
	n.dialing = false
	switch {
	case err != nil:
		n.next = time.Now().Add(backoffAfter(n.tries, firstRedial, maxRedial))
		n.tries++
		d.tellLocked(n, err)
		if d.mayLookLocked(time.Now(), lookLater) { // its address may be another by now
			d.work.Go(func() { d.look(d.ctx) })
		}
		return false
	case d.closed || d.nodes[n.name] != n:
		_ = l.conn.Close()
		return false
	}
	n.line, n.tries = l, 0
	d.lines[l] = true
	d.work.Go(func() { d.watch(n, l) })
	d.log.Debug("calls go to a node directly", "node", n.name, "address", n.addr)
	return true
}

// tellLocked logs once that a node can't be reached. That is no fault: it may be out of reach by design.
func (d *direct) tellLocked(n *node, err error) {
	level := slog.LevelDebug
	if !n.told && d.ctx.Err() == nil {
		level, n.told = slog.LevelInfo, true
	}
	d.log.Log(d.ctx, level, "a node can't be reached directly: its calls go by way of another", "node", n.name, "address", n.addr, "error", err)
}

// lineTo connects to an address, and makes sure that the node of this name and cluster answers there: the address may mean
// another server on this side of a tunnel or a network's border.
func (d *direct) lineTo(ctx context.Context, name, addr, cluster string) (*line, error) {
	conn, err := d.dial(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := pawlv1.NewClusterServiceClient(conn).GetMap(ctx, &pawlv1.GetMapRequest{})
	if err == nil && (m.GetNode() != name || m.GetClusterId() != cluster) {
		err = fmt.Errorf("node %q of cluster %q answers there, not %q of %q", cutText(m.GetNode(), maxName), cutText(m.GetClusterId(), maxName), name, cluster)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return d.newLine(name, conn), nil
}

// watch waits until a line breaks, or rests for so long that gRPC closes it, and takes it out of use.
func (d *direct) watch(n *node, l *line) {
	l.conn.WaitForStateChange(d.ctx, connectivity.Ready)
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.line == l {
		d.retireLocked(n)
	}
}

// retireLocked takes a node's line out of use. Calls that run on it may end.
func (d *direct) retireLocked(n *node) {
	l := n.line
	if n.line = nil; l == nil {
		return
	}
	l.retired.Store(true)
	if l.calls.Load() == 0 && !d.closed {
		d.work.Go(func() { d.closeLine(l) })
	}
}

func (d *direct) closeLine(l *line) {
	d.mu.Lock()
	delete(d.lines, l)
	d.mu.Unlock()
	_ = l.producing.close() // fails only if it is closed
}

// knows says whether a stream was opened at the leader of where it belongs, as far as that is known.
func (d *direct) knows(a aim) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	name := d.chart.leader(a)
	return name != "" && (name == d.chart.here || d.nodes[name].works())
}

// forget forgets who leads where something belongs.
func (d *direct) forget(a aim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chart.forget(a, d.chart.leader(a))
}

// leaderNow names the node that leads a shard, by a map that is not much older than a moment.
func (d *direct) leaderNow(ctx context.Context, shard uint32) string {
	d.mu.Lock()
	may := d.mayLookLocked(time.Now(), lookSoon)
	d.mu.Unlock()
	if may {
		d.look(ctx)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.chart.leader(aim{shard: shard, known: true})
}

// reach says whether calls can go to a node directly, and connects to it if need be.
func (d *direct) reach(ctx context.Context, name string) bool {
	d.mu.Lock()
	n := d.nodes[name]
	works := n.works() || name == d.chart.here
	if !works {
		n = d.dialLocked(name, d.chart.addrs[name], time.Now())
	}
	d.mu.Unlock()
	return works || n != nil && d.connect(ctx, n)
}
