package broker

import (
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Types of the engine and the shard, for callers that import neither.
type (
	Stamp            = shard.Stamp
	Accepted         = engine.Accepted
	Attempt          = schema.Attempt
	BreakerInfo      = breaker.Info
	Claimed          = engine.Claimed
	Edit             = engine.Edit
	Extension        = engine.Extension
	Explanation      = explain.Explanation
	Failing          = engine.FailRequest
	Failure          = schema.Failure
	Filter           = query.Filter
	PayloadField     = query.PayloadField
	Follower         = schema.Follower
	Group            = query.DeadGroup
	Hold             = engine.Hold
	Lost             = engine.Lost
	Page             = query.Page
	PanicError       = shard.PanicError
	Progress         = engine.Progress
	QueueExplanation = explain.QueueExplanation
	QueueInfo        = engine.QueueInfo
	HeldKey          = explain.HeldKey
	IdleType         = explain.IdleType
	Reason           = explain.Reason
	Runner           = explain.Runner
	Result           = schema.Result
	Share            = engine.Share
	View             = query.View
	ClaimCall        = engine.ClaimRequest
	Time             = store.Time
	FailResult       = engine.FailAction
)

// Results that a handler may ask for after a failed run.
const (
	FailRetry   = engine.FailRetry
	FailDead    = engine.FailDead
	FailDiscard = engine.FailDiscard
	FailPoison  = engine.FailPoison
)

// States of a breaker that is not closed.
const (
	BreakerOpen    = breaker.Open
	BreakerProbing = breaker.Probing
)

// TimeOf converts a wall-clock time.
func TimeOf(t time.Time) Time { return store.TimeOf(t) }

// Enqueued is the result for one task of an enqueue.
type Enqueued struct {
	Accepted
	Err error // if set, nothing was stored
}

// Verb is the verb of a Settle.
type Verb uint8

const (
	Ack Verb = 1 + iota
	Fail
	Extend
	Release
	GiveBack // releases a claim whose answer nobody received
)

// Settle is one verb on a claim, with its arguments.
type Settle struct {
	Verb   Verb
	Hold   Hold
	Result Result        // of Ack
	Fail   Failing       // of Fail
	Extend Extension     // of Extend
	Delay  time.Duration // of Release: a snooze
	Late   bool          // of Ack and Release: also allowed when the lease was lost, if nobody has claimed the task since
}

// Settled is the result of a Settle.
type Settled struct {
	State      task.State
	NextRunAt  Time // of Fail and Release
	LeaseUntil Time // of Extend
	Err        error
}

// MergeGroups merges the lists of several shards, the largest group first.
func MergeGroups(lists ...[]Group) []Group { return query.MergeGroups(lists...) }

// PrintText returns the fingerprint of a Group in the form that filters use.
func PrintText(print uint64) string { return fingerprint.Text(print) }

// CheckPayload refuses conditions on payload fields that exceed the limits.
func CheckPayload(fields []PayloadField) error { return query.CheckPayload(fields) }
