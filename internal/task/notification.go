package task

import (
	"slices"
	"strings"
	"time"
)

// NotificationKind is what a webhook tells of. The words are part of the public contract; where there are events of the same, they have the
// same names.
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
	// NotifyTest is sent when an operator asks for it, whatever a webhook chooses.
	NotifyTest NotificationKind = "webhook.test"
)

// NotificationKinds lists those that a webhook may choose.
var NotificationKinds = []NotificationKind{NotifyDead, NotifyPoisoned, NotifyBreakerOpened, NotifyBreakerClosed, NotifyScheduleMissed, NotifyQueueOver, NotifyQueueUnder}

// OfThreshold says whether the kind is about a threshold of its webhook.
func (k NotificationKind) OfThreshold() bool { return k == NotifyQueueOver || k == NotifyQueueUnder }

// ParseNotificationKinds reads kinds, or all of a sort as queue.*, each once and in the order of NotificationKinds.
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
	// NotificationSamples is how many of what was gathered are told of one by one, the newest.
	NotificationSamples = 5
	// maxNotificationText bounds a text of a sample, in bytes.
	maxNotificationText = 256
)

// Notification is what was gathered of one kind in a queue.
type Notification struct {
	Kind        NotificationKind     `json:"kind"`
	Namespace   string               `json:"namespace"`
	Queue       string               `json:"queue"`
	Count       int64                `json:"count"` // of a missed schedule its ticks
	First       time.Time            `json:"first"`
	Last        time.Time            `json:"last"`
	Samples     []NotificationSample `json:"samples,omitempty"`
	Fingerprint string               `json:"fingerprint,omitempty"` // of the newest dead letter, as its groups have it
	Level       *NotificationLevel   `json:"level,omitempty"`       // of a threshold

	// Shard is where it was gathered, and Seq grows with each that it tells of the same kind and queue.
	Shard uint32 `json:"shard,omitempty"`
	Seq   int64  `json:"seq,omitempty"`
}

// NotificationSample is one of what was gathered. Fields that make no sense for its kind are zero.
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

// NotificationLevel is how a queue stands against a threshold.
type NotificationLevel struct {
	Depth     int64         `json:"depth"` // ready tasks
	Wait      time.Duration `json:"wait"`  // of the one that has been ready longest
	DepthOver int64         `json:"depth_over,omitempty"`
	WaitOver  time.Duration `json:"wait_over,omitempty"`
	Since     time.Time     `json:"since"` // when it was first seen above it
}

// FirstLine is the first line of an error that says something, as samples have it.
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

// LastSamples are the last of some samples, as many as are told.
func LastSamples(s []NotificationSample) []NotificationSample {
	return s[max(0, len(s)-NotificationSamples):]
}

// Watch says what the webhooks of a namespace together want to hear of. Shards go by their copies of it.
type Watch struct {
	Version uint64      `json:"version"` // only grows
	Rules   []WatchRule `json:"rules,omitempty"`
}

// WatchRule is what one webhook wants to hear of.
type WatchRule struct {
	Kinds  []NotificationKind `json:"kinds"`
	Queues []string           `json:"queues"` // patterns, as of a Scope
}

// Wants says whether a webhook wants to hear of a kind in a queue.
func (w WatchRule) Wants(k NotificationKind, queue string) bool {
	return slices.Contains(w.Kinds, k) && Scope{Queues: w.Queues}.Sees(queue)
}

// Wants says whether any webhook does.
func (w *Watch) Wants(k NotificationKind, queue string) bool {
	return slices.ContainsFunc(w.Rules, func(r WatchRule) bool { return r.Wants(k, queue) })
}
