package pawltype

import "time"

// Priority orders the tasks within a queue.
type Priority string

// Priorities. The default is Normal.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// RetryPolicy sets how long a failed task waits: min(Initial × Factor^(n-1), Max) before attempt n+1, plus up to Jitter of that.
// Zero fields have defaults.
type RetryPolicy struct {
	Initial time.Duration `json:"initial"` // default 30 s, NoWait for none
	Factor  float64       `json:"factor"`  // at least 1; default 2
	Max     time.Duration `json:"max"`     // default 30 min, NoWait for none
	Jitter  float64       `json:"jitter"`  // a share from 0 to 1; default 0.25, NoJitter for none
}

// NoJitter in RetryPolicy.Jitter means a share of 0.
const NoJitter = -1

// NoWait in RetryPolicy.Initial or RetryPolicy.Max means a duration of 0.
const NoWait time.Duration = -1

// UniqueOpts describe how a task holds a unique key: from the enqueue until the task leaves States. By default the key is released the
// instant the task ends, however it ends.
type UniqueOpts struct {
	// Key is at most 256 bytes; "": a key made of the task's type and payload, in whatever notation.
	Key string
	// States are those in which a task holds its key. They must include all that are not final, which is the default; final ones can
	// be added with OnConflictKeep and OnConflictReject: then the key is held until retention removes the task.
	States []State
	// OnConflict decides what happens to a task whose key another task holds; "": OnConflictKeep.
	OnConflict OnConflict
}

// OnConflict decides what happens to a task whose unique key another task holds.
type OnConflict string

const (
	// OnConflictKeep returns the other task, with Ref.Duplicate set.
	OnConflictKeep OnConflict = "keep"
	// OnConflictReplace discards the waiting task that holds the key, and takes its place: a debounce. If that task is not waiting but
	// running, OnConflictKeep applies.
	OnConflictReplace OnConflict = "replace"
	// OnConflictKeepLast is like OnConflictReplace, but while the other task runs, the new one waits behind it: at most
	// one runs and one waits, with the newest data. If the running task is due to run again while another waits behind it,
	// it is discarded in favor of that one.
	OnConflictKeepLast OnConflict = "keep_last"
	// OnConflictReject refuses the new task with ErrConflict.
	OnConflictReject OnConflict = "reject"
)
