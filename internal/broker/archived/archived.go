// Package archived is the form of a dead letter in the archive, one line of JSON, and reads pages of them. It knows neither how the lines
// are stored nor when a task is archived.
package archived

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/task"
)

// Task is a dead letter as it is stored in the archive: one line of JSON.
type Task struct {
	ArchivedAt time.Time         `json:"archived_at"`
	Cause      string            `json:"cause"`
	ID         string            `json:"task_id"`
	Namespace  string            `json:"namespace"`
	Queue      string            `json:"queue"`
	Type       string            `json:"type"`
	State      string            `json:"state"`
	Reason     string            `json:"reason"`
	Priority   string            `json:"priority"`
	Key        string            `json:"key,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	// Payload is the original bytes, in base64.
	Payload        []byte    `json:"payload,omitempty"`
	ContentType    string    `json:"content_type,omitempty"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	CreatedAt      time.Time `json:"created_at"`
	// Options set on the task itself, overriding the defaults of its queue and the server. Records of earlier releases lack them.
	IdempotencyTTL Period  `json:"idempotency_ttl,omitempty"`
	MaxAttempts    int     `json:"max_attempts,omitempty"`
	Retry          *Retry  `json:"retry,omitempty"`
	Timeout        Period  `json:"timeout,omitempty"`
	ExpiresIn      Period  `json:"expires_in,omitempty"` // from created_at
	Retention      *Period `json:"retention,omitempty"`
	Cost           int     `json:"cost,omitempty"`

	Unique *Unique `json:"unique,omitempty"`
	Parent *Parent `json:"parent,omitempty"`
	// Then holds the follow-up tasks, encoded by task.EncodeSpec, in base64.
	Then     [][]byte  `json:"then,omitempty"`
	EndedAt  time.Time `json:"ended_at"`
	Attempts []Attempt `json:"attempts"` // the newest, if they are many

	Failures int `json:"failures,omitempty"`
	Crashes  int `json:"crashes,omitempty"`
	Releases int `json:"releases,omitempty"`
	Snoozes  int `json:"snoozes,omitempty"`
}

// taskBytes is roughly what a task and each of its attempts and headers take up of a message beside their texts.
const taskBytes, attemptBytes, headerBytes = 512, 128, 8

// Bytes returns roughly how much of a message the task takes up, and not less.
func (t *Task) Bytes() int {
	n := taskBytes + len(t.Type) + len(t.Reason) + len(t.Key) + len(t.Payload) + len(t.ContentType) + len(t.IdempotencyKey)
	if t.Parent != nil {
		n += len(t.Parent.Result) + len(t.Parent.ContentType)
	}
	if t.Unique != nil {
		n += len(t.Unique.Key)
	}
	for _, tag := range t.Tags {
		n += headerBytes + len(tag)
	}
	for name, value := range t.Headers {
		n += headerBytes + len(name) + len(value)
	}
	for _, then := range t.Then {
		n += len(then)
	}
	for i := range t.Attempts {
		a := &t.Attempts[i]
		n += attemptBytes + len(a.Worker) + len(a.Message) + len(a.ErrorType) + len(a.Stack)
	}
	return n
}

// Unique is the unique key of an archived task.
type Unique struct {
	Key        string   `json:"key"`
	States     []string `json:"states"`
	OnConflict string   `json:"on_conflict"`
}

// Retry is the retry policy of an archived task.
type Retry struct {
	Initial Period  `json:"initial"`
	Max     Period  `json:"max"`
	Factor  float64 `json:"factor"`
	Jitter  float64 `json:"jitter"`
}

// Parent is the task or group that an archived task followed, with its result in base64.
type Parent struct {
	TaskID      string `json:"task_id,omitempty"`
	GroupID     string `json:"group_id,omitempty"`
	Result      []byte `json:"result,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Omitted     bool   `json:"result_omitted,omitempty"`
}

// Period is a duration, in JSON as text such as "1m30s".
type Period time.Duration

// MarshalText implements encoding.TextMarshaler, for package json.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for package json.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = Period(d)
	return err
}

// Attempt is an attempt of an archived task.
type Attempt struct {
	Attempt   int       `json:"attempt"`
	Fence     uint64    `json:"fence"`
	Worker    string    `json:"worker"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Outcome   string    `json:"outcome"`
	Message   string    `json:"message,omitempty"`
	ErrorType string    `json:"error_type,omitempty"`
	Stack     string    `json:"stack,omitempty"`
}

// Line returns a task as it is archived at a time, for a cause: a line of JSON. It fits into a page: of a task that was attempted often,
// and failed with long messages, the oldest attempts are left out.
func Line(v *query.View, cause string, now time.Time) ([]byte, error) {
	t := New(v, cause, now)
	for {
		line, err := json.Marshal(&t)
		if err != nil {
			return nil, fmt.Errorf("archive of task %s: %w", v.ID, err)
		}
		if len(line) <= MaxPageBytes || len(t.Attempts) == 0 {
			return line, nil
		}
		t.Attempts = t.Attempts[(len(t.Attempts)+1)/2:]
	}
}

// New returns a task as it is archived at a time, for a cause.
func New(v *query.View, cause string, now time.Time) Task {
	x := v.Exec
	t := Task{ArchivedAt: now.UTC(), Cause: cause, ID: v.ID.String(), Namespace: v.Namespace, Queue: v.Queue, Type: v.Type,
		State: x.State.String(), Reason: x.Reason, Priority: x.Priority.String(), Key: v.Key, Tags: v.Tags, Headers: v.Headers,
		Payload: v.Payload, ContentType: v.ContentType, IdempotencyKey: v.IdempotencyKey,
		CreatedAt: x.CreatedAt.Time(), EndedAt: x.EndedAt.Time(), IdempotencyTTL: Period(v.IdempotencyTTL), MaxAttempts: x.MaxAttempts,
		Timeout: Period(v.Timeout), Retention: (*Period)(x.Retention), Cost: x.Cost,
		Failures: x.Failures, Crashes: x.Crashes, Releases: x.Releases, Snoozes: x.Snoozes}
	if r := v.Retry; r != nil {
		t.Retry = &Retry{Initial: Period(r.Initial), Max: Period(r.Max), Factor: r.Factor, Jitter: r.Jitter}
	}
	if x.ExpiresAt != 0 {
		t.ExpiresIn = Period(x.ExpiresAt.Sub(x.CreatedAt))
	}
	t.Parent = parent(v.Parent)
	if u := x.Unique; u != nil {
		t.Unique = &Unique{Key: u.Key, OnConflict: u.OnConflict.String()}
		for _, s := range u.States.List() {
			t.Unique.States = append(t.Unique.States, s.String())
		}
	}
	for _, f := range v.Then {
		t.Then = append(t.Then, f.Spec)
	}
	for _, a := range v.Attempts {
		t.Attempts = append(t.Attempts, Attempt{Attempt: a.Number, Fence: a.Fence, Worker: a.Worker,
			StartedAt: a.StartedAt.Time(), EndedAt: a.EndedAt.Time(), Outcome: a.Outcome.String(),
			Message: a.Failure.Message, ErrorType: a.Failure.Type, Stack: a.Failure.Stack})
	}
	return t
}

func parent(p *task.Parent) *Parent {
	if p == nil {
		return nil
	}
	out := &Parent{Result: p.Result, ContentType: p.ContentType, Omitted: p.Omitted}
	if p.ID != (task.ID{}) {
		out.TaskID = p.ID.String()
	}
	if p.Group != (task.ID{}) {
		out.GroupID = p.Group.String()
	}
	return out
}
