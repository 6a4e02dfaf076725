package schedules

import (
	"context"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// Home is the shard of a schedule.
type Home struct {
	Shard uint32 `json:"shard"`
	// Version is that of the last call that registered the name. No two calls have the same.
	Version uint64 `json:"version"`
}

const (
	// MaxSchedules bounds the schedules of all namespaces together.
	MaxSchedules = 1_000_000
)

// Names reads and changes the names of schedules.
type Names struct{ shard *system.Shard }

// New returns the names in a system shard.
func New(shard *system.Shard) *Names { return &Names{shard} }

func scheduleKey(ns, name string) []byte { return system.Key(system.CronTable, ns, name) }

// NameSchedule registers the name of a schedule that is about to be put or deleted, and returns its shard and a new version. A new name
// gets the wanted shard.
func (s *Names) NameSchedule(ctx context.Context, ns, name string, wanted uint32) (Home, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Home, error) {
		key := scheduleKey(ns, name)
		home, known, err := system.GetRow[Home](tx, key)
		if err != nil {
			return Home{}, err
		}
		if !known {
			of, err := namespaces.Get(tx, ns)
			if err == nil {
				err = of.MayHaveOneMore(task.QuotaSchedules, "name", name,
					int(system.GetNumber(tx, system.SchedulesOfKey(ns)))) // #nosec G115 -- at most MaxSchedules
			}
			if err != nil {
				return Home{}, err
			}
			if err := s.countSchedules(tx, ns, name, +1); err != nil {
				return Home{}, err
			}
			home.Shard = wanted
		}
		home.Version = tx.NextSeq()
		tx.Set(key, system.EncodeRow(home))
		return home, nil
	})
}

// ScheduleHome returns the shard of a schedule, if its name is registered.
func (s *Names) ScheduleHome(ctx context.Context, ns, name string) (Home, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (Home, error) {
		home, known, err := system.GetRow[Home](r, scheduleKey(ns, name))
		if err == nil && !known {
			err = task.NotFound("schedule", name)
		}
		return home, err
	})
}

// ForgetSchedule removes the name of a deleted schedule, unless it was registered again after this version.
func (s *Names) ForgetSchedule(ctx context.Context, ns, name string, version uint64) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		key := scheduleKey(ns, name)
		home, known, err := system.GetRow[Home](tx, key)
		if err != nil || !known || home.Version != version {
			return struct{}{}, err
		}
		tx.Delete(key)
		return struct{}{}, s.countSchedules(tx, ns, name, -1)
	})
	return err
}

// countSchedules adds n to the number of names, in total and of the namespace.
func (s *Names) countSchedules(tx *store.Tx, ns, name string, n int) error {
	count := int(system.GetNumber(tx, system.SchedulesKey)) + n // #nosec G115 -- at most MaxSchedules
	if count > MaxSchedules {
		return task.Invalid("name", "%q would exceed the limit of %d schedules", name, MaxSchedules)
	}
	tx.Set(system.SchedulesKey, system.EncodeNumber(uint64(max(count, 0))))    // #nosec G115 -- not negative
	of := int(system.GetNumber(tx, system.SchedulesOfKey(ns))) + n             // #nosec G115 -- at most MaxSchedules
	tx.Set(system.SchedulesOfKey(ns), system.EncodeNumber(uint64(max(of, 0)))) // #nosec G115 -- not negative
	return nil
}

// Forget removes the number of a namespace's schedules.
func Forget(tx *store.Tx, ns string) { tx.Delete(system.SchedulesOfKey(ns)) }
