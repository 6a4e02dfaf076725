package router

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/cluster/workers"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// systemShard is the number of the shard that knows which shards have a queue.
const systemShard = 0

// Peers gives access to the other nodes.
type Peers interface {
	// Call calls another node. Config.NotSent reports of an error whether the request certainly did not arrive; after any other error the
	// call may have run, or may still run.
	Call(ctx context.Context, node uint32, method string, request []byte) ([]byte, error)
	OpenStream(ctx context.Context, node uint32, method string) (Stream, error)
}

// Stream carries frames both ways until its context is done. One goroutine may send while another receives. It is an alias, so that
// implementations need not import this package.
type Stream = interface {
	Context() context.Context
	Send([]byte) error
	Recv() ([]byte, error)
}

// Broker is this node's broker. For shards that it does not lead, calls return *broker.NotLeader.
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
	// NamespaceStatus covers the shards that this node leads.
	NamespaceStatus(ctx context.Context, ns string, age time.Duration) (broker.NamespaceStatus, error)
	// So does QueueCounts.
	QueueCounts(ctx context.Context, q broker.CountsQuery, age time.Duration) ([]broker.QueueCount, error)
}

// LocalWatch is a broker.ClaimWatch.
type LocalWatch interface {
	Add(h broker.Hold) bool
	Remove(id task.ID, t task.Token) bool
	Close()
}

// Local returns a broker as a Broker.
func Local(b *broker.Broker) Broker { return local{b} }

type local struct{ *broker.Broker }

func (l local) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) LocalWatch {
	return l.Broker.WatchClaims(lost, moved)
}

// Control changes and reads the system shard's queues where that shard is led; elsewhere it returns the shard's error.
type Control interface {
	verb.Runner
	// Place returns a queue, which is created at its first use.
	Place(ctx context.Context, ns, name string) (queues.Queue, error)
	Queue(ctx context.Context, ns, name string) (queues.Queue, error)
	Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error)
	// PutQueue returns the error of change unchanged if it is a *task.Error.
	PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	// EnsureQueue makes sure that a shard has its copy of a queue, if it has a part of the queue.
	EnsureQueue(ctx context.Context, shard uint32, ns, name string) (queues.Queue, error)
	// Spread spreads a queue over shards.
	Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error)
	// HasShard reports whether a data shard exists.
	HasShard(ctx context.Context, id uint32) (bool, error)
	// NameSchedule registers a schedule's name, with the wanted shard unless it has one.
	NameSchedule(ctx context.Context, ns, name string, wanted uint32) (schedules.Home, error)
	ScheduleHome(ctx context.Context, ns, name string) (schedules.Home, error)
	ForgetSchedule(ctx context.Context, ns, name string, version uint64) error
	// Events reads the events of queues.
	Events(ctx context.Context, q events.Query) (events.Page, error)
	QuietWorker(ctx context.Context, by task.Author, name workers.Name, called string, span time.Duration) (workers.Quiet, error)
	ResumeWorker(ctx context.Context, by task.Author, name workers.Name) (was bool, err error)
	// AwayNodes returns the names of the nodes that have not been heard from for a while.
	AwayNodes(ctx context.Context) ([]string, error)
	// TakeNotifications takes notifications for the webhooks of a namespace. Those taken before are ignored.
	TakeNotifications(ctx context.Context, ns string, news []*task.Notification) error
	// Audit returns a page of what operators did to queues and to the cluster.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, error)
}

// Map is this node's copy of the system shard's tables. It may be out of date.
type Map interface {
	Replicas(shard uint32) []uint32 // the nodes with a replica; also for the system shard
	Shards() []uint32               // the data shards
	Nodes() []Node                  // those that were not removed
	Queue(ns, name string) (queues.Queue, bool)
	// Learned adds a queue as just read, Dropped records that it does not exist.
	Learned(queues.Queue)
	Dropped(ns, name string)
	// Level returns the feature level that all nodes work at; 0: not known yet. It may have been raised since.
	Level() int
	// Age returns how long ago the copy was last known to be up to date.
	Age() time.Duration
}

// Node is a node of the cluster.
type Node struct {
	Number uint32
	Name   string
}

// Config configures a router.
type Config struct {
	Node     uint32 // this one
	Broker   Broker
	Control  Control
	Map      Map
	Registry *registry.Registry // the workers of this node
	Peers    Peers
	NotSent  func(error) bool
	Stats    *stats.Book // nil: an empty one
	// SystemLeader returns the node that leads the system shard as far as this node's replica of it knows; 0: none.
	SystemLeader func() uint32
	Logger       *slog.Logger // nil: none
}

// Router sends calls to the leaders of their shards. Its methods may be called from any goroutine.
type Router struct {
	cfg          Config
	log          *slog.Logger
	leaders      leaders
	claims       servedClaims
	awaits       awaits
	remoteClaims remoteClaims
	remoteCalls  remoteCalls

	methods sync.Map // name → func() verb.Call: those of OnShard

	work sync.WaitGroup // the router's own goroutines
	ctx  context.Context
	stop context.CancelFunc
	stay context.Context // done when this node is about to stop

	abandoned chan struct{} // one slot per running abandon
}

// New returns a router. Close ends it.
func New(cfg Config) *Router {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Stats == nil {
		cfg.Stats = stats.New(time.Now())
	}
	r := &Router{cfg: cfg, log: cfg.Logger, abandoned: make(chan struct{}, maxAbandoned)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.remoteClaims.r, r.remoteCalls.r = r, r
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

// closeTime is how long Close waits for claims whose answers were lost to be given back.
const closeTime = 2 * time.Second

// Close ends the router's background work. Calls that look for a leader end too. No call may begin after it.
func (r *Router) Close() {
	for end := time.Now().Add(closeTime); len(r.abandoned) > 0 && time.Now().Before(end); {
		r.sleep(r.ctx, pauseMin)
	}
	r.stop()
	r.work.Wait()
}

// untilDrain returns a context for a wait at another node, which must not delay the end of this one.
func (r *Router) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(r.stay, cancel)
	return ctx, func() { forget(); cancel() }
}

// Draining returns a channel that is closed when this node is about to stop.
func (r *Router) Draining() <-chan struct{} { return r.cfg.Broker.Draining() }

func (r *Router) isDraining() bool { return r.stay.Err() != nil }

// sleep waits for d, or until ctx is done or the router is closed.
func (r *Router) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}
