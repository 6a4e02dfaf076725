package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// Breaker is a breaker's rule as in the REST API.
type Breaker struct {
	Off         bool   `json:"off,omitempty"`
	FailureRate int    `json:"failure_rate,omitempty"`
	Window      string `json:"window,omitempty"`
	MinAttempts int    `json:"min_attempts,omitempty"`
	Hold        string `json:"hold,omitempty"`
	MaxHold     string `json:"max_hold,omitempty"`
	Probes      int    `json:"probes,omitempty"`
}

// BreakerStatus is a breaker that is not closed, as in the REST API.
type BreakerStatus struct {
	Type     string             `json:"type"`
	State    admin.BreakerState `json:"state"`
	Reason   string             `json:"reason"`
	Since    time.Time          `json:"since"`
	Until    time.Time          `json:"until,omitzero"`
	Attempts int                `json:"attempts"`
	Failed   int                `json:"failed"`
	Window   string             `json:"window"`
	Error    string             `json:"error,omitempty"`
	Opened   int                `json:"opened"`
	Passed   int                `json:"passed"`
	Probes   int                `json:"probes"`
	Probe    string             `json:"probe_task_id,omitempty"`
	Shard    int                `json:"shard,omitempty"`
}

// NewBreaker converts a breaker's rule.
func NewBreaker(b admin.Breaker) Breaker {
	if b.Off {
		return Breaker{Off: true}
	}
	return Breaker{FailureRate: b.FailureRate, Window: text.Period(b.Window), MinAttempts: b.MinAttempts, Hold: text.Period(b.Hold),
		MaxHold: text.Period(b.MaxHold), Probes: b.Probes}
}

// NewBreakers converts a queue's breakers that are not closed.
func NewBreakers(q *admin.Queue) (views []BreakerStatus) {
	for _, b := range q.Breakers {
		views = append(views, BreakerStatus{Type: b.Type, State: b.State, Reason: b.Reason, Since: b.Since, Until: b.Until,
			Attempts: b.Attempts, Failed: b.Failed, Window: text.Period(b.Window), Error: b.Error, Opened: b.Opened, Passed: b.Passed,
			Probes: b.Probes, Probe: b.Probe, Shard: b.Shard})
	}
	return views
}
