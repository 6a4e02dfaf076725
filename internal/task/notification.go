package task

import (
	"slices"
	"strings"
	"time"
)

// NotificationKind is a kind of event that a webhook reports. The names are part of the public contract; kinds that are also events have
// the same names as those.
type NotificationKind string

// The kinds.
const (
	NotifyDead           NotificationKind = "task.dead"
	NotifyPoisoned       NotificationKind = "task.poisoned"
	NotifyBreakerOpened  NotificationKind = "breaker.opened"
	NotifyBreakerClosed  NotificationKind = "breaker.closed"
	NotifyScheduleMissed NotificationKind = "schedule.missed"
	NotifyQueueOver      NotificationKind = "queue.over"
	NotifyQueueUnder     NotificationKind = "queue.under"
	// NotifyTest is sent at an operator's request, whatever kinds a webhook has chosen.
	NotifyTest NotificationKind = "webhook.test"
)

// NotificationKinds lists the kinds that a webhook may choose.
var NotificationKinds = []NotificationKind{NotifyDead, NotifyPoisoned, NotifyBreakerOpened, NotifyBreakerClosed, NotifyScheduleMissed,
	NotifyQueueOver, NotifyQueueUnder}

// OfThreshold reports whether the kind concerns a threshold of its webhook.
func (k NotificationKind) OfThreshold() bool { return k == NotifyQueueOver || k == NotifyQueueUnder }

// ParseNotificationKinds parses kinds, or groups such as queue.*. It returns each kind once, in the order of NotificationKinds.
func ParseNotificationKinds(field string, words []string) (kinds []NotificationKind, err error) {
	if len(words) > len(NotificationKinds) {
		return nil, Invalid(field, "%d kinds, at most %d are allowed", len(words), len(NotificationKinds))
	}
	chosen := map[NotificationKind]bool{}
	for _, word := range words {
		sort, all := strings.CutSuffix(word, "*")
		found := false
		for _, k := range NotificationKinds {
			if word == string(k) || all && strings.HasSuffix(sort, ".") && strings.HasPrefix(string(k), sort) {
				chosen[k], found = true, true
			}
		}
		if !found {
			return nil, Invalid(field, "%q is not one of %s, nor a group of them such as task.*", clip(word), Listed(NotificationKinds))
		}
	}
	for _, k := range NotificationKinds {
		if chosen[k] {
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

const (
	// NotificationSamples is how many of the events in a notification are described individually: the newest.
	NotificationSamples = 5
	// maxNotificationText bounds a text of a sample, in bytes.
	maxNotificationText = 256
)

// Notification summarizes the events of one kind in a queue.
type Notification struct {
	Kind        NotificationKind     `json:"kind"`
	Namespace   string               `json:"namespace"`
	Queue       string               `json:"queue"`
	Count       int64                `json:"count"` // for a missed schedule, of its ticks
	First       time.Time            `json:"first"`
	Last        time.Time            `json:"last"`
	Samples     []NotificationSample `json:"samples,omitempty"`
	Fingerprint string               `json:"fingerprint,omitempty"` // of the newest dead letter, as in the groups of dead letters
	Level       *NotificationLevel   `json:"level,omitempty"`       // of a threshold

	// Shard is where the events occurred. Seq grows with every notification of that shard about the same kind and queue.
	Shard uint32 `json:"shard,omitempty"`
	Seq   int64  `json:"seq,omitempty"`
}

// NotificationSample describes one of the events. Fields that make no sense for its kind are zero.
type NotificationSample struct {
	At       time.Time `json:"at"`
	Task     string    `json:"task,omitempty"` // id
	Type     string    `json:"type,omitempty"` // of the task, or of the breaker
	Schedule string    `json:"schedule,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Error    string    `json:"error,omitempty"` // its first line
	Attempt  int       `json:"attempt,omitempty"`
	Count    int       `json:"count,omitempty"` // ticks
}

// NotificationLevel compares a queue with a threshold.
type NotificationLevel struct {
	Depth     int64         `json:"depth"` // ready tasks
	Wait      time.Duration `json:"wait"`  // of the task that has been ready longest
	DepthOver int64         `json:"depth_over,omitempty"`
	WaitOver  time.Duration `json:"wait_over,omitempty"`
	Since     time.Time     `json:"since"` // when the queue was first seen above it
}

// FirstLine returns the first non-empty line of an error, for samples.
func FirstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return Cut(line, maxNotificationText)
		}
	}
	return ""
}

// Merge adds a newer notification of the same kind and queue.
func (n *Notification) Merge(o *Notification) {
	n.Count += o.Count
	if o.First.Before(n.First) {
		n.First = o.First
	}
	if !o.Last.Before(n.Last) {
		n.Last, n.Level = o.Last, o.Level
		if o.Fingerprint != "" {
			n.Fingerprint = o.Fingerprint
		}
	}
	n.Samples = LastSamples(append(slices.Clone(n.Samples), o.Samples...))
}

// LastSamples returns the last samples, as many as a notification holds.
func LastSamples(s []NotificationSample) []NotificationSample {
	return s[max(0, len(s)-NotificationSamples):]
}

// Watch is what the webhooks of a namespace subscribe to together. Shards use their copies of it.
type Watch struct {
	Version uint64      `json:"version"`         // only increases
	Since   uint64      `json:"since,omitempty"` // of the namespace
	Rules   []WatchRule `json:"rules,omitempty"`
}

// WatchRule is what one webhook subscribes to.
type WatchRule struct {
	Kinds  []NotificationKind `json:"kinds"`
	Queues []string           `json:"queues"` // patterns, as of a Scope
}

// Wants reports whether the webhook subscribes to a kind in a queue.
func (w WatchRule) Wants(k NotificationKind, queue string) bool {
	return slices.Contains(w.Kinds, k) && Scope{Queues: w.Queues}.Sees(queue)
}

// Wants reports whether any webhook does.
func (w *Watch) Wants(k NotificationKind, queue string) bool {
	return slices.ContainsFunc(w.Rules, func(r WatchRule) bool { return r.Wants(k, queue) })
}
