package breaker

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// State is where a breaker is. The values are stored.
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
	Seen      Window // the attempts that ended lately; empty unless it is closed
	LastError string // of the last failure that counted, up to maxError bytes
	Dirty     bool   // its row is to be written

	// Of one that is not closed.
	Since  store.Time // when it opened first
	Until  store.Time // has a deadline: an open one probes, one that probes and has no probe is forgotten; 0: a probe runs
	Opened int        // times, without closing in between
	Passed int        // probes that succeeded since it opened last
	Probe  task.ID    // the task that is let through; zero: the next one may be
	Cause  Tally      // what opened it first
	Over   time.Duration
}

// maxError is how much of the last failure's message is remembered, in bytes.
const maxError = 200

// Tries says whether a task of the type may start, to see how it ends.
func (b *Breaker) Tries() bool { return b.State == Probing && b.Probe == task.ID{} }

// Info is how the breaker of a type stands that is not closed.
type Info struct {
	Type     string
	State    State
	Since    store.Time    // when it opened first
	Until    store.Time    // of an open one: when it lets a probe through
	Attempts int           // that opened it, in Window
	Failed   int           // of them
	Window   time.Duration //
	Error    string        // of the last failure that counted, up to 200 bytes
	Opened   int           // times, without closing in between: one more than probes failed
	Passed   int           // probes that succeeded since it opened last
	Probes   int           // that have to
	Probe    task.ID       // the task that is let through; zero: none at this moment
}

// Info tells how the breaker stands under its rule.
func (b *Breaker) Info(rule task.Breaker) Info {
	i := Info{Type: b.Type, State: b.State, Since: b.Since, Attempts: b.Cause.Attempts, Failed: b.Cause.Failed, Window: b.Over,
		Error: b.LastError, Opened: b.Opened, Passed: b.Passed, Probes: rule.Probes, Probe: b.Probe}
	if b.State == Open {
		i.Until = b.Until
	}
	return i
}

// Reason is what opened it, in words.
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

// ClosedBy is what closed a breaker.
type ClosedBy string

const (
	ByProbes   ClosedBy = "probes"   // enough have succeeded
	ByHand     ClosedBy = "operator" //
	BySettings ClosedBy = "settings" // its rule is gone
	Unused     ClosedBy = "unused"   // there was no task to probe with
)

// Change is a breaker that has opened, also again after a probe, or has closed: then it is told as it was before.
type Change struct {
	Namespace, Queue string
	Closed           ClosedBy // "": it has opened
	Info
}
