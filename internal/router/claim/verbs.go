package claim

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/verb"
)

// BrokerVerbs are the calls on a broker that this package makes, wherever the shard is led.
var BrokerVerbs verb.Table[*broker.Broker]

// Claiming claims tasks of a shard, waiting up to Wait for the first.
type Claiming struct {
	Shard uint32
	Call  broker.ClaimCall
	Wait  time.Duration
}

// TargetShard implements verb.Sharded.
func (q *Claiming) TargetShard() uint32 { return q.Shard }

// Waits implements verb.Waiting.
func (q *Claiming) Waits() *time.Duration { return &q.Wait }

// TasksClaimed are tasks and, on the wire, the timeout of each envelope, which is hidden by the task's own field of the same name.
type TasksClaimed struct {
	Out []broker.Claimed
	broker.Stamped
	Timeouts []time.Duration
}

// Pack makes the answer ready to travel.
func (a *TasksClaimed) Pack() {
	a.Timeouts = make([]time.Duration, len(a.Out))
	for i := range a.Out {
		if e := a.Out[i].Envelope; e != nil {
			a.Timeouts[i] = e.Timeout
		}
	}
}

// Unpack is the inverse of Pack.
func (a *TasksClaimed) Unpack() {
	for i := range min(len(a.Out), len(a.Timeouts)) {
		if e := a.Out[i].Envelope; e != nil {
			e.Timeout = a.Timeouts[i]
		}
	}
}

// ClaimTasks claims tasks. Other nodes do not call it: if an answer were lost on the way, nobody would have the tasks.
var ClaimTasks = verb.New(&BrokerVerbs, verb.Rule{Name: "claim-here", Local: true},
	func(b *broker.Broker, ctx context.Context, q Claiming) (out TasksClaimed, err error) {
		out.Out, out.At, err = b.Claim(ctx, q.Shard, q.Call, q.Wait)
		return out, err
	})

// AwaitLocal waits until there is something to claim, or the call ends.
var AwaitLocal = verb.NewVoid(&BrokerVerbs, verb.Rule{Name: "await-here", Local: true},
	func(b *broker.Broker, ctx context.Context, q Claiming) error { return b.Await(ctx, q.Shard, q.Call) })

// AwaitTasks waits up to Wait for something to claim, and reports whether there is.
var AwaitTasks = verb.New(&BrokerVerbs, verb.Rule{Name: "await", Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q Claiming) (bool, error) {
		return AwaitFor(ctx, q, b.Await)
	})

// AwaitFor waits for what a Claiming says by a function that waits until its context ends.
func AwaitFor(ctx context.Context, q Claiming, await func(ctx context.Context, shard uint32, c broker.ClaimCall) error) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	err := await(waiting, q.Shard, q.Call)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// Settling ends or extends claims of a shard.
type Settling struct {
	Shard uint32
	Calls []broker.Settle
}

// TargetShard implements verb.Sharded.
func (q *Settling) TargetShard() uint32 { return q.Shard }

// Pack keeps an empty checkpoint from looking like none on the wire.
func (q *Settling) Pack() {
	for i := range q.Calls {
		if c := &q.Calls[i].Extend; c.Checkpoint != nil && *c.Checkpoint == nil {
			c.Checkpoint = &[]byte{}
		}
	}
}

// Unpack is the inverse of Pack.
func (q *Settling) Unpack() {}

// ClaimsSettled has a result for each call.
type ClaimsSettled struct {
	Out []broker.Settled
	broker.Stamped
	Faults []*forward.Fault // on the wire, those of Out
}

func (a *ClaimsSettled) item(i int) *error { return &a.Out[i].Err }

// Pack makes the answer ready to travel.
func (a *ClaimsSettled) Pack() { a.Faults = forward.FaultsOf(len(a.Out), a.item) }

// Unpack is the inverse of Pack.
func (a *ClaimsSettled) Unpack() { forward.ErrorsOf(a.Faults, len(a.Out), a.item) }

// SettleClaims runs verbs on claims.
var SettleClaims = verb.New(&BrokerVerbs, verb.Rule{Name: "settle"},
	func(b *broker.Broker, ctx context.Context, q Settling) (out ClaimsSettled, err error) {
		out.Out, out.At, err = b.Settle(ctx, q.Shard, q.Calls)
		return out, err
	})
