package view

import (
	"strconv"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// ActorOf names who did something; "" if unknown.
func ActorOf(by *admin.Actor) string {
	if by == nil {
		return ""
	}
	return by.Actor
}

// RateWords formats a rate in tasks per second for people; "" for 0, which means no limit.
func RateWords(perSecond float64) string {
	if perSecond == 0 {
		return ""
	}
	return strconv.FormatFloat(perSecond, 'g', 4, 64) + "/s"
}

// Operation is an operation in JSON and YAML, with the names of REST.
type Operation struct {
	OperationID string               `json:"operation_id"`
	Action      admin.Action         `json:"action"`
	Filter      map[string]any       `json:"filter"`
	ToQueue     string               `json:"to_queue,omitempty"`
	Priority    pawltype.Priority    `json:"priority,omitempty"`
	Max         int64                `json:"max,omitempty"`
	Canary      int64                `json:"canary,omitempty"`
	Rate        string               `json:"rate,omitempty"`
	State       admin.OperationState `json:"state"`
	Stopping    admin.OperationState `json:"stopping,omitempty"`
	Actor       string               `json:"actor,omitempty"`
	Reason      string               `json:"reason,omitempty"`
	Why         string               `json:"why,omitempty"`
	CreatedAt   time.Time            `json:"created_at"`
	PausedAt    time.Time            `json:"paused_at,omitzero"`
	EndedAt     time.Time            `json:"ended_at,omitzero"`
	OperationCounts
	WaitsFor      string         `json:"waits_for,omitempty"`
	CurrentStates *CurrentStates `json:"current_states,omitempty"`
}

// CurrentStates counts the current states of the tasks that an operation has changed.
type CurrentStates struct {
	States       map[pawltype.State]int64 `json:"states"`
	IsLowerBound bool                     `json:"is_lower_bound"`
}

// OperationCounts counts an operation's tasks by outcome.
type OperationCounts struct {
	Total             int64            `json:"total"`
	TotalIsLowerBound bool             `json:"total_is_lower_bound"`
	Matched           int64            `json:"matched"`
	Done              int64            `json:"done"`
	Skipped           int64            `json:"skipped"`
	SkippedReasons    map[string]int64 `json:"skipped_reasons,omitempty"`
	Failed            int64            `json:"failed"`
}

// NewOperation converts an operation.
func NewOperation(o *admin.Operation) Operation {
	c := &o.Counts
	var states *CurrentStates
	if b := o.CurrentStates; b != nil {
		states = &CurrentStates{b.States, b.IsLowerBound}
	}
	return Operation{CurrentStates: states, OperationID: o.ID, Action: o.Action, Filter: NewFilter(o.Filter), ToQueue: o.ToQueue, Priority: o.Priority, Max: o.Max, Canary: o.Canary,
		Rate: RateWords(o.Rate), State: o.State, Stopping: o.Stopping, Actor: ActorOf(o.Author), Reason: o.Reason, Why: o.StopReason, CreatedAt: o.CreatedAt,
		PausedAt: o.PausedAt, EndedAt: o.EndedAt, WaitsFor: o.WaitsFor,
		OperationCounts: OperationCounts{c.Total, c.TotalIsLowerBound, c.Matched, c.Done, c.SkippedTasks(), c.Skipped, c.Failed}}
}

// NewFilter converts a filter to the fields that are set in it.
func NewFilter(f *admin.Filter) map[string]any {
	v := map[string]any{"state": f.States}
	for name, value := range map[string]string{"queue": f.Queue, "type": f.Type, "tag": f.Tag, "key": f.Key, "worker": f.Worker, "error": f.Error, "fingerprint": f.Fingerprint, "operation": f.Operation, "q": f.Text} {
		if value != "" {
			v[name] = value
		}
	}
	for _, p := range f.Payload {
		conditions, _ := v["payload"].([]string)
		v["payload"] = append(conditions, p.Path+":"+p.Value)
	}
	for name, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			v[name] = at
		}
	}
	return v
}
