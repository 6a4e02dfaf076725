package events

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Kind is the kind of an event. The strings are part of the public contract.
type Kind string

// The kinds of events.
const (
	TaskEnqueued  Kind = "task.enqueued"
	TaskClaimed   Kind = "task.claimed"
	TaskSucceeded Kind = "task.succeeded"
	TaskFailed    Kind = "task.failed" // an attempt; another event says what happens to the task
	TaskLeaseLost Kind = "task.lease_lost"
	TaskReleased  Kind = "task.released" // or snoozed; no attempt was used
	TaskRetrying  Kind = "task.retrying"
	TaskDead      Kind = "task.dead"
	TaskPoisoned  Kind = "task.poisoned"
	TaskDiscarded Kind = "task.discarded"
	TaskCancelled Kind = "task.cancelled"
	TaskReplayed  Kind = "task.replayed" // a final task starts over

	QueueCreated Kind = "queue.created"
	QueueChanged Kind = "queue.changed"
	QueuePaused  Kind = "queue.paused" // or a type or key in it
	QueueResumed Kind = "queue.resumed"
	QueueDeleted Kind = "queue.deleted"

	BreakerOpened Kind = "breaker.opened"
	BreakerClosed Kind = "breaker.closed"

	ScheduleMissed Kind = "schedule.missed"

	OperationStarted Kind = "operation.started"
	OperationPaused  Kind = "operation.paused"
	OperationResumed Kind = "operation.resumed"
	OperationDone    Kind = "operation.done"
	OperationAborted Kind = "operation.aborted"
	OperationFailed  Kind = "operation.failed"
)

// Kinds lists every kind.
var Kinds = []Kind{TaskEnqueued, TaskClaimed, TaskSucceeded, TaskFailed, TaskLeaseLost, TaskReleased, TaskRetrying, TaskDead, TaskPoisoned,
	TaskDiscarded, TaskCancelled, TaskReplayed, QueueCreated, QueueChanged, QueuePaused, QueueResumed, QueueDeleted,
	BreakerOpened, BreakerClosed, ScheduleMissed, OperationStarted, OperationPaused, OperationResumed, OperationDone,
	OperationAborted, OperationFailed}

// Event is something that happened in a shard. Fields that do not apply to its kind are zero.
type Event struct {
	Index     uint64 // of the log entry
	Number    uint32 // position among the events of the entry, from 1
	At        time.Time
	Kind      Kind
	Namespace string
	Queue     string
	Type      string // of the task or breaker, or the type that was paused or resumed
	Key       string // the key that was paused or resumed
	Task      task.ID
	State     task.State // the task's new state
	Attempt   int
	Worker    string
	Reason    string
	Error     string // of a failed attempt, up to maxError bytes
	Name      string // of the schedule; for an operation, its id
	Count     int64  // ticks that a schedule missed
}

// maxError bounds the error of an event, in bytes; the attempt's record has all of it.
const maxError = 256

// CutError truncates an error's message for an event.
func CutError(s string) string { return task.Cut(s, maxError) }

// size returns about how many bytes an event takes in memory and in messages.
func (e *Event) size() int {
	return 250 + len(e.Queue) + len(e.Type) + len(e.Key) + len(e.Worker) + len(e.Reason) + len(e.Error) + len(e.Name)
}

// Filter selects events of a namespace. Fields that are set must all match.
type Filter struct {
	Namespace string
	Since     time.Time // when the namespace was added: events before that are of an earlier one of its name
	Queue     string
	Type      string
	Task      task.ID
	Kinds     []Kind // any of these; one that ends with .* matches every kind with that prefix
	Scope     task.Scope
}

// maxKinds bounds the number of kinds in a filter.
const maxKinds = 32

// CheckKinds returns an error for words that match no kind.
func CheckKinds(field string, kinds []Kind) error {
	if len(kinds) > maxKinds {
		return task.Invalid(field, "%d kinds, at most %d are allowed", len(kinds), maxKinds)
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(Kinds, k.covers) {
			return task.Invalid(field, "%q is neither a kind of event such as task.dead nor a group of them such as task.*",
				task.Cut(string(k), 64))
		}
	}
	return nil
}

// covers reports whether k, a word of a filter, matches the kind o.
func (k Kind) covers(o Kind) bool {
	sort, all := strings.CutSuffix(string(k), "*")
	return k == o || all && strings.HasSuffix(sort, ".") && strings.HasPrefix(string(o), sort)
}

func (f *Filter) matches(e *Event) bool {
	return e.Namespace == f.Namespace && !e.At.Before(f.Since) && (f.Queue == "" || e.Queue == f.Queue) &&
		(f.Type == "" || e.Type == f.Type) && (f.Task == task.ID{} || e.Task == f.Task) &&
		(len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(k Kind) bool { return k.covers(e.Kind) })) &&
		(f.Scope.All() || e.Queue != "" && f.Scope.Sees(e.Queue))
}
