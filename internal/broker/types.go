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

// The engine's and the shard's words, for callers that know neither.
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
	FailResult       = engine.Fall
)

// What a handler asks for after a failed run.
const (
	FailRetry   = engine.FallRetry
	FailDead    = engine.FallDead
	FailDiscard = engine.FallDiscard
	FailPoison  = engine.FallPoison
)

// Where a breaker is that is not closed.
const (
	BreakerOpen    = breaker.Open
	BreakerProbing = breaker.Probing
)

// TimeOf converts a wall-clock time.
func TimeOf(t time.Time) Time { return store.TimeOf(t) }

// Enqueued is the answer for one task of an enqueue.
type Enqueued struct {
	Accepted
	Err error // if set, nothing was stored
}

// Verb names what a settle does with a claim.
type Verb uint8

const (
	Ack Verb = 1 + iota
	Fail
	Extend
	Release
	GiveBack // a release of a claim whose answer nobody received
)

// Settle is one verb on a claim, with what it needs.
type Settle struct {
	Verb   Verb
	Hold   Hold
	Result Result        // of Ack
	Fail   Failing       // of Fail
	Extend Extension     // of Extend
	Delay  time.Duration // of Release: a snooze
	Late   bool          // of Ack and Release: also when the lease was lost, if nobody claimed the task since
}

// Settled is the answer to a Settle.
type Settled struct {
	State      task.State
	NextRunAt  Time // of Fail and Release
	LeaseUntil Time // of Extend
	Err        error
}

// Selection names dead letters or poisoned tasks of a queue, either by ids or by a filter.
type Selection struct {
	Queue  string
	State  task.State // Dead or Poisoned
	IDs    []task.ID
	Filter Filter
	Max    int64   // 0: all that match
	Rate   float64 // of a replay: tasks that become due in a second; 0: all at once
	DryRun bool
	By     task.Author // of the call
}

// MergeGroups makes one list of those of several shards, the largest group first.
func MergeGroups(lists ...[]Group) []Group { return query.MergeGroups(lists...) }

// PrintText is the fingerprint of a Group as filters have it.
func PrintText(print uint64) string { return fingerprint.Text(print) }

// CheckPayload refuses conditions on fields of payloads that are out of bounds.
func CheckPayload(fields []PayloadField) error { return query.CheckPayload(fields) }
