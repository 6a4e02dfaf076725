package tasks

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// step is something that was done to a task from outside.
type step struct {
	Word    string
	At      time.Time // zero: unknown
	Many    bool      // together with other tasks
	By      string    // "": unknown
	Reason  string
	Changes string // the names of what an edit changed
}

// maxSteps is how many of them a page shows, the newest.
const maxSteps = 20

// stepWords are the audit log's actions on a task.
var stepWords = map[string]string{"task.retry": "replayed", "task.run_now": "run now", "task.edit": "edited", "task.cancel": "cancelled",
	"task.discard": "discarded"}

// stepsOf returns what operators did to a task, newest first, and whether that is all: a visitor who may not read the audit log sees none,
// and it may be too long to find all.
func stepsOf(req *web.Request, t *pawltype.Task) (steps []step, all bool) {
	if !req.MayOpen("/audit") {
		return nil, false
	}
	page, err := req.Admin().Audit().ListPage(req.Ctx, admin.AuditFilter{TargetKind: "task", Target: t.ID, Since: t.CreatedAt},
		pawltype.PageRequest{Limit: maxSteps})
	if err != nil {
		return nil, false
	}
	req.Lacks(page.Missing)
	for _, e := range page.Items {
		one := step{Word: stepWords[e.Action], At: e.At, By: e.Actor, Reason: e.Reason}
		if one.Word == "" {
			one.Word = e.Action
		}
		if e.Action == "task.edit" {
			var after map[string]json.RawMessage
			_ = json.Unmarshal(e.After, &after) // the names are an extra
			one.Changes = strings.ReplaceAll(format.List(slices.Sorted(maps.Keys(after))), "_", " ")
		}
		steps = append(steps, one)
	}
	return steps, page.NextCursor == "" && len(page.Missing) == 0
}

// addSteps puts what operators did between the attempts: after the one that had begun last. A replay of many tasks at once has no entry for
// each: it follows from an attempt after the last one. If not all steps are known, that may also be one that is missing.
func (v *attemptsView) addSteps(steps []step, all bool, log []pawltype.Attempt) {
	in := func(from, until time.Time) []step {
		return slices.Collect(func(yield func(step) bool) {
			for _, s := range steps {
				if !s.At.Before(from) && (until.IsZero() || s.At.Before(until)) && !yield(s) {
					return
				}
			}
		})
	}
	for i, a := range log {
		var next time.Time
		if i+1 < len(log) {
			next = log[i+1].StartedAt
		}
		at := slices.IndexFunc(v.Rows, func(r attemptRow) bool { return r.Fence == a.Fence })
		if at < 0 {
			continue
		}
		after := in(a.StartedAt, next)
		if !next.IsZero() && wasLast(a) && !slices.ContainsFunc(after, func(s step) bool { return s.Word == "replayed" }) {
			after = append([]step{{Word: "replayed", Many: all}}, after...)
		}
		v.Rows[at].After = after
	}
	if v.Older == "" {
		v.Before = steps
		if len(log) > 0 {
			v.Before = in(time.Time{}, log[0].StartedAt)
		}
	}
}

// wasLast reports whether a task had ended with an attempt.
func wasLast(a pawltype.Attempt) bool {
	switch a.Outcome {
	case pawltype.OutcomeFailed:
		return a.NextRunAt.IsZero()
	case pawltype.OutcomeDead, pawltype.OutcomePoisoned, pawltype.OutcomeDiscarded, pawltype.OutcomeCancelled:
		return true
	}
	return false
}
