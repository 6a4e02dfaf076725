package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what is known apart from the records, and how much to check.
type Options struct {
	// Final is an authoritative read of each task (Get), made after all other calls were answered or given up and the
	// faults were over. Nil: none, so that lost tasks can't be detected.
	Final []Record
	// Drained: all tasks had been finished before the final reads.
	Drained bool
	// Overdue is how long after a lease's end, or after its due time, a task may be found unmoved at the end; 0: not checked.
	Overdue time.Duration
	// DeadLetters are the ids in a listing of all dead letters made with the final reads. Nil: none.
	DeadLetters []string
	// Began is the wall clock at CallNS 0, and ClockBound the maximum difference between shard time and wall clock. They
	// check shard times, and replace those that records lack. ClockBound 0: neither.
	Began      time.Time
	ClockBound time.Duration
	// Sample is how many of the replayed tasks are also searched, without the log; 0: defaultSample; -1: none.
	Sample int
	// Timeout limits the search of one task; 0: defaultTimeout.
	Timeout time.Duration
}

const (
	// A search takes a few microseconds per call, so the sample costs next to nothing.
	defaultSample = 1000
	// A search that takes longer than a second or two takes forever.
	defaultTimeout = 10 * time.Second
	// maxViolations is the maximum number of violations in a report; a broken broker breaks everything.
	maxViolations = 50
)

// Violation is a violated invariant, with the records that show it.
type Violation struct {
	Rule    Invariant
	Task    string
	Why     string
	Records []Record
}

// String formats the violation in one line, followed by a line for each record.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: task %q: %s", v.Rule, v.Task, v.Why)
	for i := range v.Records {
		fmt.Fprintf(&b, "\n\t%s", v.Records[i].String())
	}
	return b.String()
}

// Report is the result of a check. A history passes only if nothing is undecided.
type Report struct {
	Violations []Violation // at most 50 of them
	Found      int         // how many there were
	Undecided  []Undecided // tasks that could not be decided: the test must be made smaller
	Calls      int         // records
	Tasks      int
	Replayed   int // tasks replayed by the log
	Searched   int // tasks searched because an unanswered call, or an answer without an index, may have moved them
	Sampled    int // tasks searched in addition
}

// Undecided is a task that could not be decided.
type Undecided struct{ Task, Why string }

// OK reports whether the history is one of a queue that keeps its promises.
func (r *Report) OK() bool { return r.Found == 0 && len(r.Undecided) == 0 }

// String returns a summary and every finding.
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

// Check checks a history. The records may be in any order; they are not modified.
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

// sum completes a check.
func (b *book) sum() *Report {
	r := &b.report
	r.Calls, r.Tasks = b.calls, len(b.lives)
	slices.SortStableFunc(r.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Task, y.Task))
	})
	return r
}

// violation records a finding.
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
