package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var (
	bg   = context.Background()
	a, b = Name{"default", "a"}, Name{"default", "b"}
)

// world is a system shard, and the workers in it.
type world struct {
	*systemtest.World
	*Workers
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w world)) {
	synctest.Test(t, func(t *testing.T) {
		s := systemtest.NewWorld(t)
		shard := s.Open(1)
		must(t, shard.Learn(bg))
		fn(t, world{s, New(shard)})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quiet makes a worker quiet by lena's request.
func (w world) quiet(t *testing.T, name Name, called, reason string) Quiet {
	t.Helper()
	row, err := w.QuietWorker(bg, task.Author{Name: "lena", Reason: reason}, name, called, QuietFor)
	must(t, err)
	return row
}

// row returns a worker's row.
func (w world) row(t *testing.T, name Name) (Quiet, bool) {
	t.Helper()
	snap := w.State.Snapshot()
	defer snap.Close()
	row, quiet, err := Get(snap, name)
	must(t, err)
	return row, quiet
}

func (w world) counted() uint64 {
	snap := w.State.Snapshot()
	defer snap.Close()
	return system.GetNumber(snap, system.QuietsKey)
}

// announced returns the workers of which nodes are told after a version.
func (w world) announced(after uint64) (ids []string) {
	for n := range w.shard.Changes(after).Workers {
		ids = append(ids, Named(n).ID)
	}
	slices.Sort(ids)
	return ids
}

func (w world) now() uint64 { return w.State.Applied().Index }

// The workers of a removed namespace are quiet no more, and nodes are told; those of others are.
func TestForget(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		other := Name{"default2", "b"}
		for _, name := range []Name{a, b, other} {
			w.quiet(t, name, "host/1", "deploy")
		}
		before := w.now()
		_, err := system.Update(bg, w.shard, func(tx *store.Tx) (struct{}, error) {
			w.Forget(tx, "default")
			return struct{}{}, nil
		})
		must(t, err)
		if got := w.announced(before); !slices.Equal(got, []string{"a", "b"}) || w.counted() != 1 {
			t.Errorf("nodes are told of %q, and %d workers are quiet, want a, b and 1", got, w.counted())
		}
		for name, want := range map[Name]bool{a: false, b: false, other: true} {
			if _, quiet := w.row(t, name); quiet != want {
				t.Errorf("worker %v is quiet: %v, want %v", name, quiet, want)
			}
		}
	})
}

// A worker that is made quiet again for the same reason keeps who did it and when; only the end changes. For another reason, or after the
// end, it is a new request.
func TestRepeatedQuiet(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		first := w.quiet(t, a, "host/1", "deploy")
		if first.WorkerName() != a || first.Name != "host/1" || first.By != "lena" || first.Reason != "deploy" ||
			first.Until.Sub(first.At) != QuietFor || first.Version != w.now() {
			t.Errorf("the row is %+v", first)
		}
		if row, quiet := w.row(t, a); !quiet || row != first {
			t.Errorf("the row that was written is %+v", row)
		}
		time.Sleep(time.Hour)
		again, err := w.QuietWorker(bg, task.Author{Name: "max", Reason: "deploy"}, a, "host/2", QuietFor)
		if must(t, err); again.By != "lena" || again.At != first.At || again.Name != "host/2" ||
			again.Until.Sub(first.Until).Round(time.Second) != time.Hour {
			t.Errorf("for the same reason: %+v", again)
		}
		other, err := w.QuietWorker(bg, task.Author{Name: "max", Reason: "disk"}, a, "host/2", QuietFor)
		if must(t, err); other.By != "max" || other.At.Sub(first.At).Round(time.Second) != time.Hour {
			t.Errorf("for another reason: %+v", other)
		}
		w.Sleep(QuietFor - time.Minute)
		if row := w.quiet(t, a, "host/2", "disk"); row.By != "max" || row.At != other.At {
			t.Errorf("before the end: %+v", row)
		}
		w.Sleep(2 * QuietFor)
		if row := w.quiet(t, a, "host/2", "disk"); row.By != "lena" || !row.At.After(other.Until) {
			t.Errorf("after the end: %+v", row)
		}
		if w.counted() != 1 {
			t.Errorf("%d rows are counted", w.counted())
		}
		want := []string{
			`lena worker.quiet worker a:  → {"name":"host/1","quiet":true,"quiet_reason":"deploy"}`,
			`max worker.quiet worker a: {"name":"host/1"} → {"name":"host/2"}`,
			`max worker.quiet worker a: {"quiet_reason":"deploy"} → {"quiet_reason":"disk"}`,
			`lena worker.quiet worker a:  → {"name":"host/2","quiet":true,"quiet_reason":"disk"}`,
		}
		if got := w.Audited("default"); !slices.Equal(got, want) {
			t.Errorf("audited:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Nodes are told of a resumed worker even if it had no row. Only one that had is counted and audited.
func TestResume(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		w.quiet(t, a, "host/1", "deploy")
		w.quiet(t, b, "", "")
		for _, c := range []struct {
			name  Name
			was   bool
			count uint64
		}{{a, true, 1}, {a, false, 1}, {Name{"team", "b"}, false, 1}, {b, true, 0}} {
			before := w.now()
			was, err := w.ResumeWorker(bg, task.Author{Name: "max"}, c.name)
			if must(t, err); was != c.was || w.counted() != c.count {
				t.Errorf("resume %v: it was quiet: %v, want %v; %d rows are counted, want %d", c.name, was, c.was, w.counted(), c.count)
			}
			if _, quiet := w.row(t, c.name); quiet {
				t.Errorf("%v is still quiet", c.name)
			}
			if got := w.announced(before); !slices.Equal(got, []string{c.name.ID}) {
				t.Errorf("resume %v: nodes are told of %q", c.name, got)
			}
		}
		got, want := w.Audited("default"), []string{
			`max worker.resume worker a: {"name":"host/1","quiet":true,"quiet_reason":"deploy"} →`,
			`max worker.resume worker b: {"quiet":true} →`,
		}
		if len(got) != 4 || !slices.Equal(got[2:], want) {
			t.Errorf("audited:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		w.quiet(t, a, "", "")
		w.Put(system.QuietsKey, system.EncodeNumber(0)) // as after it was lost
		if _, err := w.ResumeWorker(bg, task.Author{}, a); err != nil || w.counted() != 0 {
			t.Errorf("one less than none is %d, %v", w.counted(), err)
		}
	})
}

// There is a bound, and rows whose time is over make room.
func TestQuietWorkersAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		w.quiet(t, a, "", "")
		w.Round(func(tx *store.Tx) {
			for i := range MaxQuietWorkers - 2 {
				row := Quiet{Namespace: "default", ID: fmt.Sprint(i), Until: tx.Now().Time().Add(QuietFor - time.Hour*time.Duration(i%2))}
				tx.Set(quietKey(row.WorkerName()), system.EncodeRow(row))
			}
			tx.Set(system.QuietsKey, system.EncodeNumber(MaxQuietWorkers-1))
		})
		w.quiet(t, b, "", "")
		more := Name{"default", "more"}
		try := func(name Name) error {
			_, err := w.QuietWorker(bg, task.Author{}, name, "", QuietFor)
			return err
		}
		for _, slept := range []time.Duration{0, QuietFor - time.Hour - time.Second} {
			w.Sleep(slept)
			systemtest.IsRefusal(t, try(more), task.ErrWrongState, `worker "more": 10000 workers are quiet, the maximum`)
		}
		must(t, try(Name{"default", "0"})) // it is quiet already
		w.Sleep(time.Minute)
		before := w.now()
		must(t, try(more)) // every second row is void
		const left = MaxQuietWorkers - (MaxQuietWorkers-2)/2
		if got := w.counted(); got != left+1 {
			t.Errorf("%d rows are counted, want %d", got, left+1)
		}
		for id, want := range map[string]bool{"0": true, "1": false, "a": true, "b": true, "more": true} {
			if _, quiet := w.row(t, Name{"default", id}); quiet != want {
				t.Errorf("%q is quiet: %v, want %v", id, quiet, want)
			}
		}
		if changes := w.shard.Changes(before); !changes.All && len(changes.Workers) != (MaxQuietWorkers-2)/2+1 {
			t.Errorf("nodes are told of %d workers", len(changes.Workers))
		}
		w.Put(system.QuietsKey, system.EncodeNumber(MaxQuietWorkers+1)) // as older releases may have left it
		systemtest.IsRefusal(t, try(Name{"default", "one"}), task.ErrWrongState, "resume some first")
	})
	inBubble(t, func(t *testing.T, w world) {
		row := w.quiet(t, a, "", "")
		w.Round(func(tx *store.Tx) {
			row.Until = tx.Now().Time()
			tx.Set(quietKey(a), system.EncodeRow(row))
			tx.Set(system.QuietsKey, system.EncodeNumber(MaxQuietWorkers))
		})
		before := w.now()
		w.quiet(t, b, "", "")
		if got := w.announced(before); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("nodes are told of %q", got)
		}
	})
}

