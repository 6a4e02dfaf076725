package system_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
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

var bg = context.Background()

// inBubble runs a test in fake time, on the shard of a cluster.
func inBubble(t *testing.T, fn func(t *testing.T, w *systemtest.World, s *system.Shard)) {
	synctest.Test(t, func(t *testing.T) {
		w := systemtest.NewWorld(t)
		fn(t, w, w.Open(2))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// note notes a change in a round, and returns its index.
func note(t *testing.T, w *systemtest.World, s *system.Shard, kind system.Kind, name string) uint64 {
	t.Helper()
	w.Round(func(tx *store.Tx) {
		s.Note(tx, system.Change{Kind: kind, Name: system.Name{Namespace: "default", Name: name}})
	})
	return w.State.Applied().Index
}

// names returns the names of a set.
func names(set map[system.Name]bool) (all []string) {
	for n := range set {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	return all
}

// A copy is told what has changed since its version, or that it is everything.
func TestChangesSinceAVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *systemtest.World, s *system.Shard) {
		must(t, s.Learn(bg))
		if n := s.Changes(0); !n.Known || !n.All || !n.Map || !n.Access {
			t.Errorf("of a shard that was never changed: %+v", n)
		}
	})
	inBubble(t, func(t *testing.T, w *systemtest.World, s *system.Shard) {
		before := note(t, w, s, system.MapChanged, "")
		must(t, s.Learn(bg))
		if n := s.Changes(before - 1); !n.Known || n.All || !n.Map || n.Access || n.Version != before {
			t.Errorf("what changed in this term before it learned: %+v", n)
		}
		a := note(t, w, s, system.QueueChanged, "a")
		worker := note(t, w, s, system.WorkerChanged, "w")
		access := note(t, w, s, system.AccessChanged, "")
		b := note(t, w, s, system.QueueChanged, "b")
		for _, c := range []struct {
			after           uint64
			all             bool
			mapped, access  bool
			queues, workers []string
		}{
			{0, true, true, true, nil, nil}, {b + 1, true, true, true, nil, nil}, {before - 2, true, true, true, nil, nil},
			{before - 1, false, true, true, []string{"a", "b"}, []string{"w"}}, {before, false, false, true,
				[]string{"a", "b"}, []string{"w"}},
			{a, false, false, true, []string{"b"}, []string{"w"}}, {worker, false, false, true, []string{"b"}, nil},
			{access, false, false, false,
				[]string{"b"}, nil},
			{b, false, false, false, nil, nil},
		} {
			n := s.Changes(c.after)
			if n.Version != b || !n.Known || n.All != c.all || n.Map != c.mapped || n.Access != c.access || !slices.Equal(names(n.Queues),
				c.queues) || !slices.Equal(names(n.Workers), c.workers) {
				t.Errorf("after %d, where the first change is %d: %+v", c.after, before, n)
			}
		}
		s.Dropped()
		if n := s.Changes(before); !reflect.DeepEqual(n, system.Changes{}) {
			t.Errorf("without a term: %+v", n)
		}
	})
}

// A leader learns how new the tables were when its term began, once.
func TestLearnVersion(t *testing.T) {
	for _, kind := range []system.Kind{system.MapChanged, system.AccessChanged, system.QueueChanged, system.WorkerChanged} {
		inBubble(t, func(t *testing.T, w *systemtest.World, s *system.Shard) {
			old := note(t, w, s, kind, "a")
			w.Put([]byte("x"), []byte{1}) // a round that changes none of the tables
			s.Elected()
			if n := s.Changes(old); n.Known || !n.All {
				t.Errorf("before it learned: %+v", n)
			}
			must(t, s.Learn(bg))
			if n := s.Changes(old); !n.Known || n.All || n.Version != old {
				t.Errorf("after it learned: %+v, want version %d", n, old)
			}
			if n := s.Changes(old - 1); !n.All {
				t.Errorf("it knows what was before its term: %+v", n)
			}
			s.Elected()
			first := note(t, w, s, kind, "b")
			must(t, s.Learn(bg)) // a change of the term came first
			if n := s.Changes(first - 1); !n.Known || n.All || n.Version != first {
				t.Errorf("kind %d, after its first change: %+v, want version %d", kind, n, first)
			}
			if n := s.Changes(first - 2); !n.All {
				t.Errorf("kind %d: it knows what was before its term: %+v", kind, n)
			}
			w.Damage(system.NewestKey)
			must(t, s.Learn(bg)) // it is known
		})
	}
	inBubble(t, func(t *testing.T, w *systemtest.World, s *system.Shard) {
		w.NewReplica() // which does not lead
		other := system.NewShard(w.NewReplica())
		other.Elected() // as far as it knows
		if err := other.Learn(bg); !errors.Is(err, systemtest.ErrNotLeader) || other.Changes(1).Known {
			t.Errorf("of a replica that doesn't lead: %v, %+v", err, other.Changes(1))
		}
		s.Dropped()
		must(t, s.Learn(bg))
		if s.Changes(1).Known {
			t.Error("without a term something is known")
		}
	})
}

// Who waits is woken by a committed change and by an election, and not by a round that changes nothing.
func TestAwait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, s *system.Shard) {
		newest := note(t, w, s, system.MapChanged, "")
		for what, c := range map[string]struct {
			after uint64
			do    func()
			takes time.Duration
		}{
			"nothing happens":   {newest, func() {}, time.Minute},
			"a round":           {newest, func() { w.Put([]byte("x"), []byte{1}) }, time.Minute},
			"an older version":  {newest - 1, func() {}, 0},
			"a version to come": {newest + 1, func() {}, 0},
		} {
			began := time.Now()
			go func() {
				time.Sleep(time.Second)
				c.do()
			}()
			if s.Await(bg, c.after, time.Minute); time.Since(began) != c.takes {
				t.Errorf("%s: it waited for %v, want %v", what, time.Since(began), c.takes)
			}
			time.Sleep(time.Minute)
		}
		for _, do := range []func(){func() { newest = note(t, w, s, system.QueueChanged, "a") }, func() { s.Elected() },
			func() { s.Dropped() }} {
			must(t, s.Learn(bg))
			began := time.Now()
			go func() {
				time.Sleep(time.Second)
				do()
			}()
			if s.Await(bg, s.Changes(0).Version, time.Minute); time.Since(began) != time.Second {
				t.Errorf("it waited for %v after a change", time.Since(began))
			}
			if !s.Leads() {
				began = time.Now()
				if s.Await(bg, 0, time.Minute); time.Since(began) != 0 {
					t.Errorf("without a term it waited for %v", time.Since(began))
				}
			}
		}
		s.Elected()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began := time.Now()
		if s.Await(ctx, 0, time.Minute); time.Since(began) != time.Second {
			t.Errorf("it waited for %v, longer than the caller", time.Since(began))
		}
	})
}

