package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// Explain is the explanation of why a task does not run.
type Explain struct {
	TaskID  string          `json:"task_id"`
	State   pawltype.State  `json:"state,omitempty"`
	Status  pawltype.Status `json:"status,omitempty"`
	Queue   string          `json:"queue,omitempty"`
	Type    string          `json:"type,omitempty"`
	Key     string          `json:"key,omitempty"`
	Reasons []Reason        `json:"reasons"`
}

// Reason is one of the reasons, identified by its code.
type Reason struct {
	Code    admin.ReasonCode `json:"code"`
	Detail  string           `json:"detail"`
	Change  string           `json:"change"`
	Since   time.Time        `json:"since,omitzero"`
	Until   time.Time        `json:"until,omitzero"`
	Queue   string           `json:"queue,omitempty"`
	Type    string           `json:"type,omitempty"`
	Key     string           `json:"key,omitempty"`
	Cause   string           `json:"cause,omitempty"`
	Error   string           `json:"error,omitempty"`
	Limit   int              `json:"limit,omitempty"`
	Rate    *Rate            `json:"rate,omitempty"`
	Running []Runner         `json:"running,omitempty"`
	Types   []string         `json:"types,omitempty"`
	Count   int64            `json:"count,omitempty"`
	More    bool             `json:"more,omitempty"`
	Shard   uint32           `json:"shard,omitempty"`
}

// Runner is a running task for which others wait.
type Runner struct {
	TaskID string    `json:"task_id"`
	Worker string    `json:"worker"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// QueueExplain is the explanation of why a queue's tasks do not run.
type QueueExplain struct {
	Queue         string     `json:"queue"`
	Ready         int64      `json:"ready"`
	Claimable     int64      `json:"claimable"`
	Claimed       int64      `json:"claimed"`
	Waiting       int64      `json:"waiting"`
	Reasons       []Reason   `json:"reasons"`
	Keys          []HeldKey  `json:"keys"`
	IdleTypes     []IdleType `json:"idle_types"`
	NextDue       time.Time  `json:"next_due,omitzero"`
	OldestReadyAt time.Time  `json:"oldest_ready_at,omitzero"`
	Partial       bool       `json:"partial"`
	Missing       []Missing  `json:"missing,omitempty"`
}

// HeldKey is a key whose tasks wait for running ones.
type HeldKey struct {
	Key   string           `json:"key"`
	Code  admin.ReasonCode `json:"code"`
	Tasks int64            `json:"tasks"`
	Until time.Time        `json:"until,omitzero"`
}

// IdleType is a task type that no worker takes.
type IdleType struct {
	Type  string `json:"type"`
	Tasks int64  `json:"tasks"`
}

// NewReasons converts reasons.
func NewReasons(reasons []admin.Reason) []Reason {
	views := make([]Reason, len(reasons))
	for i, r := range reasons {
		v := Reason{Code: r.Code, Detail: r.Detail, Change: r.Change, Since: r.Since, Until: r.Until, Queue: r.Queue, Type: r.Type, Key: r.Key,
			Cause: r.Cause, Error: r.Error, Limit: r.Limit, Types: r.Types, Count: r.Count, More: r.More, Shard: r.Shard}
		if r.Rate != (admin.RateLimit{}) {
			v.Rate = &Rate{r.Rate.Limit, text.Period(r.Rate.Period), r.Rate.Burst}
		}
		for _, t := range r.Running {
			v.Running = append(v.Running, Runner(t))
		}
		views[i] = v
	}
	return views
}

// NewQueueExplanation converts a queue's explanation.
func NewQueueExplanation(e *admin.QueueExplanation) QueueExplain {
	v := QueueExplain{Queue: e.Queue, Ready: e.Ready, Claimable: e.Claimable, Claimed: e.Claimed, Waiting: e.Waiting, Reasons: NewReasons(e.Reasons),
		Keys: []HeldKey{}, IdleTypes: []IdleType{}, NextDue: e.NextDue, OldestReadyAt: e.OldestReadyAt,
		Partial: e.Partial, Missing: NewMissing(e.Missing)}
	for _, k := range e.Keys {
		v.Keys = append(v.Keys, HeldKey(k))
	}
	for _, t := range e.UnservedTypes {
		v.IdleTypes = append(v.IdleTypes, IdleType(t))
	}
	return v
}
