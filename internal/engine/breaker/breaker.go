package breaker

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// State is the state of a breaker. The values are stored.
type State uint8

const (
	Closed State = iota
	Open
	Probing
)

func (s State) String() string { return [...]string{"closed", "open", "probing"}[s] }

// Breaker is the leader's memory of the breaker of one type.
type Breaker struct {
	Type      string
	State     State
	Seen      Window // recently ended attempts; empty unless it is closed
	LastError string // of the last failure that counted, up to maxError bytes
	Dirty     bool   // its row must be written

	// Zero if it is closed.
	Since store.Time // when it first opened
	// the deadline at which an open breaker starts probing, or one that waits for a probe is forgotten; 0: a probe is
	// running
	Until  store.Time
	Opened int     // how often it opened without closing in between
	Passed int     // probes that succeeded since it last opened
	Probe  task.ID // the task that is let through; zero: the next one will be
	Cause  Tally   // the attempts that first opened it
	Over   time.Duration
}

// maxError bounds how much of the last failure's message is kept, in bytes.
const maxError = 200

// Tries reports whether a task of the type may start as a probe.
func (b *Breaker) Tries() bool { return b.State == Probing && b.Probe == task.ID{} }

// Info describes a breaker that is not closed.
type Info struct {
	Type     string
	State    State
	Since    store.Time    // when it first opened
	Until    store.Time    // if open: when it lets a probe through
	Attempts int           // that opened it, within Window
	Failed   int           // of those attempts
	Window   time.Duration //
	Error    string        // of the last failure that counted, up to 200 bytes
	Opened   int           // how often, without closing in between: one more than the number of failed probes
	Passed   int           // probes that succeeded since it last opened
	Probes   int           // that must succeed to close it
	Probe    task.ID       // the task that is let through; zero: none at the moment
}

// Info describes the breaker under its rule.
func (b *Breaker) Info(rule task.Breaker) Info {
	i := Info{Type: b.Type, State: b.State, Since: b.Since, Attempts: b.Cause.Attempts, Failed: b.Cause.Failed, Window: b.Over,
		Error: b.LastError, Opened: b.Opened, Passed: b.Passed, Probes: rule.Probes, Probe: b.Probe}
	if b.State == Open {
		i.Until = b.Until
	}
	return i
}

// Reason returns a text that says why it opened.
func (i *Info) Reason() string {
	text := fmt.Sprintf("%d of %s failed within %s", i.Failed, humanize.Count(int64(i.Attempts), "attempt"), i.Window)
	if i.Opened > 1 {
		text += fmt.Sprintf(", then %s", humanize.Count(int64(i.Opened-1), "probe"))
	}
	if i.Error != "" {
		text += fmt.Sprintf(", the last with %q", i.Error)
	}
	return text
}

// ClosedBy is the reason for which a breaker closed.
type ClosedBy string

const (
	ByProbes   ClosedBy = "probes"   // enough probes succeeded
	ByHand     ClosedBy = "operator" //
	BySettings ClosedBy = "settings" // its rule was removed
	Unused     ClosedBy = "unused"   // there was no task to probe with
)

// Change reports a breaker that has opened, possibly again after a failed probe, or has closed. Info is then as it was before.
type Change struct {
	Namespace, Queue string
	Closed           ClosedBy // "": it has opened
	Info
}
