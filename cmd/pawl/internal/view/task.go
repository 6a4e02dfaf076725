// Package view has what the commands print with -o json and yaml, with the names and forms of the REST API, and the
// words that tables use for the same things.
package view

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// Ref is the answer to an enqueue.
type Ref struct {
	TaskID    string         `json:"task_id,omitempty"`
	State     pawltype.State `json:"state,omitempty"`
	CreatedAt time.Time      `json:"created_at,omitzero"`
	Duplicate bool           `json:"duplicate"`
	Error     string         `json:"error,omitempty"`
}

// NewRef converts the answer to an enqueue.
func NewRef(r *pawl.Ref) Ref {
	return Ref{TaskID: r.ID, State: r.State, CreatedAt: r.CreatedAt, Duplicate: r.Duplicate}
}

// Unique is a unique key for programs.
type Unique struct {
	Key        string              `json:"key"`
	States     []pawltype.State    `json:"states"`
	OnConflict pawltype.OnConflict `json:"on_conflict"`
}

// NewUnique converts a unique key.
func NewUnique(u *pawltype.UniqueOpts) *Unique {
	if u == nil {
		return nil
	}
	return &Unique{u.Key, u.States, u.OnConflict}
}

// Parent is what a follow-up task follows: a task or a group.
type Parent struct {
	TaskID      string          `json:"task_id,omitempty"`
	GroupID     string          `json:"group_id,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Omitted     bool            `json:"result_omitted,omitempty"`
}

// Follower is a follow-up task.
type Follower struct {
	Type   string                 `json:"type"`
	Queue  string                 `json:"queue"`
	State  pawltype.FollowerState `json:"state"`
	TaskID string                 `json:"task_id,omitempty"`
	Reason string                 `json:"reason,omitempty"`
}

// NewParent converts what a task follows.
func NewParent(p *pawltype.Parent) *Parent {
	if p == nil {
		return nil
	}
	return &Parent{p.TaskID, p.GroupID, NewBytes(p.Result, p.ContentType), p.ContentType, p.Omitted}
}

// NewFollower converts a follow-up task.
func NewFollower(f *pawltype.Follower) *Follower {
	if f == nil {
		return nil
	}
	return &Follower{f.Type, f.Queue, f.State, f.TaskID, f.Reason}
}

// NewThen converts the rest of a chain.
func NewThen(then []pawltype.Follower) (views []Follower) {
	for i := range then {
		views = append(views, *NewFollower(&then[i]))
	}
	return views
}

// Task is a task with all its fields.
type Task struct {
	TaskID            string             `json:"task_id"`
	Type              string             `json:"type"`
	Queue             string             `json:"queue"`
	Status            pawltype.Status    `json:"status"`
	State             pawltype.State     `json:"state"`
	Reason            string             `json:"reason,omitempty"`
	Priority          pawltype.Priority  `json:"priority"`
	Payload           json.RawMessage    `json:"payload,omitempty"`
	ContentType       string             `json:"content_type,omitempty"`
	Result            json.RawMessage    `json:"result,omitempty"`
	ResultContentType string             `json:"result_content_type,omitempty"`
	Attempts          int                `json:"attempts"`
	MaxAttempts       int                `json:"max_attempts"`
	Failures          int                `json:"failures"`
	Crashes           int                `json:"crashes"`
	Releases          int                `json:"releases"`
	Snoozes           int                `json:"snoozes"`
	Fence             int64              `json:"fence"`
	AttemptLog        []Attempt          `json:"attempt_log,omitempty"`
	Progress          *pawltype.Progress `json:"progress,omitempty"`
	Worker            string             `json:"worker,omitempty"`
	CreatedAt         time.Time          `json:"created_at,omitzero"`
	RunAt             time.Time          `json:"run_at,omitzero"`
	ClaimedAt         time.Time          `json:"claimed_at,omitzero"`
	LeaseExpiresAt    time.Time          `json:"lease_expires_at,omitzero"`
	EndedAt           time.Time          `json:"ended_at,omitzero"`
	ExpiresAt         time.Time          `json:"expires_at,omitzero"`
	KeptUntil         time.Time          `json:"kept_until,omitzero"`
	IdempotencyKey    string             `json:"idempotency_key,omitempty"`
	Key               string             `json:"key,omitempty"`
	Tags              []string           `json:"tags,omitempty"`
	Headers           map[string]string  `json:"headers,omitempty"`
	Retry             *Retry             `json:"retry,omitempty"`
	Timeout           string             `json:"timeout,omitempty"`
	Retention         string             `json:"retention,omitempty"`
	Checkpoint        json.RawMessage    `json:"checkpoint,omitempty"`
	Unique            *Unique            `json:"unique,omitempty"`
	WaitsFor          string             `json:"waits_for,omitempty"`
	GroupID           string             `json:"group_id,omitempty"`
	Parent            *Parent            `json:"parent,omitempty"`
	Then              []Follower         `json:"then,omitempty"`
	ETag              string             `json:"etag,omitempty"`
	MovedTo           string             `json:"moved_to,omitempty"`
	MovedFrom         string             `json:"moved_from,omitempty"`
}

// Attempt is one run of a task.
type Attempt struct {
	Attempt   int               `json:"attempt"`
	Fence     int64             `json:"fence"`
	Worker    string            `json:"worker,omitempty"`
	StartedAt time.Time         `json:"started_at,omitzero"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	Outcome   pawltype.Outcome  `json:"outcome,omitempty"`
	Error     *pawltype.Failure `json:"error,omitempty"`
	Waited    string            `json:"waited,omitempty"`
	NextRunAt time.Time         `json:"next_run_at,omitzero"`
}

