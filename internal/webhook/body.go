package webhook

import (
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// The bodies are part of the public API: docs/webhooks.md has an example of each.

// body is the body of a request.
type body struct {
	Type      task.NotificationKind `json:"type"`
	Timestamp time.Time             `json:"timestamp"` // when the last of the reported events happened
	Data      data                  `json:"data"`
}

// data describes what happened.
type data struct {
	Namespace   string     `json:"namespace"`
	Webhook     string     `json:"webhook"`
	Queue       string     `json:"queue,omitempty"`
	Count       int64      `json:"count,omitempty"`
	FirstAt     *time.Time `json:"first_at,omitempty"`
	LastAt      *time.Time `json:"last_at,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	Tasks       []deadTask `json:"tasks,omitempty"`
	Breakers    []breaker  `json:"breakers,omitempty"`
	Schedules   []missed   `json:"schedules,omitempty"`
	*level
}

type deadTask struct {
	TaskID  string    `json:"task_id"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	At      time.Time `json:"at"`
}

type breaker struct {
	Type   string    `json:"type"`
	Reason string    `json:"reason,omitempty"`
	Error  string    `json:"error,omitempty"`
	At     time.Time `json:"at"`
}

type missed struct {
	Schedule string    `json:"schedule"`
	Type     string    `json:"type,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Ticks    int       `json:"ticks"`
	At       time.Time `json:"at"`
}

type level struct {
	Depth             int64     `json:"depth"`
	OldestWaitSeconds float64   `json:"oldest_wait_seconds"`
	DepthOver         int64     `json:"depth_over,omitempty"`
	WaitOverSeconds   float64   `json:"wait_over_seconds,omitempty"`
	OverSince         time.Time `json:"over_since"`
}

// Body returns the JSON that a webhook is sent. It is deterministic.
func Body(hook string, n *task.Notification) []byte {
	b := body{Type: n.Kind, Timestamp: n.Last.UTC(), Data: data{Namespace: n.Namespace, Webhook: hook, Queue: n.Queue}}
	d := &b.Data
	if n.Kind != task.NotifyTest && !n.Kind.OfThreshold() {
		first, last := n.First.UTC(), n.Last.UTC()
		d.Count, d.FirstAt, d.LastAt, d.Fingerprint = n.Count, &first, &last, n.Fingerprint
	}
	for _, s := range n.Samples {
		at := s.At.UTC()
		switch n.Kind {
		case task.NotifyDead, task.NotifyPoisoned:
			d.Tasks = append(d.Tasks, deadTask{s.Task, s.Type, s.Reason, s.Error, s.Attempt, at})
		case task.NotifyBreakerOpened, task.NotifyBreakerClosed:
			d.Breakers = append(d.Breakers, breaker{s.Type, s.Reason, s.Error, at})
		case task.NotifyScheduleMissed:
			d.Schedules = append(d.Schedules, missed{s.Schedule, s.Type, s.Reason, s.Count, at})
		}
	}
	if l := n.Level; l != nil {
		d.level = &level{l.Depth, l.Wait.Seconds(), l.DepthOver, l.WaitOver.Seconds(), l.Since.UTC()}
	}
	out, err := json.Marshal(b)
	if err != nil {
		panic(err) // strings, numbers and times can always be encoded
	}
	return out
}
