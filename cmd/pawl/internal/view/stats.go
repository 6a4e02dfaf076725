package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// Stats is what -o json and yaml print: the REST API's answer, with the steps as a list.
type Stats struct {
	Queue       string        `json:"queue,omitempty"`
	Window      string        `json:"window"`
	Step        string        `json:"step"`
	Start       time.Time     `json:"start"`
	Totals      Counts        `json:"totals"`
	Steps       []Counts      `json:"steps"`
	FailureRate float64       `json:"failure_rate"`
	Wait        Latency       `json:"wait"`
	Run         Latency       `json:"run"`
	Failing     []FailingType `json:"failing,omitempty"`
	Queues      *QueueTotals  `json:"queues,omitempty"`
	Attention   []Attention   `json:"attention,omitempty"`
	Missing     []Missing     `json:"missing,omitempty"`
}

// Counts counts events by kind.
type Counts struct {
	Enqueued  int64 `json:"enqueued"`
	Claimed   int64 `json:"claimed"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Crashed   int64 `json:"crashed"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
	Discarded int64 `json:"discarded"`
	Cancelled int64 `json:"cancelled"`
	Replayed  int64 `json:"replayed"`
}

// Latency holds percentiles of a duration.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// FailingType is a task type that fails often.
type FailingType struct {
	Queue         string    `json:"queue"`
	Type          string    `json:"type"`
	Failures      int64     `json:"failures"`
	LastError     string    `json:"last_error,omitempty"`
	LastErrorType string    `json:"last_error_type,omitempty"`
	LastAt        time.Time `json:"last_at"`
}

// QueueTotals are totals over all queues.
type QueueTotals struct {
	Queues           int64   `json:"queues"`
	Scheduled        int64   `json:"scheduled"`
	Ready            int64   `json:"ready"`
	Claimed          int64   `json:"claimed"`
	Retrying         int64   `json:"retrying"`
	Dead             int64   `json:"dead"`
	Poisoned         int64   `json:"poisoned"`
	OldestReady      float64 `json:"oldest_ready_age_seconds"`
	OldestReadyQueue string  `json:"oldest_ready_queue,omitempty"`
}

// Attention is something that an operator should look at.
type Attention struct {
	Kind     string  `json:"kind"`
	Severity string  `json:"severity"`
	Subject  string  `json:"subject,omitempty"`
	Detail   string  `json:"detail"`
	Value    float64 `json:"value"`
	More     int64   `json:"more"`
}

// Rates are events per second.
type Rates struct {
	In     float64 `json:"in"`
	Out    float64 `json:"out"`
	Failed float64 `json:"failed"`
}

// Series holds the counts of a queue's events over a window.
type Series struct {
	Step      string    `json:"step"`
	Start     time.Time `json:"start"`
	In        []int64   `json:"in"`
	Out       []int64   `json:"out"`
	Failed    []int64   `json:"failed"`
	Succeeded []int64   `json:"succeeded"`
	Poisoned  []int64   `json:"poisoned"`
}

// NewCounts converts event counts.
func NewCounts(c admin.EventCounts) Counts {
	return Counts{Enqueued: c.Enqueued, Claimed: c.Claimed, Succeeded: c.Succeeded, Failed: c.Failed, Crashed: c.Crashed, Dead: c.Dead,
		Poisoned: c.Poisoned, Discarded: c.Discarded, Cancelled: c.Cancelled, Replayed: c.Replayed}
}

// NewLatency converts percentiles.
func NewLatency(l admin.Latency) Latency {
	return Latency{Count: l.Count, Mean: l.Mean.Seconds(), P50: l.P50.Seconds(), P95: l.P95.Seconds(), P99: l.P99.Seconds()}
}

// NewStats converts a namespace's statistics.
func NewStats(queue string, s *admin.Stats) Stats {
	v := Stats{Queue: queue, Window: text.Period(s.Window), Step: text.Period(s.Step), Start: s.Start, Totals: NewCounts(s.Totals), FailureRate: s.FailureRate,
		Wait: NewLatency(s.Wait), Run: NewLatency(s.Run), Missing: NewMissing(s.Missing), Steps: make([]Counts, len(s.Series))}
	for i, c := range s.Series {
		v.Steps[i] = NewCounts(c)
	}
	for _, f := range s.Failing {
		v.Failing = append(v.Failing, FailingType(f))
	}
	return v
}
