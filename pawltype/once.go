package pawltype

import "time"

// OnceState is the state of a once key.
type OnceState string

// States of a once key.
const (
	OnceRun  OnceState = "run"  // the claim holds it, and must run the effect
	OnceDone OnceState = "done" // the effect has happened
	OnceHeld OnceState = "held" // another claim holds it
	OnceFree OnceState = "free" // no claim holds it
)

// OnceAnswer is the state of a once key when a claim began it.
type OnceAnswer struct {
	State      OnceState
	Result     []byte        // if done: JSON, or empty
	KeptUntil  time.Time     // if done
	Holder     OnceHolder    // if held
	RetryAfter time.Duration // if held: when to ask again
}

// OnceHolder is the claim that holds a once key.
type OnceHolder struct {
	TaskID string
	Worker string
	Fence  int64
}
