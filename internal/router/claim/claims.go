package claim

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Broker is this node's broker.
type Broker interface {
	Leader(shard uint32) (node, term, index uint64)
	WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) LocalWatch
}

// LocalWatch is a broker.ClaimWatch.
type LocalWatch interface {
	Add(h broker.Hold) bool
	Remove(id task.ID, t task.Token) bool
	Close()
}

// Peers opens streams to the other nodes.
type Peers interface {
	OpenStream(ctx context.Context, node uint32, method string) (Stream, error)
}

// Stream carries frames both ways until its context is done. One goroutine may send while another receives. It is an alias, so that
// implementations need not import this package.
type Stream = interface {
	Context() context.Context
	Send([]byte) error
	Recv() ([]byte, error)
}

// Claims makes and settles claims, wherever their shards are led. Its methods may be called from any goroutine.
type Claims struct {
	forward *forward.Forwarder
	broker  Broker
	log     *slog.Logger

	served    servedClaims
	awaits    awaits
	remote    remoteClaims
	abandoned abandons
}

// New returns the claims of a node.
func New(f *forward.Forwarder, b Broker, p Peers, log *slog.Logger) *Claims {
	return &Claims{forward: f, broker: b, log: log, abandoned: abandons{forward: f, log: log}, awaits: awaits{forward: f},
		remote: remoteClaims{forward: f, peers: p, log: log}}
}

// Verbs are the calls on claims that other nodes make here.
var Verbs verb.Table[*Claims]

var (
	// claimFor claims tasks for another node, such that the claim can be abandoned.
	claimFor = verb.New(&Verbs, verb.Rule{Name: "claim"}, (*Claims).claimForOthers)
	// abandonClaims gives back what claims got whose answers were lost.
	abandonClaims = verb.New(&Verbs, verb.Rule{Name: "abandon", Idempotent: true}, (*Claims).abandonHere)
)

// closeTime is how long Close waits for claims whose answers were lost to be given back.
const closeTime = 2 * time.Second

// Close gives back claims whose answers were lost. It must be called before the forwarder is closed, and no call may begin after it.
func (c *Claims) Close() {
	for end := time.Now().Add(closeTime); c.abandoned.count() > 0 && time.Now().Before(end); {
		c.forward.Life.Sleep(context.Background(), closePause)
	}
}

// closePause is the pause between two looks at the claims that are being given back.
const closePause = 10 * time.Millisecond
