package events

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Kind is what happened. The words are part of the public contract.
type Kind string

// The kinds.
const (
	TaskEnqueued  Kind = "task.enqueued"
	TaskClaimed   Kind = "task.claimed"
	TaskSucceeded Kind = "task.succeeded"
	TaskFailed    Kind = "task.failed" // an attempt; what becomes of the task follows
	TaskLeaseLost Kind = "task.lease_lost"
	TaskReleased  Kind = "task.released" // or put off; no attempt was used
	TaskRetrying  Kind = "task.retrying"
	TaskDead      Kind = "task.dead"
	TaskPoisoned  Kind = "task.poisoned"
	TaskDiscarded Kind = "task.discarded"
	TaskCancelled Kind = "task.cancelled"
	TaskReplayed  Kind = "task.replayed" // a new life after an end

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

// Kinds lists all of them.
var Kinds = []Kind{TaskEnqueued, TaskClaimed, TaskSucceeded, TaskFailed, TaskLeaseLost, TaskReleased, TaskRetrying, TaskDead, TaskPoisoned,
	TaskDiscarded, TaskCancelled, TaskReplayed, QueueCreated, QueueChanged, QueuePaused, QueueResumed, QueueDeleted, BreakerOpened, BreakerClosed,
	ScheduleMissed, OperationStarted, OperationPaused, OperationResumed, OperationDone, OperationAborted, OperationFailed}

// Event is something that happened in a shard. Fields that make no sense for its kind are zero.
type Event struct {
	Index     uint64 // of the log entry
	Number    uint32 // among the events of the entry, from 1
	At        time.Time
	Kind      Kind
	Namespace string
	Queue     string
	Type      string // of a task, or of a breaker
	Task      task.ID
	State     task.State // that the task came to
	Attempt   int
	Worker    string
	Reason    string
	Error     string // of a failed attempt, up to maxError bytes
	Name      string // of a schedule; of an operation its id
	Count     int64  // of a missed schedule, its ticks
}

// maxError bounds what an event tells of an error; the attempt's record has all of it.
const maxError = 256

// CutError is an error's message as events have it.
func CutError(s string) string { return task.Cut(s, maxError) }

// size is about what an event takes in memory and in messages.
func (e *Event) size() int {
	return 250 + len(e.Queue) + len(e.Type) + len(e.Worker) + len(e.Reason) + len(e.Error) + len(e.Name)
}

// Filter selects events of a namespace. Fields that are set must all match.
type Filter struct {
	Namespace string
	Queue     string
	Type      string
	Task      task.ID
	Kinds     []Kind // any of these; one that ends with .* is all of its sort
	Scope     task.Scope
}

// maxKinds bounds the kinds of a filter.
const maxKinds = 32

// CheckKinds refuses words that are no kinds.
func CheckKinds(field string, kinds []Kind) error {
	if len(kinds) > maxKinds {
		return task.Invalid(field, "%d kinds, at most %d are allowed", len(kinds), maxKinds)
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(Kinds, k.covers) {
			return task.Invalid(field, "%q is neither a kind of event such as task.dead nor a group of them such as task.*", task.Cut(string(k), 64))
		}
	}
	return nil
}

// covers says whether a word of a filter means a kind.
func (k Kind) covers(o Kind) bool {
	sort, all := strings.CutSuffix(string(k), "*")
	return k == o || all && strings.HasSuffix(sort, ".") && strings.HasPrefix(string(o), sort)
}

func (f *Filter) matches(e *Event) bool {
	return e.Namespace == f.Namespace && (f.Queue == "" || e.Queue == f.Queue) && (f.Type == "" || e.Type == f.Type) &&
		(f.Task == task.ID{} || e.Task == f.Task) &&
		(len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(k Kind) bool { return k.covers(e.Kind) })) &&
		(f.Scope.All() || e.Queue != "" && f.Scope.Sees(e.Queue))
}
