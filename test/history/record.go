package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
)

// Op names a call.
type Op string

// The calls that are recorded. A claim has one record for each task that it returned, all with the same Client, Seq, CallNS and
// ReturnNS, and one without a task if it returned none or was not answered. The same applies to batches of other calls.
const (
	Enqueue Op = "enqueue"
	Claim   Op = "claim"
	Ack     Op = "ack"
	Fail    Op = "fail"
	Release Op = "release" // and snooze, with a delay
	Extend  Op = "extend"
	Cancel  Op = "cancel"
	Retry   Op = "retry" // an operator's replay of an ended task
	RunNow  Op = "run_now"
	Discard Op = "discard" // an operator's discard
	Get     Op = "get"
)

// Code is the outcome of a call.
type Code string

// Taking an Unknown for a Nope would report violations that are none, and taking a Nope for an Unknown would hide some. In doubt a
// call is Unknown.
const (
	OK      Code = "ok"
	Refused Code = "refused" // because of the task's state, which the broker has checked; Reason says why
	Nope    Code = "nope"    // refused before the log: a limit, a bad argument, no leader. Certainly without effect
	Unknown Code = "unknown" // no answer: it may take effect at any time, or never
)

// Reason is why a call was refused.
type Reason string

// The first four are the reasons of a stale claim.
const (
	Expired    Reason = "expired"
	Reclaimed  Reason = "reclaimed"
	Cancelled  Reason = "cancelled"
	Completed  Reason = "completed"
	WrongState Reason = "wrong_state"
	NotFound   Reason = "not_found"
	Conflict   Reason = "conflict"
)

// Fall is the outcome that a worker requested with a failure.
type Fall string

// FallRetry is the default: "" means the same.
const (
	FallRetry   Fall = "retry"
	FallDead    Fall = "dead"
	FallDiscard Fall = "discard"
	FallPoison  Fall = "poison"
)

// Record is one call of a client and its answer. Fields that do not apply to a call, or were not seen, are zero.
//
// CallNS and ReturnNS are taken from one monotonic clock for all clients, before the first byte is sent and after the
// last is read. Times that end in US are the shard's, in microseconds since 1970.
type Record struct {
	Client   int    `json:"client"`
	Seq      int    `json:"seq"` // of the client's calls
	CallNS   int64  `json:"call_ns"`
	ReturnNS int64  `json:"return_ns"` // of an unknown outcome: when the client gave up
	Op       Op     `json:"op"`
	Task     string `json:"task,omitempty"` // of an enqueue or a claim: as answered
	Token    string `json:"token,omitempty"`
	Fence    int64  `json:"fence,omitempty"` // of a claim and a read: as answered; of calls with a token: the token's
	Queue    string `json:"queue,omitempty"` // of a claim: the requested queues, separated by commas
	Payload  uint64 `json:"payload_hash,omitempty"`
	// Retried: the call was sent more than once before this answer, so it may have taken effect earlier than the answer says. It is
	// better not to repeat calls below the recorder, and to record each one.
	Retried bool `json:"retried,omitempty"`
	Args
	Answer
}

// Args are the arguments of a call.
type Args struct {
	RequestID   string `json:"request_id,omitempty"`
	Key         string `json:"idempotency_key,omitempty"`
	ClaimKey    string `json:"claim_key,omitempty"`
	DelayUS     int64  `json:"delay_us,omitempty"`
	RunAtUS     int64  `json:"run_at_us,omitempty"`
	MaxAttempts int    `json:"max_attempts,omitempty"` // 0: unknown, so that running out of attempts is not checked
	Fall        Fall   `json:"outcome,omitempty"`
}

// Answer is what the client received. Shard, Index and TimeUS come from the Pawl- headers, and Index is 0 without them.
type Answer struct {
	Code         Code   `json:"code"`
	Reason       Reason `json:"reason,omitempty"`
	Duplicate    bool   `json:"duplicate,omitempty"`
	Shard        uint32 `json:"shard,omitempty"`
	Index        uint64 `json:"index,omitempty"`
	TimeUS       int64  `json:"time_us,omitempty"`
	State        string `json:"state,omitempty"`          // of a refusal with wrong_state: the state that it named
	Attempt      int    `json:"attempt,omitempty"`        // of a claim: its number; of a read: the number of the last that began
	LeaseUntilUS int64  `json:"lease_until_us,omitempty"` // of a claim, an extension, and a read of a claimed task
	DueUS        int64  `json:"due_us,omitempty"`         // next_run_at
	Releases     int    `json:"releases,omitempty"`       // of a read: how often it was released, by holders or by the broker
}

// String returns the record in one line.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.6f-%.6f client %d #%d %s %s", float64(r.CallNS)/1e9, float64(r.ReturnNS)/1e9, r.Client, r.Seq, r.Op, r.Task)
	note := func(name string, value any, set bool) {
		if set {
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	note("fence", r.Fence, r.Fence != 0)
	note("token", r.Token, r.Token != "")
	note("queue", r.Queue, r.Queue != "")
	note("payload", fmt.Sprintf("%x", r.Payload), r.Payload != 0)
	note("request", r.RequestID, r.RequestID != "")
	note("key", r.Key, r.Key != "")
	note("claim_key", r.ClaimKey, r.ClaimKey != "")
	note("delay_us", r.DelayUS, r.DelayUS != 0)
	note("run_at_us", r.RunAtUS, r.RunAtUS != 0)
	note("max_attempts", r.MaxAttempts, r.MaxAttempts != 0)
	note("outcome", r.Fall, r.Fall != "")
	note("retried", r.Retried, r.Retried)
	fmt.Fprintf(&b, ": %s", r.Code)
	note("reason", r.Reason, r.Reason != "")
	note("duplicate", r.Duplicate, r.Duplicate)
	note("state", r.State, r.State != "")
	note("attempt", r.Attempt, r.Attempt != 0)
	note("until_us", r.LeaseUntilUS, r.LeaseUntilUS != 0)
	note("due_us", r.DueUS, r.DueUS != 0)
	note("releases", r.Releases, r.Releases != 0)
	if r.Index != 0 {
		fmt.Fprintf(&b, " at %d/%d %d us", r.Shard, r.Index, r.TimeUS)
	}
	return b.String()
}

// Write writes records as JSON lines.
func Write(to io.Writer, records []Record) error {
	w := bufio.NewWriter(to)
	lines := json.NewEncoder(w)
	for i := range records {
		if err := lines.Encode(&records[i]); err != nil {
			return fmt.Errorf("history record %d: %w", i, err)
		}
	}
	return w.Flush()
}

// Read reads what Write wrote.
func Read(from io.Reader) (records []Record, err error) {
	lines := json.NewDecoder(bufio.NewReader(from))
	lines.DisallowUnknownFields()
	for {
		var r Record
		switch err := lines.Decode(&r); {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return nil, fmt.Errorf("history record %d: %w", len(records), err)
		}
		records = append(records, r)
	}
}

// HashPayload returns a hash of a payload for Record.Payload. It is never 0, which means that the payload was not seen.
func HashPayload(payload []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(payload)
	return max(h.Sum64(), 1)
}
