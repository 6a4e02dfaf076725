package schedules

import (
	"context"

	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the names of schedules.
var Verbs verb.Table[*Names]

// Register registers a schedule's name, with the wanted shard unless it has one, and Drop drops the name if it has still that version.
var (
	Register = verb.New(&Verbs, verb.SystemRule("name-schedule"),
		func(s *Names, ctx context.Context, q Naming) (Home, error) {
			return s.NameSchedule(ctx, q.Namespace, q.Name, q.Shard)
		})
	Drop = verb.NewVoid(&Verbs, verb.SystemRule("forget-schedule"),
		func(s *Names, ctx context.Context, q Naming) error {
			return s.ForgetSchedule(ctx, q.Namespace, q.Name, q.Version)
		})
)

// Naming is a schedule's name, and what becomes of it.
type Naming struct {
	Place
	Shard   uint32 // wanted
	Version uint64
}

// Find returns the shard of a schedule.
var Find = verb.New(&Verbs, verb.SystemRule("find-schedule"),
	func(s *Names, ctx context.Context, q Place) (Home, error) {
		return s.ScheduleHome(ctx, q.Namespace, q.Name)
	})

// Place says which schedule is meant.
type Place struct{ Namespace, Name string }
