package task

import "slices"

// BulkAction is what an operation does with each task that its filter selects.
type BulkAction string

// The actions of operations. The words are stored.
const (
	Replay      BulkAction = "replay"       // gives ended tasks a new life, and retrying ones their next attempt, as a retry by hand does
	Cancel      BulkAction = "cancel"       // ends tasks that have not ended
	Discard     BulkAction = "discard"      // ends tasks that wait, and drops dead letters, which are archived first
	Move        BulkAction = "move"         // takes tasks that wait to another queue, as new ones
	SetPriority BulkAction = "set_priority" // of tasks that wait
	RunNow      BulkAction = "run_now"      // makes tasks ready that wait for their time
)

// BulkActions lists all of them.
var BulkActions = []BulkAction{Replay, Cancel, Discard, Move, SetPriority, RunNow}

// actionStates are the states from which an action can take a task.
var actionStates = map[BulkAction][]State{
	Replay:      {Retrying, Discarded, Dead, Poisoned, Cancelled},
	Cancel:      {Scheduled, Ready, Claimed, Retrying},
	Discard:     {Scheduled, Ready, Retrying, Dead, Poisoned},
	Move:        {Scheduled, Ready, Retrying},
	SetPriority: {Scheduled, Ready, Retrying},
	RunNow:      {Scheduled, Retrying},
}

// Selects are the states of the tasks that an action selects if a filter asks for some: those, or if it asks for none all that the
// action can take. Only a replay means dead letters then: the others wait already, or have ended on purpose.
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

// Why an operation passes over a task that its filter selected.
const (
	SkipChanged   = "changed"          // it was in another state when its turn came
	SkipUniqueKey = "unique_key_taken" // its unique key belongs to another task by now
	SkipMoved     = "moved"            // it lives on in another queue
	SkipSame      = "unchanged"        // it has the priority already
	SkipQueueGone = "queue_gone"       // its queue has left the shard where it lies
	SkipTied      = "tied"             // others follow it, or it is a member of a group: these know it by its id
)
