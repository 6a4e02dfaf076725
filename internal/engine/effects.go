package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Effects are what others want to know of a round once it is committed.
type Effects struct {
	// Transitions are what became of tasks, in the order in which it did.
	Transitions []Transition

	Woken    []Woken          // queues that got ready tasks, and may be named more than once
	Ended    []Ended          // tasks that came to an end
	Dead     []DeadLetter     // those among them that want a log line
	Lost     []Lost           // claims that ended without their holder's doing
	Breakers []breaker.Change // those that opened or closed
	Ticked   []Ticked         // ticks of schedules that were decided
	// ToArchive says that dead letters wait for the archive.
	ToArchive bool
	// ToSend says that messages wait for the sender.
	ToSend bool
	// ToOperate says that an operation was started or steered, Rested which have stopped or ended.
	ToOperate bool
	Rested    []task.ID
	// Happened is what operations and schedules did beside that.
	Happened []Happened
}

// Woken names a queue with new ready tasks.
type Woken struct{ Namespace, Queue string }

// Ended names a task that came to an end.
type Ended struct {
	ID    task.ID
	State task.State
}

// Lost names a claim that ended without its holder's doing.
type Lost struct {
	ID     task.ID
	Token  task.Token
	Reason string // as of a stale claim
}

// DeadLetter is what is logged of a task that became a dead letter.
type DeadLetter struct {
	Namespace string
	ID        task.ID
	Exec      schema.Exec
	Failure   schema.Failure // of the last attempt
	Headers   map[string]string
}

// Ticked is an entry that was added to the history of a schedule.
type Ticked struct {
	Namespace, Schedule string
	// Trace is the traceparent of the task that the tick made; "": it belongs to no trace, or there is no task.
	Trace string
	schema.Tick
}

// Happened is something that a round did to an operation or a schedule, in the words of the events.
type Happened struct {
	What      string // such as operation.done
	Namespace string
	Name      string // of a schedule; of an operation its id
	Queue     string // of the tasks that it is about, if it is one
	Type      string // of a schedule's task
	Reason    string
	Count     int // of a missed schedule, its ticks
}
