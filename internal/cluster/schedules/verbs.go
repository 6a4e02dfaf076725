package schedules

import (
	"context"

	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the names of schedules.
var Verbs verb.Table[*Names]

// Find returns the shard of a schedule.
var Find = verb.New(&Verbs, verb.Rule{Name: "find-schedule", Where: verb.System, Idempotent: true},
	func(s *Names, ctx context.Context, q Place) (Home, error) {
		return s.ScheduleHome(ctx, q.Namespace, q.Name)
	})

// Place says which schedule is meant.
type Place struct{ Namespace, Name string }
