package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// breakers adds the breakers' rules.
func (v *Settings) breakers(s admin.QueueSettings) {
	if s.Breaker != nil {
		v.Breaker = new(NewBreaker(*s.Breaker))
	}
	for typ, rule := range s.Breakers {
		if v.Breakers == nil {
			v.Breakers = map[string]Breaker{}
		}
		v.Breakers[typ] = NewBreaker(rule)
	}
}

// setRates adds recent rates and events to the view of a queue.
func (v *Queue) setRates(q *admin.Queue) {
	v.Workers = q.Workers
	if s := q.Series; s != nil {
		v.Series = &Series{Step: text.Period(s.Step), Start: s.Start, In: s.In, Out: s.Out, Failed: s.Failed, Succeeded: s.Succeeded, Poisoned: s.Poisoned}
	}
	if q.Rates == nil {
		return
	}
	rates, wait, run := Rates(*q.Rates), NewLatency(q.Wait), NewLatency(q.Run)
	v.Rates, v.Wait, v.Run = &rates, &wait, &run
	if q.Drain != nil {
		seconds := q.Drain.Seconds()
		v.Drain = &seconds
	}
}

// Queue is a queue with its figures.
type Queue struct {
	Queue           string          `json:"queue"`
	Paused          bool            `json:"paused"`
	PausedReason    string          `json:"paused_reason,omitempty"`
	PausedBy        string          `json:"paused_by,omitempty"`
	PausedAt        time.Time       `json:"paused_at,omitzero"`
	Holds           []Hold          `json:"holds,omitempty"`
	Breakers        []BreakerStatus `json:"breakers,omitempty"`
	BreakersOpen    int             `json:"breakers_open,omitempty"`
	Depth           Depth           `json:"depth"`
	ReadyByPriority Priority        `json:"ready_by_priority"`
	OldestReadyAge  float64         `json:"oldest_ready_age_seconds"`
	Rates           *Rates          `json:"rates,omitempty"`
	Wait            *Latency        `json:"wait,omitempty"`
	Run             *Latency        `json:"run,omitempty"`
	Drain           *float64        `json:"drain_seconds,omitempty"`
	Workers         *int            `json:"workers,omitempty"`
	Series          *Series         `json:"series,omitempty"`
	Settings        Settings        `json:"settings"`
	Version         int64           `json:"version"`
	CreatedAt       time.Time       `json:"created_at,omitzero"`
	Parts           []Part          `json:"parts,omitempty"`
	Missing         []Missing       `json:"missing,omitempty"`
}

// Hold is a pause of a whole queue.
type Hold struct {
	Type   string    `json:"type,omitempty"`
	Key    string    `json:"key,omitempty"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// Part is a paused part of a queue.
type Part struct {
	Shard  int   `json:"shard"`
	Slots  int   `json:"slots"`
	Moving bool  `json:"moving"`
	Own    bool  `json:"own"`
	Depth  Depth `json:"depth"`
}

// Depth counts a queue's tasks by state.
type Depth struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Claimed   int64 `json:"claimed"`
	Retrying  int64 `json:"retrying"`
	Held      int64 `json:"held"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
}

// Priority holds a number for each priority: waiting tasks, or weights.
type Priority struct {
	High   int64 `json:"high"`
	Normal int64 `json:"normal"`
	Low    int64 `json:"low"`
}

// Settings are the settings of a queue.
type Settings struct {
	Weights     *Priority `json:"weights,omitempty"`
	Retry       *Retry    `json:"retry,omitempty"`
	MaxAttempts int       `json:"max_attempts"`
	Lease       string    `json:"lease"`
	Timeout     string    `json:"timeout,omitempty"`
	Retention   Keep      `json:"retention"`
	MaxLength   int64     `json:"max_length"`
	MaxWait     string    `json:"max_wait"`
	KeyOrder    string    `json:"key_order,omitempty"`
	Limits
	PerKey   *Limits            `json:"per_key,omitempty"`
	Keys     map[string]Key     `json:"keys,omitempty"`
	Breaker  *Breaker           `json:"breaker,omitempty"`
	Breakers map[string]Breaker `json:"breakers,omitempty"`
}

// Limits are the limits of a queue.
type Limits struct {
	MaxRunning int   `json:"max_running"`
	Rate       *Rate `json:"rate,omitempty"`
}

// Rate limits the tasks in a period.
type Rate struct {
	Limit  int    `json:"limit"`
	Period string `json:"period"`
	Burst  int    `json:"burst"`
}

// Key is the limit of each key.
type Key struct {
	Limits
	Weight int `json:"weight"`
}

// Keep is how long ended tasks are kept, by state.
type Keep struct {
	Succeeded string `json:"succeeded"`
	Discarded string `json:"discarded"`
	Cancelled string `json:"cancelled"`
	Dead      string `json:"dead"`
	Poisoned  string `json:"poisoned"`
}

// NewQueue converts a queue.
func NewQueue(q *admin.Queue) Queue {
	v := Queue{
		Queue: q.Name, Paused: q.Paused, PausedReason: q.PausedReason, PausedBy: q.PausedBy, PausedAt: q.PausedAt,
		Depth: Depth(q.Depth), ReadyByPriority: Priority(q.ReadyByPriority), OldestReadyAge: q.OldestReady.Seconds(),
		Settings: NewSettings(q.Settings), Version: q.Version, CreatedAt: q.CreatedAt, Parts: make([]Part, len(q.Parts)),
		Breakers: NewBreakers(q), BreakersOpen: q.BreakersOpen, Missing: NewMissing(q.Missing),
	}
	v.setRates(q)
	for _, h := range q.PausedSubsets {
		v.Holds = append(v.Holds, Hold(h))
	}
	for i, p := range q.Parts {
		v.Parts[i] = Part{Shard: p.Shard, Slots: p.Slots, Moving: p.Moving, Own: p.Exclusive, Depth: Depth(p.Depth)}
	}
	return v
}

// NewLimits converts limits.
func NewLimits(l admin.QueueLimits) Limits {
	v := Limits{MaxRunning: l.MaxRunning}
	if r := l.Rate; r != (admin.RateLimit{}) {
		v.Rate = &Rate{r.Limit, text.Period(r.Period), r.Burst}
	}
	return v
}

// NewSettings converts settings.
func NewSettings(s admin.QueueSettings) Settings {
	v := Settings{
		Retry: NewRetry(s.Retry), MaxAttempts: s.MaxAttempts, Lease: text.Period(s.Lease), Timeout: text.Period(s.Timeout), MaxLength: s.MaxLength, MaxWait: text.Period(s.MaxWait),
		KeyOrder: string(s.KeyOrder),
		Retention: Keep{
			Succeeded: text.Period(s.Retention.Succeeded), Discarded: text.Period(s.Retention.Discarded), Cancelled: text.Period(s.Retention.Cancelled),
			Dead: text.Period(s.Retention.Dead), Poisoned: text.Period(s.Retention.Poisoned),
		},
	}
	v.Limits = NewLimits(s.QueueLimits)
	if s.PerKey != (admin.QueueLimits{}) {
		l := NewLimits(s.PerKey)
		v.PerKey = &l
	}
	for key, rules := range s.Keys {
		if v.Keys == nil {
			v.Keys = map[string]Key{}
		}
		v.Keys[key] = Key{NewLimits(rules.QueueLimits), rules.Weight}
	}
	v.breakers(s)
	if w := s.Weights; w != nil {
		v.Weights = &Priority{High: int64(w.High), Normal: int64(w.Normal), Low: int64(w.Low)}
	}
	return v
}
