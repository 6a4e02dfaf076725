package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// The views are what -o json and yaml show: the names and forms of the REST API.

type taskView struct {
	TaskID            string             `json:"task_id"`
	Type              string             `json:"type"`
	Queue             string             `json:"queue"`
	Status            pawltype.Status    `json:"status"`
	State             pawltype.State     `json:"state"`
	Reason            string             `json:"reason,omitempty"`
	Priority          pawltype.Priority  `json:"priority"`
	Payload           any                `json:"payload,omitempty"`
	ContentType       string             `json:"content_type,omitempty"`
	Result            any                `json:"result,omitempty"`
	ResultContentType string             `json:"result_content_type,omitempty"`
	Attempts          int                `json:"attempts"`
	MaxAttempts       int                `json:"max_attempts"`
	Failures          int                `json:"failures"`
	Crashes           int                `json:"crashes"`
	Releases          int                `json:"releases"`
	Snoozes           int                `json:"snoozes"`
	Fence             int64              `json:"fence"`
	AttemptLog        []attemptView      `json:"attempt_log,omitempty"`
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
	Retry             *retryView         `json:"retry,omitempty"`
	Timeout           string             `json:"timeout,omitempty"`
	Retention         string             `json:"retention,omitempty"`
	Checkpoint        any                `json:"checkpoint,omitempty"`
	Unique            *uniqueView        `json:"unique,omitempty"`
	WaitsFor          string             `json:"waits_for,omitempty"`
	GroupID           string             `json:"group_id,omitempty"`
	Parent            *parentView        `json:"parent,omitempty"`
	Then              []followerView     `json:"then,omitempty"`
	ETag              string             `json:"etag,omitempty"`
	MovedTo           string             `json:"moved_to,omitempty"`
	MovedFrom         string             `json:"moved_from,omitempty"`
}

