package cluster

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The system shard has the names of schedules with the shard of each, so that names are unique; everything else about a schedule is in its
// shard. A name is registered before its schedule is put, and removed after it was deleted, both with a version that only grows: the shard
// refuses late calls with an older one.

// ScheduleHome is the shard of a schedule.
type ScheduleHome struct {
	Shard uint32 `json:"shard"`
	// Version is that of the last call that registered the name.
	Version uint64 `json:"version"`
}

const (
	// maxSchedules bounds the schedules of all namespaces together.
	maxSchedules = 1_000_000
)

// ScheduleNames reads and changes the names of schedules.
type ScheduleNames struct{ shard *system.Shard }

// NewScheduleNames returns the names in a system shard.
func NewScheduleNames(shard *system.Shard) *ScheduleNames { return &ScheduleNames{shard} }

func scheduleKey(ns, name string) []byte { return system.Key(system.CronTable, ns, name) }

// NameSchedule registers the name of a schedule that is about to be put or deleted, and returns its shard and a new version. A new name
// gets the wanted shard.
func (s *ScheduleNames) NameSchedule(ctx context.Context, ns, name string, wanted uint32) (ScheduleHome, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (ScheduleHome, error) {
		if err := system.RequireLevel(tx, system.PolicyLevel, fmt.Sprintf("schedule %q: schedules need", name)); err != nil {
			return ScheduleHome{}, err
		}
		key := scheduleKey(ns, name)
		home, known, err := system.GetRow[ScheduleHome](tx, key)
		if err != nil {
			return ScheduleHome{}, err
		}
		if !known {
			of, err := namespaceOf(tx, ns)
			if err == nil {
				err = of.mayHaveOneMore(task.QuotaSchedules, "name", name, int(system.GetNumber(tx, system.SchedulesOfKey(ns)))) // #nosec G115 -- at most maxSchedules
			}
			if err != nil {
				return ScheduleHome{}, err
			}
			if err := s.countSchedules(tx, ns, name, +1); err != nil {
				return ScheduleHome{}, err
			}
			home.Shard = wanted
		}
		home.Version = tx.Index()
		tx.Set(key, system.EncodeRow(home))
		return home, nil
	})
}

// ScheduleHome returns the shard of a schedule, if its name is registered.
func (s *ScheduleNames) ScheduleHome(ctx context.Context, ns, name string) (ScheduleHome, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (ScheduleHome, error) {
		home, known, err := system.GetRow[ScheduleHome](r, scheduleKey(ns, name))
		if err == nil && !known {
			err = task.NotFound("schedule", name)
		}
		return home, err
	})
}

// ForgetSchedule removes the name of a deleted schedule, unless it was registered again after this version.
func (s *ScheduleNames) ForgetSchedule(ctx context.Context, ns, name string, version uint64) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		key := scheduleKey(ns, name)
		home, known, err := system.GetRow[ScheduleHome](tx, key)
		if err != nil || !known || home.Version != version {
			return struct{}{}, err
		}
		tx.Delete(key)
		return struct{}{}, s.countSchedules(tx, ns, name, -1)
	})
	return err
}

// countSchedules adds n to the number of names, in total and of the namespace.
func (s *ScheduleNames) countSchedules(tx *store.Tx, ns, name string, n int) error {
	count := int(system.GetNumber(tx, system.SchedulesKey)) + n // #nosec G115 -- at most maxSchedules
	if count > maxSchedules {
		return task.Invalid("name", "%q would exceed the limit of %d schedules", name, maxSchedules)
	}
	tx.Set(system.SchedulesKey, system.EncodeNumber(uint64(max(count, 0))))    // #nosec G115 -- not negative
	of := int(system.GetNumber(tx, system.SchedulesOfKey(ns))) + n             // #nosec G115 -- at most maxSchedules
	tx.Set(system.SchedulesOfKey(ns), system.EncodeNumber(uint64(max(of, 0)))) // #nosec G115 -- not negative
	return nil
}

// forgetSchedules removes the number of a namespace's schedules.
func forgetSchedules(tx *store.Tx, ns string) { tx.Delete(system.SchedulesOfKey(ns)) }
