package pawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Version of the SDK, as workers tell it to the broker.
const Version = "0.1.0"

// Client is the way to a broker, or to the nodes of a cluster. Its methods may be called by any number of goroutines.
//
// A call that finds the broker unavailable is repeated with growing pauses until it is answered, its context ends, or
// WithRetryFor is over, if a repeat can do no harm. A call whose context ended may still have happened.
type Client struct {
	conn     connection
	direct   *direct // conn, unless that was switched off
	producer pawlv1.ProducerServiceClient
	worker   pawlv1.WorkerServiceClient
	operator pawlv1.OperatorServiceClient
	schedule pawlv1.ScheduleServiceClient
	audit    pawlv1.AuditServiceClient
	roster   pawlv1.RosterServiceClient
	events   pawlv1.EventServiceClient
	stats    pawlv1.StatsServiceClient
	access   pawlv1.AccessServiceClient
	webhook  pawlv1.WebhookServiceClient
	group    pawlv1.GroupServiceClient
	mass     pawlv1.OperationServiceClient
	cluster  pawlv1.ClusterServiceClient
	log      *slog.Logger
	observe  *telemetry
	retryFor time.Duration
	actor    string // of WithActor
	reason   string // of WithReason
	gather   gatherer
	budget   retryBudget
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
}

// connection is what a client's services run on.
type connection interface {
	grpc.ClientConnInterface
	Close() error
}

// indirect is a connection of a client that goes nowhere directly.
type indirect struct {
	*grpc.ClientConn
	producing *producing
}

// Invoke implements grpc.ClientConnInterface.
func (c *indirect) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	_, err := c.producing.invoke(ctx, method, req, resp, opts)
	return err
}

// Close ends the connection.
func (c *indirect) Close() error { return c.producing.close() }

// Dial makes a client of the broker at addr: "host:port", "host" (port 7295), "https://host:port" or "unix:///path". It does
// not wait for a connection: that is made by the first call, and made anew whenever it breaks. Close it when done.
//
// A cluster is given as a list with commas, "n1:7295,n2:7295,n3:7295": the client talks to one of its nodes, and goes on with
// another when that is gone. Any node takes any call, and sends it on to the leader of its shard. The client learns of that
// and connects to such leaders itself, at the addresses that they advertise; where it can't, nothing is lost but a detour. WithoutDirect
// switches that off.
//
// Connections are in plaintext to this machine; to others Dial wants https://, WithTLS or WithPlaintext. That holds for addresses
// that nodes advertise, too. A client with TLS never speaks plaintext. The server's certificate must be for the host of the address
// that is dialled.
func Dial(addr string, opts ...DialOption) (*Client, error) {
	cfg := dialConfig{log: slog.Default(), retryFor: defaultRetryFor, eager: eagerRequests}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := checkActor(cfg.actor); err != nil {
		return nil, err
	}
	if err := checkReason(cfg.reason); err != nil {
		return nil, err
	}
	observe, err := newTelemetry(&cfg, serverAttrs(addr)...)
	if err != nil {
		return nil, fmt.Errorf("pawl: metrics: %w", err)
	}
	target, known, err := cfg.targets(addr)
	if err != nil {
		return nil, err
	}
	base, err := grpc.NewClient(target, append(cfg.grpcOptions(), known...)...)
	if err != nil {
		return nil, fmt.Errorf("pawl: dial %q: %w", addr, err)
	}
	return newClient(&cfg, base, observe), nil
}

// newClient is a client over a connection.
func newClient(cfg *dialConfig, base *grpc.ClientConn, observe *telemetry) *Client {
	var conn connection
	var way *direct
	if cfg.indirect {
		conn = &indirect{base, &producing{conn: base, who: cfg.caller()}}
	} else {
		way = newDirect(base, cfg)
		conn = way
	}
	if cfg.keys != nil {
		conn = &sealing{connection: conn, keys: cfg.keys, ns: cfg.namespace}
	}
	c := &Client{
		conn:     conn,
		direct:   way,
		producer: pawlv1.NewProducerServiceClient(conn),
		worker:   pawlv1.NewWorkerServiceClient(conn),
		operator: pawlv1.NewOperatorServiceClient(conn),
		schedule: pawlv1.NewScheduleServiceClient(conn),
		audit:    pawlv1.NewAuditServiceClient(conn),
		roster:   pawlv1.NewRosterServiceClient(conn),
		events:   pawlv1.NewEventServiceClient(conn),
		stats:    pawlv1.NewStatsServiceClient(conn),
		access:   pawlv1.NewAccessServiceClient(conn),
		webhook:  pawlv1.NewWebhookServiceClient(conn),
		group:    pawlv1.NewGroupServiceClient(conn),
		mass:     pawlv1.NewOperationServiceClient(conn),
		cluster:  pawlv1.NewClusterServiceClient(conn),
		log:      cfg.log,
		observe:  observe,
		retryFor: cfg.retryFor,
		actor:    cfg.actor,
		reason:   cfg.reason,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.gather.client, c.gather.eager = c, cfg.eager
	c.budget.tokens = maxRetryTokens
	return c
}

// Close ends the calls that are under way and the connections. Workers must have been drained before.
func (c *Client) Close() error {
	c.cancel()
	c.gather.close()
	return c.conn.Close()
}

// call runs one RPC. If repeat is set it is run again while the broker is unavailable.
func call[Req, Resp any](ctx context.Context, c *Client, repeat bool, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	start := time.Now()
	for try := 0; ; try++ {
		resp, err := rpc(ctx, req)
		if err == nil {
			c.budget.succeeded()
			return resp, nil
		}
		err = c.failed(callError(ctx, err))
		if !repeat || !errors.Is(err, ErrUnavailable) || time.Since(start) > c.retryFor {
			return resp, err
		}
		if stop := c.pause(ctx, try, err); stop != nil {
			return resp, stop
		}
	}
}

// failed replaces the error of a call that Close ended.
func (c *Client) failed(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}

const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// freeTries is how often a call may be repeated beyond the budget after a node that was not ready: the next node may be.
const freeTries = 3

// pause waits before the next try of a call that was answered with err, or returns why there is none.
func (c *Client) pause(ctx context.Context, try int, err error) error {
	wait := max(backoffAfter(try, firstPause, maxPause), retryAfter(err))
	if try >= freeTries || !didNotRun(err) {
		wait = max(wait, c.budget.take(time.Now()))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (after %w)", ctx.Err(), err)
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// backoffAfter doubles from first to limit, less up to a half at random, so that clients don't come back in step.
func backoffAfter(try int, first, limit time.Duration) time.Duration {
	d := min(first<<min(try, 16), limit)
	return d/2 + rand.N(d/2+1)
}

// retryBudget paces the repeats of all calls of a client, so that a broker that is slow to come back is not met by a
// storm: ten at once, then one for each ten calls that succeed, and five a second in any case.
type retryBudget struct {
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

const (
	maxRetryTokens    = 10
	tokensPerSuccess  = 0.1
	retryTokensPerSec = 5
)

func (b *retryBudget) succeeded() {
	b.mu.Lock()
	b.tokens = min(b.tokens+tokensPerSuccess, maxRetryTokens)
	b.mu.Unlock()
}

// take uses one token and says how long to wait for it. The wait is bounded: then the call's own end decides.
func (b *retryBudget) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.IsZero() {
		b.tokens = min(b.tokens+now.Sub(b.last).Seconds()*retryTokensPerSec, maxRetryTokens)
	}
	b.last = now
	b.tokens = max(b.tokens-1, -maxPause.Seconds()*retryTokensPerSec)
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / retryTokensPerSec * float64(time.Second))
}
