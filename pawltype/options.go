package pawltype

import "time"

// Priority orders the tasks within a queue.
type Priority string

// The priorities. Without one, a task is Normal.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// RetryPolicy says how long a failed task waits: min(Initial × Factor^(n-1), Max) before attempt n+1, plus up to Jitter of it.
// A zero field means the default.
type RetryPolicy struct {
	Initial time.Duration `json:"initial"` // default 30 s, NoWait for none
	Factor  float64       `json:"factor"`  // at least 1; default 2
	Max     time.Duration `json:"max"`     // default 30 min, NoWait for none
	Jitter  float64       `json:"jitter"`  // a share from 0 to 1; default 0.25, NoJitter for none
}

// NoJitter in RetryPolicy.Jitter stands for a share of 0.
const NoJitter = -1

// NoWait in RetryPolicy.Initial or RetryPolicy.Max stands for a duration of 0.
const NoWait time.Duration = -1

// UniqueOpts say how a task holds a unique key. The key is held from the enqueue until the task leaves the states, and is free in the instant it ends, however it ends.
type UniqueOpts struct {
	// Key is at most 256 bytes; "": one that stands for the task's type and payload, byte by byte.
	Key string
	// States are those in which a task holds its key. All that are no end must be among them, which is the default; ends may be
	// added with OnConflictKeep and OnConflictReject: then the key is held until retention removes the task.
	States []State
	// OnConflict says what becomes of a task whose key another one holds; "": OnConflictKeep.
	OnConflict OnConflict
}

// OnConflict says what becomes of a task whose unique key another one holds.
type OnConflict string

const (
	// OnConflictKeep gives the other task, with Ref.Duplicate set.
	OnConflictKeep OnConflict = "keep"
	// OnConflictReplace discards the task of the key that waits, and takes its place: a debounce. If none waits, since the other
	// one runs, it is as OnConflictKeep.
	OnConflictReplace OnConflict = "replace"
	// OnConflictKeepLast is as OnConflictReplace, but while the other one runs, the new one waits behind it: at most one runs and
	// one waits, with the newest data. A task that would be run again while another waits behind it is discarded in its favour.
	OnConflictKeepLast OnConflict = "keep_last"
	// OnConflictReject refuses the new task with ErrConflict.
	OnConflictReject OnConflict = "reject"
)
