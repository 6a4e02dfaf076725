package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// Type is a task type in a list, as -o json and yaml print it.
type Type struct {
	Type          string    `json:"type"`
	Queues        []string  `json:"queues"`
	Rates         Rates     `json:"rates"`
	FailureRate   float64   `json:"failure_rate"`
	Totals        Counts    `json:"totals"`
	Wait          Latency   `json:"wait"`
	Run           Latency   `json:"run"`
	LastError     string    `json:"last_error,omitempty"`
	LastErrorType string    `json:"last_error_type,omitempty"`
	LastFailedAt  time.Time `json:"last_failed_at,omitzero"`
}

// TypeStats is the statistics of one type, as they print it.
type TypeStats struct {
	Type   string   `json:"type"`
	Queues []string `json:"queues"`
	Rates  Rates    `json:"rates"`
	Stats
	WaitHistogram []HistogramBucket `json:"wait_histogram"`
	RunHistogram  []HistogramBucket `json:"run_histogram"`
	Slowest       []SlowRun         `json:"slowest"`
	Comparison    *Comparison       `json:"comparison,omitempty"`
}

// HistogramBucket counts durations up to a bound; the one without a bound counts those longer than 26 h.
type HistogramBucket struct {
	UpTo  float64 `json:"up_to_seconds,omitempty"`
	Count int64   `json:"count"`
}

// SlowRun is one of the slowest runs.
type SlowRun struct {
	TaskID  string    `json:"task_id"`
	Worker  string    `json:"worker"`
	Run     float64   `json:"run_seconds"`
	EndedAt time.Time `json:"ended_at"`
	Failed  bool      `json:"failed"`
}

// Comparison compares what happened before and after a time.
type Comparison struct {
	Around time.Time `json:"around"`
	Before Period    `json:"before"`
	After  Period    `json:"after"`
}

// Period summarizes what happened in a period.
type Period struct {
	Start       time.Time `json:"start"`
	Length      string    `json:"length"`
	Rates       Rates     `json:"rates"`
	FailureRate float64   `json:"failure_rate"`
	Totals      Counts    `json:"totals"`
	Run         Latency   `json:"run"`
}

// NewType converts a type in a list.
func NewType(t *admin.Type) Type {
	return Type{Type: t.Name, Queues: t.Queues, Rates: Rates(t.Rates), FailureRate: t.FailureRate, Totals: NewCounts(t.Totals), Wait: NewLatency(t.Wait), Run: NewLatency(t.Run),
		LastError: t.LastError, LastErrorType: t.LastErrorType, LastFailedAt: t.LastFailedAt}
}

// NewTypeStats converts a type's statistics.
func NewTypeStats(s *admin.TypeStats) TypeStats {
	v := TypeStats{Type: s.Type, Queues: s.Queues, Rates: Rates(s.Rates), Stats: NewStats(s.Queue, &s.Stats), WaitHistogram: histogram(s.WaitHistogram), RunHistogram: histogram(s.RunHistogram),
		Slowest: make([]SlowRun, len(s.Slowest))}
	for i, r := range s.Slowest {
		v.Slowest[i] = SlowRun{r.TaskID, r.Worker, r.Run.Seconds(), r.EndedAt, r.Failed}
	}
	if c := s.Comparison; c != nil {
		v.Comparison = &Comparison{c.Around, newPeriod(&c.Before), newPeriod(&c.After)}
	}
	return v
}

func histogram(buckets []admin.HistogramBucket) []HistogramBucket {
	list := make([]HistogramBucket, len(buckets))
	for i, b := range buckets {
		list[i] = HistogramBucket{b.UpTo.Seconds(), b.Count}
	}
	return list
}

func newPeriod(p *admin.TypePeriod) Period {
	return Period{p.Start, text.Period(p.Length), Rates(p.Rates), p.FailureRate, NewCounts(p.Totals), NewLatency(p.Run)}
}
