package router

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// systemShard is the number of the shard that knows which queue lies where.
const systemShard = 0

// Peers are the other nodes.
type Peers interface {
	// Call asks another node. Config.NotSent says of an error whether the request certainly did not arrive; after any other
	// the call may have run, or may yet.
	Call(ctx context.Context, node uint32, method string, request []byte) ([]byte, error)
	OpenStream(ctx context.Context, node uint32, method string) (Stream, error)
}

// Stream carries frames both ways until its context ends. One goroutine may send while another receives. It is an alias, so
// that who makes one need not know this package.
type Stream = interface {
	Context() context.Context
	Send([]byte) error
	Recv() ([]byte, error)
}

// Broker is this node's broker. What its shards do not lead here is *broker.Elsewhere.
type Broker interface {
	verb.Runner
	broker.ShardCalls
	broker.GroupCalls
	WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) LocalWatch
	Archived(ns, queue, cursor string, limit int) (tasks []broker.ArchivedTask, places []string, next string, err error)
	ArchivedAt(place string) (*broker.ArchivedTask, error)
	Once(ctx context.Context, shard uint32, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error)
	Audit(ctx context.Context, shard uint32, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, broker.Stamp, error)
	Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error)
	Leader(shard uint32) (node, term, index uint64)
	// NamespaceStatus tells of the shards that this node leads.
	NamespaceStatus(ctx context.Context, ns string, age time.Duration) (broker.NamespaceStatus, error)
	// QueueCounts too.
	QueueCounts(ctx context.Context, q broker.CountsQuery, age time.Duration) ([]broker.QueueCount, error)
}

// LocalWatch is a broker.ClaimWatch.
type LocalWatch interface {
	Add(h broker.Hold) bool
	Remove(id task.ID, t task.Token) bool
	Close()
}

// Local is a broker as a Broker.
func Local(b *broker.Broker) Broker { return local{b} }

type local struct{ *broker.Broker }

func (l local) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) LocalWatch {
	return l.Broker.WatchClaims(lost, moved)
}

// Control changes and reads the system shard's queues where that shard is led; elsewhere it returns the shard's error.
type Control interface {
	verb.Runner
	// Place is where a queue lies, which is created at its first use.
	Place(ctx context.Context, ns, name string) (cluster.Queue, error)
	Queue(ctx context.Context, ns, name string) (cluster.Queue, error)
	Queues(ctx context.Context, ns string, of cluster.QueueQuery) ([]cluster.Queue, error)
	// PutQueue returns the error of change as it is, if that is a *task.Error.
	PutQueue(ctx context.Context, deed cluster.Deed, ns, name string, change func(*task.QueueConfig) error) (cluster.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	// EnsureQueue makes sure that a shard has its copy of a queue, if the queue lies there.
	EnsureQueue(ctx context.Context, shard uint32, ns, name string) (cluster.Queue, error)
	// Spread shares a queue out over shards.
	Spread(ctx context.Context, by task.Author, ns, name string, onto cluster.Onto) (cluster.Queue, error)
	// HasShard says whether there is a data shard of this number.
	HasShard(ctx context.Context, id uint32) (bool, error)
	// NameSchedule registers a schedule's name, which lives in the shard that is wanted unless it has one.
	NameSchedule(ctx context.Context, ns, name string, wanted uint32) (cluster.ScheduleHome, error)
	ScheduleHome(ctx context.Context, ns, name string) (cluster.ScheduleHome, error)
	ForgetSchedule(ctx context.Context, ns, name string, version uint64) error
	// Events reads what happened to queues.
	Events(ctx context.Context, q events.Query) (events.Page, error)
	QuietWorker(ctx context.Context, by task.Author, name cluster.WorkerName, called string, span time.Duration) (cluster.QuietWorker, error)
	ResumeWorker(ctx context.Context, by task.Author, name cluster.WorkerName) (was bool, err error)
	// AwayNodes names the nodes that have not been heard of for a while.
	AwayNodes(ctx context.Context) ([]string, error)
	// TakeNotifications takes what the webhooks of a namespace are to be told of. News that were taken before are passed over.
	TakeNotifications(ctx context.Context, ns string, news []*task.Notification) error
	// Audit reads a page of what operators did to queues and to the cluster.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, error)
}

// Map is this node's copy of what the system shard says. It may be behind.
type Map interface {
	Replicas(shard uint32) []uint32 // the nodes that have one, the system shard's too
	Shards() []uint32               // the data shards
	Nodes() []Node                  // those that were not removed
	Queue(ns, name string) (cluster.Queue, bool)
	// Learned takes over a queue as it was just read, Dropped that there is none.
	Learned(cluster.Queue)
	Dropped(ns, name string)
	// Level is the feature level that all nodes work at; 0: not known yet. It may be higher by now.
	Level() int
	// Age is how long the copy has not been known to be up to date.
	Age() time.Duration
}

// Node is a node of the cluster.
type Node struct {
	Number uint32
	Name   string
}

// Config is what a router is made of.
type Config struct {
	Node     uint32 // this one
	Broker   Broker
	Control  Control
	Map      Map
	Registry *registry.Registry // the workers of this node
	Peers    Peers
	NotSent  func(error) bool
	Stats    *stats.Book // nil: one in which nothing happens
	// SystemLeader is the node that leads the system shard as far as this node's replica of it knows; 0: none.
	SystemLeader func() uint32
	Logger       *slog.Logger // nil: none
}

// Router sends calls to the leaders of their shards. Its methods may be called from any goroutine.
type Router struct {
	cfg     Config
	log     *slog.Logger
	leaders leaders
	claims  servedClaims
	awaits  awaits
	far     farClaims
	aways   remoteCalls

	methods sync.Map // name → func() verb.Call: those of OnShard

	work sync.WaitGroup // the router's own goroutines
	ctx  context.Context
	stop context.CancelFunc
	stay context.Context // ends when this node is about to stop

	abandoned chan struct{} // a place for each job of abandon
}

// New makes a router. Close ends it.
func New(cfg Config) *Router {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Stats == nil {
		cfg.Stats = stats.New(time.Now())
	}
	r := &Router{cfg: cfg, log: cfg.Logger, abandoned: make(chan struct{}, maxAbandoned)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.far.r, r.aways.r = r, r
	stay, leave := context.WithCancel(r.ctx)
	r.stay = stay
	r.work.Go(func() {
		defer leave()
		select {
		case <-r.Draining():
		case <-r.ctx.Done():
		}
	})
	return r
}

// closeTime is how long Close waits until claims whose answers were lost are given back.
const closeTime = 2 * time.Second

// Close ends the router's own work. Calls that look for a leader end too. No call begins after it.
func (r *Router) Close() {
	for end := time.Now().Add(closeTime); len(r.abandoned) > 0 && time.Now().Before(end); {
		r.sleep(r.ctx, pauseMin)
	}
	r.stop()
	r.work.Wait()
}

// untilDrain is ctx for a wait at another node, which is not to hold up the end of this one.
func (r *Router) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(r.stay, cancel)
	return ctx, func() { forget(); cancel() }
}

// Draining is closed when this node is about to stop.
func (r *Router) Draining() <-chan struct{} { return r.cfg.Broker.Draining() }

func (r *Router) isDraining() bool { return r.stay.Err() != nil }

// sleep waits, unless ctx or the router ends first.
func (r *Router) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}
