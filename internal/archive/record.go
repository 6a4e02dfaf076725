package archive

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Record is a dead letter as a line of the archive has it. docs/lifecycle.md describes the fields: whoever has the files may read them.
type Record struct {
	ArchivedAt time.Time `json:"archived_at"`
	Cause      string    `json:"cause"` // retention or discard
	ID         string    `json:"task_id"`
	Namespace  string    `json:"namespace"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	CreatedAt  time.Time `json:"created_at"`
	EndedAt    time.Time `json:"ended_at"`
	Task
	Parent   *Parent   `json:"parent,omitempty"`
	Attempts []Attempt `json:"attempts"` // the newest, if they are many
	Failures int       `json:"failures,omitempty"`
	Crashes  int       `json:"crashes,omitempty"`
	Releases int       `json:"releases,omitempty"`
	Snoozes  int       `json:"snoozes,omitempty"`
}

// Task is what a producer would send to enqueue the task again: the body of POST /api/v1/tasks, except that payloads of
// all content types are in base64, byte for byte. It has the settings of the task itself, not the defaults of its
// queue.
type Task struct {
	Type           string            `json:"type"`
	Queue          string            `json:"queue"`
	Priority       string            `json:"priority,omitempty"`
	Payload        []byte            `json:"payload,omitempty"`
	ContentType    string            `json:"content_type,omitempty"`
	Delay          Period            `json:"delay,omitempty"` // of follow-up tasks only, like run_at
	RunAt          time.Time         `json:"run_at,omitzero"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	IdempotencyTTL Period            `json:"idempotency_ttl,omitempty"`
	MaxAttempts    int               `json:"max_attempts,omitempty"`
	Retry          *Retry            `json:"retry,omitempty"`
	Timeout        Period            `json:"timeout,omitempty"`
	ExpiresIn      Period            `json:"expires_in,omitempty"`
	Retention      *Period           `json:"retention,omitempty"`
	Key            string            `json:"key,omitempty"`
	Cost           int               `json:"cost,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
	Unique         *Unique           `json:"unique,omitempty"`
	Then           []Task            `json:"then,omitempty"`
}

// TaskOf returns what a producer would send to enqueue a task again.
func TaskOf(s *task.Spec) Task {
	t := Task{Type: s.Type, Queue: s.Queue, Priority: s.Priority.String(), Payload: s.Payload, ContentType: s.ContentType,
		Delay: Period(s.Delay), RunAt: s.RunAt, IdempotencyKey: s.IdempotencyKey, IdempotencyTTL: Period(s.IdempotencyTTL),
		MaxAttempts: s.MaxAttempts, Timeout: Period(s.Timeout), ExpiresIn: Period(s.ExpiresIn),
		Retention: (*Period)(s.Retention), Key: s.Key, Cost: s.Cost, Tags: s.Tags, Headers: s.Headers}
	if r := s.Retry; r != nil {
		t.Retry = &Retry{Initial: Period(r.Initial), Max: Period(r.Max), Factor: r.Factor, Jitter: r.Jitter}
	}
	if u := s.Unique; u != nil {
		t.Unique = &Unique{Key: u.Key, OnConflict: u.OnConflict.String()}
		for _, state := range u.States.List() {
			t.Unique.States = append(t.Unique.States, state.String())
		}
	}
	for i := range s.Then {
		t.Then = append(t.Then, TaskOf(&s.Then[i]))
	}
	return t
}

// Unique is the unique key of a task.
type Unique struct {
	Key        string   `json:"key"`
	States     []string `json:"states"`
	OnConflict string   `json:"on_conflict"`
}

// Retry is the retry policy of a task.
type Retry struct {
	Initial Period  `json:"initial"`
	Max     Period  `json:"max"`
	Factor  float64 `json:"factor"`
	Jitter  float64 `json:"jitter"`
}

// Parent is the task or group that a task followed, with its result in base64.
type Parent struct {
	TaskID      string `json:"task_id,omitempty"`
	GroupID     string `json:"group_id,omitempty"`
	Result      []byte `json:"result,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Omitted     bool   `json:"result_omitted,omitempty"`
}

// ParentOf returns what a task followed; nil: nothing.
func ParentOf(p *task.Parent) *Parent {
	if p == nil {
		return nil
	}
	return &Parent{TaskID: textOf(p.ID), GroupID: textOf(p.Group), Result: p.Result, ContentType: p.ContentType, Omitted: p.Omitted}
}

// textOf returns an id as text; "": there is none.
func textOf(id task.ID) string {
	if id == (task.ID{}) {
		return ""
	}
	return id.String()
}

// Attempt is an attempt of a task.
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

// MaxLine is the size to which Line shortens a record.
const MaxLine = 12 << 20

// Line returns a record as a line. If it is longer than MaxLine, because the task was attempted often and failed with
// long messages, the oldest attempts are left out.
func (r Record) Line() ([]byte, error) {
	for {
		line, err := json.Marshal(&r)
		if err != nil {
			return nil, fmt.Errorf("archive of task %s: %w", r.ID, err)
		}
		if len(line) <= MaxLine || len(r.Attempts) == 0 {
			return line, nil
		}
		r.Attempts = r.Attempts[(len(r.Attempts)+1)/2:]
	}
}

// decode is the inverse of Line for a file of a namespace.
func decode(ns string, line []byte) (r Record, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, err
	}
	if r.Namespace != ns {
		return r, fmt.Errorf("namespace %q is not that of the file", r.Namespace)
	}
	if id, err := task.ParseID(r.ID); err != nil || id.String() != r.ID {
		return r, fmt.Errorf("task_id %q is not a UUID", r.ID)
	}
	return r, nil
}
