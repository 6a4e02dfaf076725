// Package view has the words that tables use for what the API answers, and reads the API's objects that users write in
// flags and files. It has no types of its own for either: for programs, a command prints the answer as it came.
package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// QueueNote summarizes what keeps a queue or parts of it from running.
func QueueNote(q *admin.Queue) string {
	note, broken := PausesText(q), BreakersNote(q)
	if note != "" && broken != "" {
		note += "; "
	}
	return note + broken
}

// PausesText summarizes what is paused in a queue, and why.
func PausesText(q *admin.Queue) string {
	what, why := "", ""
	switch {
	case q.Paused:
		what, why = "paused", q.PausedReason
	case len(q.PausedSubsets) == 1:
		what, why = PauseText(q.PausedSubsets[0])+" paused", q.PausedSubsets[0].Reason
	case len(q.PausedSubsets) > 1:
		what = fmt.Sprintf("%d types and keys paused", len(q.PausedSubsets))
	}
	if why != "" {
		what += ": " + text.Short(why, 40)
	}
	return what
}

// PauseText names the type or key that is paused.
func PauseText(h admin.PausedSubset) string {
	if h.Key != "" {
		return "key " + h.Key
	}
	return "type " + h.Type
}

// BreakersNote summarizes which breakers are open.
func BreakersNote(q *admin.Queue) string {
	switch {
	case q.BreakersOpen == 0:
		return ""
	case q.BreakersOpen == 1 && len(q.Breakers) == 1:
		return fmt.Sprintf("breaker of type %s %s", q.Breakers[0].Type, q.Breakers[0].State)
	}
	return fmt.Sprintf("%d breakers open", q.BreakersOpen)
}

// QueueWords formats queues in the syntax of --queue.
func QueueWords(q pawl.Queues) string {
	switch q := q.(type) {
	case pawl.Strict:
		return strings.Join(q, ",")
	case pawl.Weighted:
		var words []string
		for _, name := range slices.Sorted(maps.Keys(q)) {
			words = append(words, fmt.Sprintf("%s=%d", name, q[name]))
		}
		return strings.Join(words, ",")
	}
	return ""
}

// ActorOf names who did something; "" if unknown.
func ActorOf(by *admin.Actor) string {
	if by == nil {
		return ""
	}
	return by.Actor
}

// RateWords formats a rate in tasks per second for people; "" for 0, which means no limit.
func RateWords(perSecond float64) string {
	if perSecond == 0 {
		return ""
	}
	return strconv.FormatFloat(perSecond, 'g', 4, 64) + "/s"
}

// waitText formats a delay of a retry policy.
func waitText(d time.Duration) string {
	if d == pawltype.NoWait {
		return "0s"
	}
	return text.Period(d)
}

// RetryText formats a retry policy in one line.
func RetryText(p pawltype.RetryPolicy) string {
	return fmt.Sprintf("%s, ×%g, at most %s, jitter %.0f%%", waitText(p.Initial), p.Factor, waitText(p.Max), 100*max(p.Jitter, 0))
}