type attemptView struct {
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

type retryView struct {
	Initial string   `json:"initial,omitempty"`
	Factor  *float64 `json:"factor,omitempty"`
	Max     string   `json:"max,omitempty"`
	Jitter  *float64 `json:"jitter,omitempty"`
}

func viewTask(t *pawltype.Task) taskView {
	v := taskView{
		TaskID: t.ID, Type: t.Type, Queue: t.Queue, Status: t.Status, State: t.State, Reason: t.Reason, Priority: t.Priority,
		Payload: viewBytes(t.Payload, t.ContentType), ContentType: t.ContentType,
		Result: viewBytes(t.Result, t.ResultContentType), ResultContentType: t.ResultContentType,
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes, Releases: t.Releases, Snoozes: t.Snoozes,
		Fence: t.Fence, Worker: t.Worker, CreatedAt: t.CreatedAt, RunAt: t.RunAt, ClaimedAt: t.ClaimedAt,
		LeaseExpiresAt: t.LeaseExpiresAt, EndedAt: t.EndedAt, ExpiresAt: t.ExpiresAt, KeptUntil: t.KeptUntil,
		IdempotencyKey: t.IdempotencyKey, Key: t.Key, Tags: t.Tags, Headers: t.Headers, Retry: viewRetry(t.Retry),
		Timeout: period(t.Timeout), Retention: period(t.Retention), Checkpoint: viewBytes(t.Checkpoint, ""),
		Unique: viewUnique(t.Unique), WaitsFor: t.WaitsFor, GroupID: t.GroupID, Parent: viewParent(t.Parent), Then: viewThen(t.Then),
		ETag: t.ETag, MovedTo: t.MovedTo, MovedFrom: t.MovedFrom,
	}
	if t.Progress != (pawltype.Progress{}) {
		v.Progress = &t.Progress
	}
	for _, a := range t.AttemptLog {
		v.AttemptLog = append(v.AttemptLog, attemptView{
			Attempt: a.Attempt, Fence: a.Fence, Worker: a.Worker, StartedAt: a.StartedAt, EndedAt: a.EndedAt,
			Outcome: a.Outcome, Error: a.Error, Waited: period(a.Waited), NextRunAt: a.NextRunAt,
		})
	}
	return v
}

func viewTasks(tasks []*pawltype.Task) []taskView {
	out := make([]taskView, len(tasks))
	for i, t := range tasks {
		out[i] = viewTask(t)
	}
	return out
}

// viewBytes shows JSON as it is, and other bytes as base64.
func viewBytes(data []byte, contentType string) any {
	switch {
	case len(data) == 0:
		return nil
	case (contentType == "" || contentType == "application/json") && json.Valid(data):
		return json.RawMessage(data)
	}
	return base64.StdEncoding.EncodeToString(data)
}

func viewRetry(p pawltype.RetryPolicy) *retryView {
	if p == (pawltype.RetryPolicy{}) {
		return nil
	}
	return &retryView{Initial: waitText(p.Initial), Factor: &p.Factor, Max: waitText(p.Max), Jitter: new(max(p.Jitter, 0))}
}

// waitText is a wait of a retry policy.
func waitText(d time.Duration) string {
	if d == pawltype.NoWait {
		return "0s"
	}
	return period(d)
}

// retryText is a retry policy in one line.
func retryText(p pawltype.RetryPolicy) string {
	return fmt.Sprintf("%s, ×%g, at most %s, jitter %.0f%%", waitText(p.Initial), p.Factor, waitText(p.Max), 100*max(p.Jitter, 0))
}

type queueView struct {
	Queue           string              `json:"queue"`
	Paused          bool                `json:"paused"`
	PausedReason    string              `json:"paused_reason,omitempty"`
	PausedBy        string              `json:"paused_by,omitempty"`
	PausedAt        time.Time           `json:"paused_at,omitzero"`
	Holds           []holdView          `json:"holds,omitempty"`
	Breakers        []breakerStatusView `json:"breakers,omitempty"`
	BreakersOpen    int                 `json:"breakers_open,omitempty"`
	Depth           depthView           `json:"depth"`
	ReadyByPriority priorityView        `json:"ready_by_priority"`
	OldestReadyAge  float64             `json:"oldest_ready_age_seconds"`
	Rates           *ratesView          `json:"rates,omitempty"`
	Wait            *latencyView        `json:"wait,omitempty"`
	Run             *latencyView        `json:"run,omitempty"`
	Drain           *float64            `json:"drain_seconds,omitempty"`
	Workers         *int                `json:"workers,omitempty"`
	Series          *seriesView         `json:"series,omitempty"`
	Settings        settingsView        `json:"settings"`
	Version         int64               `json:"version"`
	CreatedAt       time.Time           `json:"created_at,omitzero"`
	Parts           []partView          `json:"parts,omitempty"`
}

type holdView struct {
	Type   string    `json:"type,omitempty"`
	Key    string    `json:"key,omitempty"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

type partView struct {
	Shard  int       `json:"shard"`
	Slots  int       `json:"slots"`
	Moving bool      `json:"moving"`
	Own    bool      `json:"own"`
	Depth  depthView `json:"depth"`
}

type depthView struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Claimed   int64 `json:"claimed"`
	Retrying  int64 `json:"retrying"`
	Held      int64 `json:"held"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
}

type priorityView struct {
	High   int64 `json:"high"`
	Normal int64 `json:"normal"`
	Low    int64 `json:"low"`
}

type settingsView struct {
	Weights     *priorityView `json:"weights,omitempty"`
	Retry       *retryView    `json:"retry,omitempty"`
	MaxAttempts int           `json:"max_attempts"`
	Lease       string        `json:"lease"`
	Timeout     string        `json:"timeout,omitempty"`
	Retention   keepView      `json:"retention"`
	MaxLength   int64         `json:"max_length"`
	MaxWait     string        `json:"max_wait"`
	limitsView
	PerKey   *limitsView            `json:"per_key,omitempty"`
	Keys     map[string]keyView     `json:"keys,omitempty"`
	Breaker  *breakerView           `json:"breaker,omitempty"`
	Breakers map[string]breakerView `json:"breakers,omitempty"`
}

type limitsView struct {
	MaxRunning int       `json:"max_running"`
	Rate       *rateView `json:"rate,omitempty"`
}

type rateView struct {
	Limit  int    `json:"limit"`
	Period string `json:"period"`
	Burst  int    `json:"burst"`
}

type keyView struct {
	limitsView
	Weight int `json:"weight"`
}

type keepView struct {
	Succeeded string `json:"succeeded"`
	Discarded string `json:"discarded"`
	Cancelled string `json:"cancelled"`
	Dead      string `json:"dead"`
	Poisoned  string `json:"poisoned"`
}

func viewQueue(q *admin.Queue) queueView {
	v := queueView{
		Queue: q.Name, Paused: q.Paused, PausedReason: q.PausedReason, PausedBy: q.PausedBy, PausedAt: q.PausedAt,
		Depth: depthView(q.Depth), ReadyByPriority: priorityView(q.ReadyByPriority), OldestReadyAge: q.OldestReady.Seconds(),
		Settings: viewSettings(q.Settings), Version: q.Version, CreatedAt: q.CreatedAt, Parts: make([]partView, len(q.Parts)),
		Breakers: viewBreakers(q), BreakersOpen: q.BreakersOpen,
	}
	v.setRates(q)
	for _, h := range q.PausedSubsets {
		v.Holds = append(v.Holds, holdView(h))
	}
	for i, p := range q.Parts {
		v.Parts[i] = partView{Shard: p.Shard, Slots: p.Slots, Moving: p.Moving, Own: p.Exclusive, Depth: depthView(p.Depth)}
	}
	return v
}

func viewLimits(l admin.QueueLimits) limitsView {
	v := limitsView{MaxRunning: l.MaxRunning}
	if r := l.Rate; r != (admin.RateLimit{}) {
		v.Rate = &rateView{r.Limit, period(r.Period), r.Burst}
	}
	return v
}

func viewSettings(s admin.QueueSettings) settingsView {
	v := settingsView{
		Retry: viewRetry(s.Retry), MaxAttempts: s.MaxAttempts, Lease: period(s.Lease), Timeout: period(s.Timeout), MaxLength: s.MaxLength, MaxWait: period(s.MaxWait),
		Retention: keepView{
			Succeeded: period(s.Retention.Succeeded), Discarded: period(s.Retention.Discarded), Cancelled: period(s.Retention.Cancelled),
			Dead: period(s.Retention.Dead), Poisoned: period(s.Retention.Poisoned),
		},
	}
	v.limitsView = viewLimits(s.QueueLimits)
	if s.PerKey != (admin.QueueLimits{}) {
		l := viewLimits(s.PerKey)
		v.PerKey = &l
	}
	for key, rules := range s.Keys {
		if v.Keys == nil {
			v.Keys = map[string]keyView{}
		}
		v.Keys[key] = keyView{viewLimits(rules.QueueLimits), rules.Weight}
	}
	v.breakers(s)
	if w := s.Weights; w != nil {
		v.Weights = &priorityView{High: int64(w.High), Normal: int64(w.Normal), Low: int64(w.Low)}
	}
	return v
}

type archivedView struct {
	Task       taskView  `json:"task"`
	ArchivedAt time.Time `json:"archived_at,omitzero"`
	Cause      string    `json:"cause"`
	Place      string    `json:"place"`
}

type groupView struct {
	Queue        string    `json:"queue"`
	Queues       int       `json:"queues"` // in how many; queue is the one with the most
	Fingerprint  string    `json:"fingerprint"`
	Type         string    `json:"type"`
	Message      string    `json:"message"`
	Count        int64     `json:"count"`
	FirstAt      time.Time `json:"first_at,omitzero"`
	LastAt       time.Time `json:"last_at,omitzero"`
	SampleTaskID string    `json:"sample_task_id"`
	Trend        []int64   `json:"trend"` // how many ended in each of the last 24 hours, the oldest first
}

// listView is a list as REST answers it.
type listView[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}
