package pawl

import (
	"encoding/json"
	"fmt"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// State is the exact place of a task in its life.
type State string

// The states.
const (
	StateScheduled State = "scheduled" // waits for its time
	StateReady     State = "ready"     // can be claimed
	StateClaimed   State = "claimed"   // a worker holds it under a lease
	StateRetrying  State = "retrying"  // failed, waits for its next attempt
	StateSucceeded State = "succeeded"
	StateDiscarded State = "discarded" // ended on purpose
	StateDead      State = "dead"      // a dead letter: should have succeeded
	StatePoisoned  State = "poisoned"  // its payload can't be read
	StateCancelled State = "cancelled"
)

// Ended reports whether the task has left the queue.
func (s State) Ended() bool {
	switch s {
	case StateSucceeded, StateDiscarded, StateDead, StatePoisoned, StateCancelled:
		return true
	}
	return false
}

// Status is the coarse word for a state.
type Status string

// The statuses.
const (
	StatusQueued     Status = "queued"     // scheduled, ready, retrying
	StatusProcessing Status = "processing" // claimed
	StatusCompleted  Status = "completed"  // succeeded
	StatusFailed     Status = "failed"     // dead, discarded, poisoned
	StatusCancelled  Status = "cancelled"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"    // will be retried, or was the last attempt
	OutcomeDead       Outcome = "dead"      // not retryable
	OutcomeDiscarded  Outcome = "discarded" // ended on purpose
	OutcomePoisoned   Outcome = "poisoned"
	OutcomeLeaseLost  Outcome = "lease_lost" // the worker vanished
	OutcomeTimedOut   Outcome = "timed_out"  // ran past its timeout, and the worker did not say so
	OutcomeReleased   Outcome = "released"   // given back, no attempt used
	OutcomeSnoozed    Outcome = "snoozed"    // put off, no attempt used
	OutcomeCancelled  Outcome = "cancelled"
	OutcomeLeaderless Outcome = "leaderless" // its lease ran out while no broker served: no attempt used
)

// Failed reports whether the handler did not do what it should have done. Metrics of failures count these outcomes: a task that was
// discarded, snoozed, cancelled or given back has not failed.
func (o Outcome) Failed() bool { return o == OutcomeFailed || o == OutcomeDead || o == OutcomePoisoned }

// TaskInfo is everything the broker knows of a task. A zero time means: not yet, or never.
type TaskInfo struct {
	ID                string
	Type              string
	Queue             string
	Status            Status
	State             State
	Reason            string // why it is in its end state
	Priority          Priority
	Payload           []byte // left out of lists unless asked for
	ContentType       string
	Result            []byte
	ResultContentType string
	Attempts          int // begun: the number of the last one
	MaxAttempts       int
	Failures          int
	Crashes           int // leases lost
	Releases          int
	Snoozes           int
	Fence             int64 // claims so far
	AttemptLog        []Attempt
	Progress          Progress
	Worker            string // that holds it, or held it last
	CreatedAt         time.Time
	RunAt             time.Time // when it is or was due
	ClaimedAt         time.Time
	LeaseExpiresAt    time.Time
	EndedAt           time.Time
	ExpiresAt         time.Time // of ExpiresIn
	KeptUntil         time.Time // when retention removes it
	IdempotencyKey    string
	Key               string
	Tags              []string
	Headers           map[string]string
	Retry             RetryPolicy
	Timeout           time.Duration
	Retention         time.Duration
	Checkpoint        []byte
	Cost              int // tokens of rate limits that a start takes
	Unique            *Unique
	WaitsFor          string     // the id of the task that runs and holds the unique key
	GroupID           string     // of the group that it is a member of
	Parent            *Parent    // what it follows; nil: nothing
	Then              []Follower // what follows it
	ETag              string     // of what Update changes: another one if that is different; only with the payload
	MovedTo           string     // the id of the task as which it lives on in another queue
	MovedFrom         string     // the id of the task that lives on as this one
}

// DecodeResult decodes the result from JSON into v, which stays as it is if there is no result.
func (t *TaskInfo) DecodeResult(v any) error { return decode(t.ID, "result", t.Result, v) }

// DecodePayload decodes the payload from JSON into v.
func (t *TaskInfo) DecodePayload(v any) error { return decode(t.ID, "payload", t.Payload, v) }

func decode(id, what string, data []byte, v any) error {
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("pawl: %s of task %q: %w", what, id, err)
	}
	return nil
}

// Progress is what a handler last said of its way.
type Progress struct {
	Percent float64 `json:"percent"` // 0 to 100
	Message string  `json:"message,omitempty"`
}