// A refusal comes back as it is, other errors say where they are from, and neither has a result.
func TestUpdateAndView(t *testing.T) {
	inBubble(t, func(t *testing.T, w *systemtest.World, s *system.Shard) {
		odd := errors.New("odd")
		for _, want := range []error{nil, task.Invalid("a", "is bad"), odd} {
			n, err := system.Update(bg, s, func(*store.Tx) (int, error) { return 7, want })
			m, err2 := system.View(bg, s, func(store.Reader) (int, error) { return 7, want })
			if !errors.Is(err, want) || !errors.Is(err2, want) || (n == 7) != (want == nil) || (m == 7) != (want == nil) {
				t.Errorf("%v: %d, %v; %d, %v", want, n, err, m, err2)
			}
			if from := want == odd; err != nil && (strings.HasPrefix(err.Error(), "system shard: ") != from ||
				strings.HasPrefix(err2.Error(),
					"system shard: ") != from) {
				t.Errorf("%v: %v, %v", want, err, err2)
			}
		}
		systemtest.IsRefusal(t, system.LeaderChanged(), task.ErrUnavailable, "its leader has just changed")
	})
}

// Rows and numbers are read as they were written; what can't be read is an error or 0.
func TestRows(t *testing.T) {
	type row struct{ A int }
	inBubble(t, func(t *testing.T, w *systemtest.World, _ *system.Shard) {
		for i, key := range [][]byte{system.Key('Z', "a", "x"), system.Key('Z', "a", "y"), system.Key('Z', "b", "z"), {'Z' + 1}} {
			w.Put(key, system.EncodeRow(row{i}))
		}
		snap := w.State.Snapshot()
		defer snap.Close()
		if got, ok, err := system.GetRow[row](snap, system.Key('Z', "a", "y")); err != nil || !ok || got.A != 1 {
			t.Errorf("read %+v, %v, %v", got, ok, err)
		}
		if got, ok, err := system.GetRow[row](snap, system.Key('Z', "a", "none")); err != nil || ok || got.A != 0 {
			t.Errorf("of none: %+v, %v, %v", got, ok, err)
		}
		if got, err := system.ScanRows[row](snap, 'Z'); err != nil || !slices.Equal(got, []row{{0}, {1}, {2}}) {
			t.Errorf("the table has %+v, %v", got, err)
		}
		w.Round(func(tx *store.Tx) { system.RemoveRows(tx, system.Key('Z', "a", "")) })
		after := w.State.Snapshot()
		defer after.Close()
		if got, err := system.ScanRows[row](after, 'Z'); err != nil || !slices.Equal(got, []row{{2}}) {
			t.Errorf("then the table has %+v, %v", got, err)
		}
		w.Damage(system.Key('Z', "b", "z"))
		bad := w.State.Snapshot()
		defer bad.Close()
		_, ok, err := system.GetRow[row](bad, system.Key('Z', "b", "z"))
		_, err2 := system.ScanRows[row](bad, 'Z')
		if ok || err == nil || err2 == nil {
			t.Errorf("a damaged row: %v, %v, %v", ok, err, err2)
		}
		w.Put([]byte("n"), system.EncodeNumber(1<<40))
		w.Put([]byte("short"), system.EncodeNumber(7)[:8])
		w.Put([]byte("other"), append([]byte{9}, system.EncodeNumber(7)[1:]...))
		numbers := w.State.Snapshot()
		defer numbers.Close()
		for key, want := range map[string]uint64{"n": 1 << 40, "short": 0, "other": 0, "none": 0} {
			if got := system.GetNumber(numbers, []byte(key)); got != want {
				t.Errorf("the number %q is %d, want %d", key, got, want)
			}
		}
	})
	if got := system.EncodeRow(row{7}); string(got) != "\x01{\"A\":7}" {
		t.Errorf("a row is stored as %q: shards on disk have another form", got)
	}
	if got := system.Key('q', "default", "mail"); string(got) != "qdefault\x00mail" {
		t.Errorf("a key is %q: shards on disk have others", got)
	}
	for _, value := range [][]byte{nil, {9}, {9, '{', '}'}, {1, '{'}} {
		if _, err := system.DecodeRow[row]([]byte("k"), value); err == nil || !strings.Contains(err.Error(),
			`row "k" of the system shard`) {
			t.Errorf("%q is decoded: %v", value, err)
		}
	}
	if got := system.PrefixEnd([]byte{1, 2}); !bytes.Equal(got, []byte{1, 3}) {
		t.Errorf("keys that begin with 1 2 end before %v", got)
	}
}

func TestSettings(t *testing.T) {
	if got := (system.Settings{AuditRetention: time.Hour}).AuditKeep(); got != time.Hour {
		t.Errorf("entries are kept for %v", got)
	}
	if got := system.DataShards(3); !slices.Equal(got, []uint32{1, 2, 3}) {
		t.Errorf("three data shards are %v", got)
	}
}

// Sleep lasts as long as it should, and no longer than the caller waits.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if system.Sleep(bg, time.Second); time.Since(began) != time.Second {
			t.Errorf("it slept for %v, want 1s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began = time.Now()
		if system.Sleep(ctx, time.Minute); time.Since(began) != time.Second {
			t.Errorf("it slept for %v, longer than the caller", time.Since(began))
		}
	})
}
