package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
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