// Attempt is one claim of a task and how it ended.
type Attempt struct {
	Attempt   int
	Fence     int64
	Worker    string
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	Outcome   Outcome   // "" while it runs
	Error     *Failure  // nil if there was none
	Waited    time.Duration
	NextRunAt time.Time // after a retry or snooze
}

// Failure is what a handler said of its error.
type Failure struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`  // of the innermost error, as %T prints it
	Stack   string `json:"stack,omitempty"` // of a panic
}

// EndedError is the error of waiting for a task that ended otherwise than by success.
type EndedError struct {
	Task *TaskInfo
}

// Error says how the task ended and why.
func (e *EndedError) Error() string {
	msg := fmt.Sprintf("pawl: task %q is %s", e.Task.ID, e.Task.State)
	if e.Task.Reason != "" {
		msg += " (" + e.Task.Reason + ")"
	}
	if f := e.Task.LastFailure(); f != nil {
		msg += ": " + f.Message
	}
	return msg
}

// Is reports whether target is ErrCancelled and the task was cancelled.
func (e *EndedError) Is(target error) bool {
	return target == ErrCancelled && e.Task.State == StateCancelled
}

// LastFailure is the error of the last attempt that had one, or nil.
func (t *TaskInfo) LastFailure() *Failure {
	for i := len(t.AttemptLog) - 1; i >= 0; i-- {
		if f := t.AttemptLog[i].Error; f != nil {
			return f
		}
	}
	return nil
}

func infoOf(p *pawlv1.Task) *TaskInfo {
	if p == nil {
		return nil
	}
	t := &TaskInfo{
		ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(),
		Status: statusOf(p.GetStatus()), State: stateOf(p.GetState()), Reason: p.GetReason(), Priority: priorityOf(p.GetPriority()),
		Payload: p.GetPayload(), ContentType: p.GetContentType(),
		Result: p.GetResult(), ResultContentType: p.GetResultContentType(),
		Attempts: int(p.GetAttempts()), MaxAttempts: int(p.GetMaxAttempts()),
		Failures: int(p.GetFailures()), Crashes: int(p.GetCrashes()), Releases: int(p.GetReleases()), Snoozes: int(p.GetSnoozes()),
		Fence:     p.GetFence(),
		Progress:  Progress{Percent: p.GetProgress().GetPercent(), Message: p.GetProgress().GetMessage()},
		Worker:    p.GetWorker(),
		CreatedAt: timeOf(p.GetCreatedAt()), RunAt: timeOf(p.GetRunAt()), ClaimedAt: timeOf(p.GetClaimedAt()),
		LeaseExpiresAt: timeOf(p.GetLeaseExpiresAt()), EndedAt: timeOf(p.GetEndedAt()),
		ExpiresAt: timeOf(p.GetExpiresAt()), KeptUntil: timeOf(p.GetKeptUntil()),
		IdempotencyKey: p.GetIdempotencyKey(), Key: p.GetKey(), Tags: p.GetTags(), Headers: p.GetHeaders(),
		Retry: retryPolicyOf(p.GetRetry()), Timeout: p.GetTimeout().AsDuration(), Retention: p.GetRetention().AsDuration(),
		Checkpoint: p.GetCheckpoint(), Cost: int(p.GetCost()),
		Unique: uniqueOf(p.GetUnique()), WaitsFor: p.GetWaitsFor(), GroupID: p.GetGroupId(), Parent: parentOf(p.GetParent()), Then: followersOf(p.GetThen()),
		ETag: p.GetEtag(), MovedTo: p.GetMovedTo(), MovedFrom: p.GetMovedFrom(),
	}
	for _, a := range p.GetAttemptLog() {
		t.AttemptLog = append(t.AttemptLog, attemptOf(a))
	}
	return t
}

func attemptOf(p *pawlv1.Attempt) Attempt {
	a := Attempt{
		Attempt: int(p.GetAttempt()), Fence: p.GetFence(), Worker: p.GetWorker(),
		StartedAt: timeOf(p.GetStartedAt()), EndedAt: timeOf(p.GetEndedAt()),
		Outcome: outcomeOf(p.GetOutcome()),
		Waited:  p.GetWaited().AsDuration(), NextRunAt: timeOf(p.GetNextRunAt()),
	}
	if e := p.GetError(); e != nil {
		a.Error = &Failure{Message: e.GetMessage(), Type: e.GetType(), Stack: e.GetStack()}
	}
	return a
}

func infosOf(items []*pawlv1.Task) []*TaskInfo {
	out := make([]*TaskInfo, len(items))
	for i, p := range items {
		out[i] = infoOf(p)
	}
	return out
}
