package schedules

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var bg = context.Background()

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w *systemtest.World, s *Names)) {
	synctest.Test(t, func(t *testing.T) {
		w := systemtest.NewWorld(t)
		fn(t, w, New(w.Open(2)))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counts returns how many schedules are counted, in all and in the default namespace.
func counts(w *systemtest.World) string {
	snap := w.State.Snapshot()
	defer snap.Close()
	return fmt.Sprint(system.GetNumber(snap, system.SchedulesKey), system.GetNumber(snap, system.SchedulesOfKey("default")))
}

// setCounts sets these numbers.
func setCounts(w *systemtest.World, all, of uint64) {
	w.Put(system.SchedulesKey, system.EncodeNumber(all))
	w.Put(system.SchedulesOfKey("default"), system.EncodeNumber(of))
}

// A schedule's name is registered with a shard, which it keeps, and a version that grows; forgetting an older version is a no-op.
func TestScheduleNames(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, s *Names) {
		_, err := s.ScheduleHome(bg, "default", "nightly")
		systemtest.IsRefusal(t, err, task.ErrNotFound, `"nightly"`)
		setCounts(w, 7, 2)
		first, err := s.NameSchedule(bg, "default", "nightly", 2)
		if must(t, err); first.Shard != 2 || first.Version == 0 {
			t.Errorf("named %+v", first)
		}
		second, err := s.NameSchedule(bg, "default", "nightly", 1)
		if must(t, err); second.Shard != 2 || second.Version <= first.Version {
			t.Errorf("named again %+v, after %+v", second, first)
		}
		for _, version := range []uint64{first.Version, second.Version + 1} {
			must(t, s.ForgetSchedule(bg, "default", "nightly", version))
			if home, err := s.ScheduleHome(bg, "default", "nightly"); err != nil || home != second || counts(w) != "8 3" {
				t.Errorf("it lives in %+v, %v, and %s are counted", home, err, counts(w))
			}
		}
		for range 2 {
			must(t, s.ForgetSchedule(bg, "default", "nightly", second.Version))
			_, err := s.ScheduleHome(bg, "default", "nightly")
			if systemtest.IsRefusal(t, err, task.ErrNotFound); counts(w) != "7 2" {
				t.Errorf("forgotten, %s are counted", counts(w))
			}
		}
		must(t, s.ForgetSchedule(bg, "default", "nightly", 0)) // as one that is not there would have
		if counts(w) != "7 2" {
			t.Errorf("forgotten without a version, %s are counted", counts(w))
		}
	})
}

// Schedules are bounded, in all and by the namespace's quota. A refused one is not counted.
func TestSchedulesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, s *Names) {
		_, err := s.NameSchedule(bg, "team", "nightly", 1)
		systemtest.IsRefusal(t, err, task.ErrNotFound, `namespace "team"`)
		setCounts(w, MaxSchedules-1, 2)
		_, err = s.NameSchedule(bg, "default", "last", 1)
		must(t, err)
		_, err = s.NameSchedule(bg, "default", "more", 1)
		systemtest.IsRefusal(t, err, task.ErrInvalidArgument, `"more" would exceed the limit of 1000000 schedules`)
		_, err = s.NameSchedule(bg, "default", "last", 1)
		must(t, err)
		if got, want := counts(w), fmt.Sprint(MaxSchedules, 3); got != want {
			t.Errorf("counted: %s, want %s", got, want)
		}
		last, err := s.ScheduleHome(bg, "default", "last")
		must(t, err)
		must(t, s.ForgetSchedule(bg, "default", "last", last.Version))
		w.Put(append([]byte{system.NamespaceTable}, "default"...), system.EncodeRow(map[string]any{"name": "default", "max_schedules": 3}))
		last, err = s.NameSchedule(bg, "default", "last", 1)
		must(t, err)
		_, err = s.NameSchedule(bg, "default", "more", 1)
		systemtest.IsRefusal(t, err, task.ErrInvalidArgument, `"more" would exceed the 3 that namespace "default" may have`)
		if e, _ := task.AsError(err); e == nil || e.Field != "name" || e.Reason != "max_schedules" {
			t.Errorf("refused by %+v", e)
		}
		setCounts(w, 0, 0) // as after numbers were lost
		must(t, s.ForgetSchedule(bg, "default", "last", last.Version))
		if counts(w) != "0 0" {
			t.Errorf("one less than none is %s", counts(w))
		}
	})
}

// A namespace that is removed leaves no number behind.
func TestForget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, _ *Names) {
		setCounts(w, 7, 2)
		w.Round(func(tx *store.Tx) { Forget(tx, "default") })
		if got := w.Get(system.SchedulesOfKey("default")); got != nil || counts(w) != "7 0" {
			t.Errorf("it left %q, %s are counted", got, counts(w))
		}
	})
}

// A row that can't be read is reported by every call that needs it, and stays.
func TestDamagedRows(t *testing.T) {
	calls := map[string]func(s *Names, home Home) error{
		"home":     func(s *Names, _ Home) error { _, err := s.ScheduleHome(bg, "default", "nightly"); return err },
		"name":     func(s *Names, _ Home) error { _, err := s.NameSchedule(bg, "default", "nightly", 1); return err },
		"name new": func(s *Names, _ Home) error { _, err := s.NameSchedule(bg, "default", "new", 1); return err },
		"forget":   func(s *Names, home Home) error { return s.ForgetSchedule(bg, "default", "nightly", home.Version) },
		"forget 0": func(s *Names, _ Home) error { return s.ForgetSchedule(bg, "default", "nightly", 0) },
	}
	for _, c := range []struct {
		key   []byte
		calls string
	}{
		{system.Key(system.CronTable, "default", "nightly"), "home, name, forget, forget 0"},
		{append([]byte{system.NamespaceTable}, "default"...), "name new"},
	} {
		for _, name := range strings.Split(c.calls, ", ") {
			inBubble(t, func(t *testing.T, w *systemtest.World, s *Names) {
				home, err := s.NameSchedule(bg, "default", "nightly", 1)
				must(t, err)
				w.Damage(c.key)
				before := w.State.Applied().Index
				if err := calls[name](s, home); err == nil || !strings.Contains(err.Error(),
					fmt.Sprintf("row %q of the system shard", c.key)) {
					t.Errorf("%s with row %q damaged: %v", name, c.key, err)
				}
				if w.State.Applied().Index != before {
					t.Errorf("%s with row %q damaged has written", name, c.key)
				}
			})
		}
	}
}

// Calls at the same moment get different versions, in their order: a data shard takes two calls of one version for one call.
func TestVersionsOfOneMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, s *Names) {
		var got [5]Home
		name := func(i int) func() {
			return func() {
				home, err := s.NameSchedule(bg, "default", "nightly", 1)
				must(t, err)
				got[i] = home
			}
		}
		w.Together(name(0), name(1), name(2))
		w.Together(func() { must(t, s.ForgetSchedule(bg, "default", "nightly", got[2].Version)) }, name(3), name(4))
		for i := range got[1:] {
			if got[i+1].Version <= got[i].Version {
				t.Errorf("call %d got version %d, after %d", i+1, got[i+1].Version, got[i].Version)
			}
		}
		if home, err := s.ScheduleHome(bg, "default", "nightly"); err != nil || home.Version != got[4].Version {
			t.Errorf("the name has %+v, %v, want the version of the last call", home, err)
		}
	})
}