// Retry is a retry policy.
type Retry struct {
	Initial string   `json:"initial,omitempty"`
	Factor  *float64 `json:"factor,omitempty"`
	Max     string   `json:"max,omitempty"`
	Jitter  *float64 `json:"jitter,omitempty"`
}

// NewTask converts a task.
func NewTask(t *pawltype.Task) Task {
	v := Task{
		TaskID: t.ID, Type: t.Type, Queue: t.Queue, Status: t.Status, State: t.State, Reason: t.Reason, Priority: t.Priority,
		Payload: NewBytes(t.Payload, t.ContentType), ContentType: t.ContentType,
		Result: NewBytes(t.Result, t.ResultContentType), ResultContentType: t.ResultContentType,
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes, Releases: t.Releases, Snoozes: t.Snoozes,
		Fence: t.Fence, Worker: t.Worker, CreatedAt: t.CreatedAt, RunAt: t.RunAt, ClaimedAt: t.ClaimedAt,
		LeaseExpiresAt: t.LeaseExpiresAt, EndedAt: t.EndedAt, ExpiresAt: t.ExpiresAt, KeptUntil: t.KeptUntil,
		IdempotencyKey: t.IdempotencyKey, Key: t.Key, Tags: t.Tags, Headers: t.Headers, Retry: NewRetry(t.Retry),
		Timeout: text.Period(t.Timeout), Retention: text.Period(t.Retention), Checkpoint: NewBytes(t.Checkpoint, ""),
		Unique: NewUnique(t.Unique), WaitsFor: t.WaitsFor, GroupID: t.GroupID, Parent: NewParent(t.Parent), Then: NewThen(t.Then),
		ETag: t.ETag, MovedTo: t.MovedTo, MovedFrom: t.MovedFrom,
	}
	if t.Progress != (pawltype.Progress{}) {
		v.Progress = &t.Progress
	}
	for _, a := range t.AttemptLog {
		v.AttemptLog = append(v.AttemptLog, Attempt{
			Attempt: a.Attempt, Fence: a.Fence, Worker: a.Worker, StartedAt: a.StartedAt, EndedAt: a.EndedAt,
			Outcome: a.Outcome, Error: a.Error, Waited: text.Period(a.Waited), NextRunAt: a.NextRunAt,
		})
	}
	return v
}

// NewTasks converts tasks.
func NewTasks(tasks []*pawltype.Task) []Task {
	out := make([]Task, len(tasks))
	for i, t := range tasks {
		out[i] = NewTask(t)
	}
	return out
}

// NewBytes shows JSON verbatim and other data as base64.
func NewBytes(data []byte, contentType string) json.RawMessage {
	if len(data) == 0 || isJSON(contentType) && json.Valid(data) {
		return data
	}
	return json.RawMessage(`"` + base64.StdEncoding.EncodeToString(data) + `"`)
}

func isJSON(contentType string) bool { return contentType == "" || contentType == "application/json" }

// NewRetry converts a retry policy.
func NewRetry(p pawltype.RetryPolicy) *Retry {
	if p == (pawltype.RetryPolicy{}) {
		return nil
	}
	return &Retry{Initial: waitText(p.Initial), Factor: &p.Factor, Max: waitText(p.Max), Jitter: new(max(p.Jitter, 0))}
}

// waitText formats a delay of a retry policy.
func waitText(d time.Duration) string {
	if d == pawltype.NoWait {
		return "0s"
	}
	return text.Period(d)
}

// RetryText formats a retry policy in one line.
func RetryText(p pawltype.RetryPolicy) string {
	return fmt.Sprintf("%s, ×%g, at most %s, jitter %.0f%%", waitText(p.Initial), p.Factor, waitText(p.Max), 100*max(p.Jitter, 0))
}
