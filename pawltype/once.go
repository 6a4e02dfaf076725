package pawltype

import "time"

// OnceState is how a once key stands.
type OnceState string

// States of a once key.
const (
	OnceRun  OnceState = "run"  // the claim holds it, and is to bring the effect about
	OnceDone OnceState = "done" // the effect is there
	OnceHeld OnceState = "held" // another claim holds it
	OnceFree OnceState = "free" // nobody holds it
)

// OnceAnswer is how a once key stood when a claim began it.
type OnceAnswer struct {
	State      OnceState
	Result     []byte        // if done: JSON, or nothing
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
