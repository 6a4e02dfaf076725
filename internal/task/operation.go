package task

import "slices"

// BulkAction is what an operation does to each task that its filter selects.
type BulkAction string

// The actions of operations. The names are stored.
const (
	Replay      BulkAction = "replay"       // starts ended tasks again, and runs the next attempt of retrying ones, as a manual retry does
	Cancel      BulkAction = "cancel"       // ends tasks that have not ended
	Discard     BulkAction = "discard"      // ends waiting tasks, and drops dead letters, which are archived first
	Move        BulkAction = "move"         // moves waiting tasks to another queue, as new tasks
	SetPriority BulkAction = "set_priority" // of waiting tasks
	RunNow      BulkAction = "run_now"      // makes tasks ready that wait for their time
)

// BulkActions lists all of them.
var BulkActions = []BulkAction{Replay, Cancel, Discard, Move, SetPriority, RunNow}

// actionStates maps each action to the states of tasks that it applies to.
var actionStates = map[BulkAction][]State{
	Replay:      {Retrying, Discarded, Dead, Poisoned, Cancelled},
	Cancel:      {Scheduled, Ready, Claimed, Retrying},
	Discard:     {Scheduled, Ready, Retrying, Dead, Poisoned},
	Move:        {Scheduled, Ready, Retrying},
	SetPriority: {Scheduled, Ready, Retrying},
	RunNow:      {Scheduled, Retrying},
}

// Selects returns the states of the tasks that an action selects: those asked for by a filter, or if there are none all that the action
// applies to. A replay then selects only dead letters: tasks in its other states are waiting already, or have ended on purpose.
func (a BulkAction) Selects(asked []State) ([]State, error) {
	can := actionStates[a]
	if can == nil {
		return nil, NoneOf("action", string(a), BulkActions)
	}
	if len(asked) == 0 && a == Replay {
		return []State{Dead}, nil
	}
	if len(asked) == 0 {
		return can, nil
	}
	for _, s := range asked {
		if !slices.Contains(can, s) {
			return nil, Invalid("filter.state", "%s: %s is for tasks that are %s", s, a, StatesOf(can...))
		}
	}
	return asked, nil
}

// Reasons why an operation skips a task that its filter selected.
const (
	SkipChanged    = "changed"          // its state changed before its turn
	SkipUniqueKey  = "unique_key_taken" // its unique key now belongs to another task
	SkipMoved      = "moved"            // it lives on in another queue
	SkipSame       = "unchanged"        // it already has the priority
	SkipQueueGone  = "queue_gone"       // its queue is no longer in the task's shard
	SkipInWorkflow = "in_workflow"      // other tasks follow it, or it is a member of a group: these refer to it by its id
)
