package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Effects reports what a round did, to be published once it is committed.
type Effects struct {
	// Transitions are the changes of tasks' states, in order.
	Transitions []Transition

	Woken    []Woken          // queues with new ready tasks; a queue may be listed more than once
	Ended    []Ended          // tasks that ended
	Dead     []DeadLetter     // those among them that get a log line
	Lost     []Lost           // claims that ended without a call of their holder
	Breakers []breaker.Change // those that opened or closed
	Ticked   []Ticked         // ticks of schedules that were decided
	// ToArchive reports whether dead letters wait for the archive.
	ToArchive bool
	// ToSend reports whether messages wait in the outbox.
	ToSend bool
	// ToOperate reports whether an operation was started, paused, resumed or aborted. Stopped lists those that have stopped or ended.
	ToOperate bool
	Stopped   []task.ID
	// Apart lists the rows that were set apart. Those beyond the table's bounds were not kept.
	Apart []schema.Apart
	// Events lists the other events of operations and schedules.
	Events []Event
}

// Woken names a queue with new ready tasks.
type Woken struct{ Namespace, Queue string }

// Ended names a task that ended.
type Ended struct {
	ID    task.ID
	State task.State
}

// Lost names a claim that ended without a call of its holder.
type Lost struct {
	ID     task.ID
	Token  task.Token
	Reason string // as of a stale claim
}

// DeadLetter holds what is logged about a task that became a dead letter.
type DeadLetter struct {
	Namespace string
	ID        task.ID
	Exec      schema.Exec
	Failure   schema.Failure // of the last attempt
	Headers   map[string]string
}

// Ticked is an entry added to the history of a schedule.
type Ticked struct {
	Namespace, Schedule string
	// Trace is the traceparent of the task that the tick created; "": it belongs to no trace, or there is no task.
	Trace string
	schema.Tick
}

// Event is an event of an operation or a schedule, named as in the events API.
type Event struct {
	Kind      string // such as operation.done
	Namespace string
	Name      string // of a schedule; of an operation its id
	Queue     string // of the tasks concerned, if they are all of one queue
	Type      string // of a schedule's task
	Reason    string
	Count     int // of a missed schedule, its ticks
}
