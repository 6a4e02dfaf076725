package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Audited runs an operator's change of a schedule and records it in the audit log.
func Audited[T any](r *engine.Round, by task.Author, action task.Action, ns, name string, do func() (T, error)) (T, error) {
	if by.IsZero() {
		return do()
	}
	before, queue := readFacts(r, ns, name, action)
	out, err := do()
	if err != nil {
		return out, err
	}
	after, nowIn := readFacts(r, ns, name, action)
	if nowIn != "" {
		queue = nowIn
	}
	was, is := audit.Changed(before, after)
	if was != nil || is != nil {
		actions.Record(r, audit.Entry{By: by, Action: action, Namespace: ns, Target: task.Target{Kind: task.OnSchedule, Name: name},
			Queue: queue, Before: was, After: is})
	}
	return out, nil
}

// scheduleFacts is the part of a schedule that operators can change, for the audit log.
type scheduleFacts struct {
	Cron     string        `json:"cron"`
	Every    time.Duration `json:"every"`
	TimeZone string        `json:"time_zone"`
	Jitter   time.Duration `json:"jitter"`
	Missed   task.Missed   `json:"missed"`
	Overlap  task.Overlap  `json:"overlap"`
	Owner    string        `json:"owner"`
	PausedAt store.Time    `json:"paused_at"`
	Reason   string        `json:"paused_reason"`
	History  uint64        `json:"history_entry"` // the newest; for triggers only
	Task     templateFacts `json:"task"`
}

// templateFacts describes a schedule's task, with digests instead of its contents.
type templateFacts struct {
	Type        string         `json:"type"`
	Queue       string         `json:"queue"`
	Payload     string         `json:"payload"`
	ContentType string         `json:"content_type"`
	Priority    task.Priority  `json:"priority"`
	MaxAttempts int            `json:"max_attempts"`
	Retry       *task.Retry    `json:"retry"`
	Timeout     time.Duration  `json:"timeout"`
	ExpiresIn   time.Duration  `json:"expires_in"`
	Retention   *time.Duration `json:"retention"`
	Key         string         `json:"key"`
	Cost        int            `json:"cost"`
	Tags        string         `json:"tags"`
	Headers     string         `json:"headers"`
	Unique      string         `json:"unique"`
}

// readFacts returns the *scheduleFacts and the queue of a schedule, or nil if there is no such schedule.
func readFacts(r *engine.Round, ns, name string, action task.Action) (f any, queue string) {
	p, c, ok := schedule(r, ns, name)
	if !ok {
		return nil, ""
	}
	out := &scheduleFacts{Cron: p.Cron, Every: p.Every, TimeZone: p.TimeZone, Jitter: p.Jitter, Missed: p.Missed,
		Overlap: p.Overlap, Owner: p.Owner, PausedAt: c.paused, Reason: c.reason, Task: templateOf(&p.Task)}
	if action == task.ScheduleTriggered {
		out.History = c.seq
	}
	return out, p.Task.Queue
}

func templateOf(t *task.Spec) templateFacts {
	out := templateFacts{Type: t.Type, Queue: t.Queue, Payload: audit.Digest(t.Payload), ContentType: t.ContentType, Priority: t.Priority,
		MaxAttempts: t.MaxAttempts, Retry: t.Retry, Timeout: t.Timeout, ExpiresIn: t.ExpiresIn, Retention: t.Retention,
		Key: t.Key, Cost: t.Cost, Tags: audit.Digest([]byte(strings.Join(t.Tags, "\x00")))}
	var headers strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		headers.WriteString(name + "\x00" + t.Headers[name] + "\x00")
	}
	out.Headers = audit.Digest([]byte(headers.String()))
	if t.Unique != nil {
		out.Unique = audit.Digest([]byte(fmt.Sprint(*t.Unique)))
	}
	return out
}
