package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what is known beside the records, and how much is checked.
type Options struct {
	// Final is an authoritative read of each task (Get), made after everything else was answered or given up and the
	// faults were over. Nil: none was made, so that lost tasks can't be seen.
	Final []Record
	// Drained: all tasks had been worked off before the final reads.
	Drained bool
	// Overdue is how long after a lease's end, or after its due time, a task may be found unmoved at the end; 0: not
	// checked.
	Overdue time.Duration
	// DeadLetters are the ids of a listing of all dead letters made with the final reads. Nil: none was made.
	DeadLetters []string
	// Began is the wall clock when CallNS was 0, and ClockBound how far shard time may be from the wall clock. They check
	// shard times, and stand in for those that records lack. ClockBound 0: neither.
	Began      time.Time
	ClockBound time.Duration
	// Sample is how many of the tasks that were replayed by the log are searched too, without the log; 0: defaultSample;
	// -1: none.
	Sample int
	// Timeout bounds the search of one task; 0: defaultTimeout.
	Timeout time.Duration
}

const (
	// A search costs a few microseconds a call, so that the sample costs next to nothing.
	defaultSample = 1000
	// A search that takes longer than a second or two takes for ever.
	defaultTimeout = 10 * time.Second
	// maxViolations bounds what a report shows; a broken broker breaks everything.
	maxViolations = 50
)

// Violation is an invariant that did not hold, and the records that show it.
type Violation struct {
	Rule    Invariant
	Task    string
	Why     string
	Records []Record
}

// String tells it in a line, and each record in a further one.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: task %q: %s", v.Rule, v.Task, v.Why)
	for i := range v.Records {
		fmt.Fprintf(&b, "\n\t%s", v.Records[i].String())
	}
	return b.String()
}

// Report is what was found. A history is good only if nothing is left undecided.
type Report struct {
	Violations []Violation // at most 50 of them
	Found      int         // how many there were
	Undecided  []Undecided // tasks that could not be judged: the test must be made smaller
	Calls      int         // records
	Tasks      int
	Replayed   int // tasks replayed by the log
	Searched   int // tasks searched because a call without an answer, or without an index, may have moved them
	Sampled    int // tasks searched beside
}

// Undecided is a task that could not be judged.
type Undecided struct{ Task, Why string }

// OK says that the history is one of a queue that keeps its promises.
func (r *Report) OK() bool { return r.Found == 0 && len(r.Undecided) == 0 }

// String sums up, and tells each finding.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls, %d tasks: %d replayed, %d searched, %d searched as a sample; %d violations, %d undecided",
		r.Calls, r.Tasks, r.Replayed, r.Searched, r.Sampled, r.Found, len(r.Undecided))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%s", v)
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(&b, "\nundecided: task %q: %s", u.Task, u.Why)
	}
	return b.String()
}

// Check judges a history. The records may come in any order; they are not changed.
func Check(records []Record, o Options) *Report {
	b := newBook(records, o)
	b.facts()
	b.resolve()
	b.replay()
	b.sweep()
	b.search(b.open(), true)
	b.report.Sampled = b.search(b.sample(), false)
	return b.sum()
}

// sum ends a check.
func (b *book) sum() *Report {
	r := &b.report
	r.Calls, r.Tasks = b.calls, len(b.lives)
	slices.SortStableFunc(r.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Task, y.Task))
	})
	return r
}

// violation notes what was found.
func (b *book) violation(f fault, task string, shown ...*Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.report.Found++; len(b.report.Violations) >= maxViolations {
		return
	}
	v := Violation{Rule: f.rule, Task: task, Why: f.why}
	for _, r := range shown {
		if r != nil {
			v.Records = append(v.Records, *r)
		}
	}
	b.report.Violations = append(b.report.Violations, v)
}

func (b *book) undecided(task, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.Undecided = append(b.report.Undecided, Undecided{task, why})
}
