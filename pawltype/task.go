// Package pawltype holds the data types of the SDK: what calls return, what options take, and errors. It is separate to keep package
// pawl small; it makes no calls, and keeps no state.
package pawltype

import (
	"encoding/json"
	"fmt"
	"time"
)

// Task is everything the broker knows of a task. A zero time means not yet, or never.
type Task struct {
	ID                string
	Type              string
	Queue             string
	Status            Status
	State             State
	Reason            string // why it is in its final state
	Priority          Priority
	Payload           []byte // left out of lists unless asked for
	ContentType       string
	Result            []byte
	ResultContentType string
	Attempts          int // started so far: the number of the last one
	MaxAttempts       int
	Failures          int
	Crashes           int // leases lost
	Releases          int
	Snoozes           int
	Fence             int64 // of the last claim; 0: never claimed
	AttemptLog        []Attempt
	Progress          Progress
	Worker            string // holds it, or held it last
	CreatedAt         time.Time
	RunAt             time.Time // when it is or was due
	ClaimedAt         time.Time
	LeaseExpiresAt    time.Time
	EndedAt           time.Time
	ExpiresAt         time.Time // from ExpiresIn
	KeptUntil         time.Time // when retention removes it
	IdempotencyKey    string
	Key               string
	Tags              []string
	Headers           map[string]string
	Retry             RetryPolicy
	Timeout           time.Duration
	Retention         time.Duration
	Checkpoint        []byte
	Cost              int // rate limit tokens that a start takes
	Unique            *UniqueOpts
	WaitsFor          string     // the id of the task that runs and holds the unique key, or of the first of its key in a strict order
	GroupID           string     // of the group that it belongs to
	Parent            *Parent    // the task or group that it follows; nil: none
	Then              []Follower // its follow-up tasks
	ETag              string     // changes with whatever Update can change; set only if the payload is
	MovedTo           string     // the id under which the task continues in another queue
	MovedFrom         string     // the id of the task that continues as this one
}

// DecodeResult decodes the result from JSON into v, which is left unchanged if there is no result.
func (t *Task) DecodeResult(v any) error { return decode(t.ID, "result", t.Result, v) }

// DecodePayload decodes the payload from JSON into v.
func (t *Task) DecodePayload(v any) error { return decode(t.ID, "payload", t.Payload, v) }

func decode(id, what string, data []byte, v any) error {
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("pawl: %s of task %q: %w", what, id, err)
	}
	return nil
}

// Progress is the progress that a handler last reported.
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

// Failure describes a handler's error.
type Failure struct {
	Message string `json:"message"`
	Type    string `json:"type,omitempty"`  // of the innermost error, as %T prints it
	Stack   string `json:"stack,omitempty"` // of a panic
}

// EndedError is returned when waiting for a task that ended other than by succeeding.
type EndedError struct {
	Task *Task
}

// Error says how the task ended and why.
func (e *EndedError) Error() string {
	msg := fmt.Sprintf("pawl: task %q is %s", e.Task.ID, e.Task.State)
	if e.Task.Reason != "" {
		msg += " (" + e.Task.Reason + ")"
	}
	if f := e.Task.LastFailure(); f != nil && e.Task.State != StateCancelled { // a cancelled task was not ended by what had failed before
		msg += ": " + f.Message
	}
	return msg
}

// Is reports whether target is ErrCancelled and the task was cancelled.
func (e *EndedError) Is(target error) bool {
	return target == ErrCancelled && e.Task.State == StateCancelled
}

// LastFailure returns the error of the last attempt that had one, or nil.
func (t *Task) LastFailure() *Failure {
	for i := len(t.AttemptLog) - 1; i >= 0; i-- {
		if f := t.AttemptLog[i].Error; f != nil {
			return f
		}
	}
	return nil
}
