package claims

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Broker is this node's broker. For shards that it does not lead, calls return *broker.NotLeader.
type Broker interface {
	Leader(shard uint32) (node, term, index uint64)
	Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error)
	Await(ctx context.Context, shard uint32, c broker.ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error)
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

	settle       forward.Caller[settleArgs, settleAnswer]
	claim        claimCaller
	claimBriefly claimCaller // for callers that have other shards to ask

	served    servedClaims
	awaits    awaits
	remote    remoteClaims
	abandoned abandons
}

// New returns the claims of a node.
func New(f *forward.Forwarder, b Broker, p Peers, log *slog.Logger) *Claims {
	c := &Claims{forward: f, broker: b, log: log}
	c.settle = forward.Register(f, &forward.Method[settleArgs, settleAnswer]{Rule: verb.Rule{Name: "settle"}, Run: func(ctx context.Context, a settleArgs) (out settleAnswer, err error) {
		out.Out, out.At, err = b.Settle(ctx, a.Shard, a.Calls)
		return out, err
	}})
	c.claim = forward.Register(f, &claimMethod{Rule: verb.Rule{Name: "claim"}, Run: c.claimHere, ForOthers: c.claimForOthers,
		Wait: func(a *claimArgs) *time.Duration { return &a.Wait }})
	c.claimBriefly = c.claim.WithPatience(briefTime)
	c.abandoned = abandons{forward: f, log: log, abandon: forward.RegisterIdempotent(f, "abandon", c.abandonHere)}
	c.awaits = awaits{forward: f, await: forward.Register(f, &awaitMethod{Rule: verb.Rule{Name: "await", Idempotent: true}, Run: c.awaitHere,
		Wait: func(a *awaitArgs) *time.Duration { return &a.Wait }})}
	c.remote = remoteClaims{forward: f, peers: p, log: log}
	return c
}

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