// A row that can't be read is reported by every call that needs it, and stays.
func TestDamagedRows(t *testing.T) {
	quiet := func(w world, name Name) error {
		_, err := w.QuietWorker(bg, task.Author{Name: "lena"}, name, "", QuietFor)
		return err
	}
	resume := func(w world, name Name) error {
		was, err := w.ResumeWorker(bg, task.Author{Name: "lena"}, name)
		if was {
			return fmt.Errorf("%v was quiet", name)
		}
		return err
	}
	for _, c := range []struct {
		what string
		key  []byte
		call func(w world, name Name) error
		on   Name
		full bool
	}{
		{"quiet", quietKey(a), quiet, a, false},
		{"resume", quietKey(a), resume, a, false},
		{"quiet another, with no room", quietKey(a), quiet, b, true},
		{"quiet another", system.SettingsKey, quiet, b, false},
		{"resume", system.SettingsKey, resume, a, false},
	} {
		inBubble(t, func(t *testing.T, w world) {
			w.quiet(t, a, "", "")
			w.Damage(c.key)
			if c.full {
				w.Put(system.QuietsKey, system.EncodeNumber(MaxQuietWorkers))
			}
			before := w.now()
			if err := c.call(w, c.on); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", c.key)) {
				t.Errorf("%s with row %q damaged: %v", c.what, c.key, err)
			}
			if w.now() != before {
				t.Errorf("%s with row %q damaged has written", c.what, c.key)
			}
		})
	}
}
