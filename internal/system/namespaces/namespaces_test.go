package namespaces

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var (
	bg      = context.Background()
	lena    = task.Author{Name: "lena"}
	errAway = task.Unavailable(time.Second, "away")
	errBusy = system.WrongState("tasks are in transit")
)

// world is a system shard, the namespaces in it, and two data shards that only remember what they were told.
type world struct {
	*systemtest.World
	*Namespaces

	mu       sync.Mutex
	did      []string         // in order; the shards are told in any
	confirm  error            // of the nodes' copies
	divide   error            // of Divide
	erase    map[uint32]error // of a shard
	onErased func()           // once, before a shard answers
	removed  atomic.Uint64    // of the last call of Erase
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, fmt.Sprintf(format, args...))
}

// was returns what has been done since it was last asked.
func (w *world) was() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.did)
	did := strings.Join(w.did, ", ")
	w.did = nil
	return did
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: systemtest.NewWorld(t), erase: map[uint32]error{}}
		shard := w.Open(2)
		must(t, shard.Learn(bg))
		forget := func(what string) func(*store.Tx, string) {
			return func(_ *store.Tx, ns string) { w.note("forget %s of %s", what, ns) }
		}
		shard.Confirm = func(_ context.Context, v uint64) ([]string, error) {
			w.note("confirm %d", v)
			return []string{"n2"}, w.confirm
		}
		w.Namespaces = New(Config{
			Shard:    shard,
			Divide:   func(_ context.Context, ns string) error { w.note("divide %s", ns); return w.divide },
			Undivide: func(_ *store.Tx, ns string) { w.note("undivide %s", ns) },
			Erase: func(_ context.Context, shard uint32, ns string, removed uint64) error {
				w.removed.Store(removed)
				w.note("erase %s in %d", ns, shard)
				if fn := w.onErased; fn != nil && shard == 1 {
					fn()
				}
				return w.erase[shard]
			},
			Forget: []func(*store.Tx, string){forget("a"), forget("b")},
		})
		fn(t, w)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add adds a namespace.
func (w *world) add(t *testing.T, name string, quotas task.QuotaChange) {
	t.Helper()
	_, err := w.Add(bg, Call{By: lena, Name: name, Quotas: quotas})
	must(t, err)
}

// list returns the names of the namespaces, with the numbers of their queues and schedules.
func (w *world) list(t *testing.T) string {
	t.Helper()
	all, err := w.List(bg)
	must(t, err)
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = fmt.Sprint(n.Name, " ", n.Queues, " ", n.Schedules)
	}
	return strings.Join(names, ", ")
}

func (w *world) now() uint64 { return w.State.Applied().Index }

// announces reports whether nodes are told of a change of namespaces after a version.
func (w *world) announces(after uint64) bool {
	changes := w.shard.Changes(after)
	return changes.Access && !changes.All
}

func (w *world) get(name string) (Namespace, error) {
	snap := w.State.Snapshot()
	defer snap.Close()
	return Get(snap, name)
}

// A namespace that was added has the default quotas but for those that were given. Adding it again is a no-op, unless
// other quotas are asked for.
func TestAdd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		before := w.now()
		version, err := w.Add(bg, Call{By: lena, Name: "team", Quotas: task.QuotaChange{task.QuotaQueues: 7}})
		if must(t, err); version != w.now() || !w.announces(before) {
			t.Errorf("version %d, and %d was applied; nodes are told: %v", version, w.now(), w.announces(before))
		}
		quotas := task.DefaultQuotas()
		quotas.Queues = 7
		if n, err := w.get("team"); err != nil || n.Name != "team" || n.CreatedBy != "lena" || n.CreatedAt != w.State.Applied().Time ||
			n.Quotas != quotas {
			t.Errorf("added %+v, %v", n, err)
		}
		before = w.now()
		for _, c := range []struct {
			name   string
			quotas task.QuotaChange
			want   *task.Error
			words  string
		}{
			{"team", nil, nil, ""},
			{"team", task.QuotaChange{task.QuotaQueues: 7}, nil, ""},
			{"team", task.QuotaChange{task.QuotaQueues: 8}, task.ErrConflict, "change them with `pawl ns set team`"},
			{"default", nil, nil, ""},
			{"default", task.QuotaChange{task.QuotaQueues: 0}, nil, ""},
			{"default", task.QuotaChange{task.QuotaQueues: 8}, task.ErrConflict, `namespace "default" already exists with other quotas`},
			{"bad", task.QuotaChange{task.QuotaQueues: -1}, task.ErrInvalidArgument, "quotas.max_queues"},
		} {
			version, err := w.Add(bg, Call{By: lena, Name: c.name, Quotas: c.quotas})
			if c.want != nil {
				systemtest.IsRefusal(t, err, c.want, c.words)
			} else if err != nil || version != before {
				t.Errorf("add %q with %v: version %d, %v", c.name, c.quotas, version, err)
			}
		}
		if w.now() != before {
			t.Error("one that was there or was refused has been written")
		}
		if got, want := w.list(t), "default 0 0, team 0 0"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		if got := w.Audited("default"); len(got) != 1 || !strings.HasPrefix(got[0], "lena namespace.add namespace team:  → {") {
			t.Errorf("audited %q", got)
		}
	})
}

// Namespaces are bounded.
func TestNamespacesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		put := func(from, to int) {
			w.Round(func(tx *store.Tx) {
				for i := from; i < to; i++ {
					name := fmt.Sprint("ns", i)
					tx.Set(namespaceKey(name), system.EncodeRow(Namespace{Name: name}))
				}
			})
		}
		put(0, maxNamespaces-1)
		w.add(t, "last", nil)
		_, err := w.Add(bg, Call{By: lena, Name: "more"})
		systemtest.IsRefusal(t, err, task.ErrInvalidArgument, `"more" would exceed the limit of 1000 namespaces`)
		w.add(t, "last", nil)
		put(maxNamespaces, maxNamespaces+1) // one too many, as an older release may have left it
		_, err = w.Add(bg, Call{By: lena, Name: "more"})
		systemtest.IsRefusal(t, err, task.ErrInvalidArgument, "the limit of 1000")
	})
}

// A quota of 0 is no limit.
func TestMayHaveOneMore(t *testing.T) {
	for _, c := range []struct {
		most int64
		has  int
		want bool
	}{{0, 0, true}, {0, 1 << 30, true}, {3, 2, true}, {3, 3, false}, {3, 4, false}, {1, 0, true}} {
		n := Namespace{Name: "team", Quotas: task.Quotas{Schedules: c.most, Queues: 1}}
		err := n.MayHaveOneMore(task.QuotaSchedules, "name", "nightly", c.has)
		if c.want != (err == nil) {
			t.Errorf("one more than %d of %d: %v", c.has, c.most, err)
		}
		if err == nil {
			continue
		}
		systemtest.IsRefusal(t, err, task.ErrInvalidArgument,
			fmt.Sprintf(`"nightly" would exceed the %d that namespace "team" may have (max_schedules)`, c.most),
			"pawl ns set team --max-schedules N")
		if e, _ := task.AsError(err); e == nil || e.Field != "name" || e.Reason != "max_schedules" {
			t.Errorf("refused by %+v", e)
		}
	}
}

// The default namespace always exists. One that is being removed does not.
func TestGet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(t, "team", nil)
		if n, err := w.get("default"); err != nil || n.Name != "default" {
			t.Errorf("the default namespace: %+v, %v", n, err)
		}
		w.Put(namespaceKey("default"), system.EncodeRow(Namespace{Name: "default", Quotas: task.Quotas{Queues: 7}}))
		if n, err := w.get("default"); err != nil || n.Queues != 7 {
			t.Errorf("the default namespace with quotas: %+v, %v", n, err)
		}
		_, err := w.get("other")
		systemtest.IsRefusal(t, err, task.ErrNotFound, `namespace "other"`)
		w.Put(namespaceKey("team"), system.EncodeRow(Namespace{Name: "team", RemovedBy: &lena}))
		_, err = w.get("team")
		systemtest.IsRefusal(t, err, task.ErrNotFound, `namespace "team"`)
		if got, want := w.list(t), "default 0 0"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
	})
}

// Namespaces are listed by name, with what they have.
func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, name := range []string{"zoo", "abc"} {
			w.add(t, name, nil)
		}
		for _, key := range [][]byte{system.Key(system.QueueTable, "zoo", "a"), system.Key(system.QueueTable, "zoo", "b"),
			system.Key(system.QueueTable, "default", "a"), system.Key(system.QueueTable+1, "zoo", "c")} {
			w.Put(key, system.EncodeRow(0))
		}
		w.Put(system.SchedulesOfKey("abc"), system.EncodeNumber(5))
		if got, want := w.list(t), "abc 0 5, default 1 0, zoo 2 0"; got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		_, err := w.SetQuotas(bg, lena, "default", task.QuotaChange{task.QuotaQueues: 7})
		must(t, err)
		if got, want := w.list(t), "abc 0 5, default 1 0, zoo 2 0"; got != want {
			t.Errorf("with a row of the default one there are %s, want %s", got, want)
		}
	})
}

// Quotas that were changed are divided among the shards, also if the call is repeated after it could not divide them.
func TestSetQuotas(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(t, "team", nil)
		change := task.QuotaChange{task.QuotaQueues: 7}
		before := w.now()
		w.divide = errAway
		_, err := w.SetQuotas(bg, lena, "team", change)
		if systemtest.IsRefusal(t, err, task.ErrUnavailable, "away"); w.was() != "divide team" || !w.announces(before) {
			t.Errorf("nodes are told of it: %v", w.announces(before))
		}
		before, w.divide = w.now(), nil
		version, err := w.SetQuotas(bg, lena, "team", change)
		if did := w.was(); err != nil || version != before || did != "divide team" || w.now() != before {
			t.Errorf("the same quotas again: version %d, %v; did %s", version, err, did)
		}
		if n, err := w.get("team"); err != nil || n.Queues != 7 || n.Schedules != task.DefaultQuotas().Schedules {
			t.Errorf("then it has %+v, %v", n, err)
		}
		if got := w.Audited("default"); len(got) != 2 ||
			got[1] != `lena namespace.set namespace team: {"max_queues":1000} → {"max_queues":7}` {
			t.Errorf("audited %q", got)
		}
		before = w.now()
		for name, want := range map[string]*task.Error{"team": task.ErrInvalidArgument, "other": task.ErrNotFound} {
			version, err := w.SetQuotas(bg, lena, name, task.QuotaChange{task.QuotaQueues: -1})
			if systemtest.IsRefusal(t, err, want); version != 0 || w.was() != "" {
				t.Errorf("quotas of %q that were refused have version %d, and were divided", name, version)
			}
		}
		version, err = w.SetQuotas(bg, lena, "default", change)
		if must(t, err); version != before+1 || w.now() != before+1 {
			t.Errorf("quotas of the default namespace: version %d after %d", version, before)
		}
	})
}

// A namespace is removed in this order: it is hidden, all nodes know, the shards erase what they have of it, all rows go.
func TestRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(t, "team", nil)
		w.add(t, "team2", nil)
		before := w.now()
		w.onErased = func() {
			if _, err := w.get("team"); !errors.Is(err, task.ErrNotFound) || !w.announces(before) {
				t.Errorf("while it is erased: %v; nodes are told: %v", err, w.announces(before))
			}
		}
		version, err := w.Remove(bg, lena, "team")
		want := fmt.Sprintf("confirm %d, erase team in 1, erase team in 2, forget a of team, forget b of team, undivide team", before+1)
		if did := w.was(); err != nil || did != want || version != before+2 || !w.announces(before+1) {
			t.Errorf("removed in version %d, %v; nodes are told: %v\ndid  %s\nwant %s", version, err, w.announces(before+1), did, want)
		}
		if got := w.Get(namespaceKey("team")); got != nil || w.list(t) != "default 0 0, team2 0 0" {
			t.Errorf("left %q; there are %s", got, w.list(t))
		}
		if got := w.Audited("default"); len(got) != 3 || !strings.HasPrefix(got[2], "lena namespace.remove namespace team: {") ||
			!strings.HasSuffix(got[2], "→") {
			t.Errorf("audited %q", got)
		}
		for name, want := range map[string]*task.Error{"team": task.ErrNotFound, "default": task.ErrWrongState} {
			version, err := w.Remove(bg, lena, name)
			if systemtest.IsRefusal(t, err, want, fmt.Sprintf("namespace %q", name)); version != 0 || w.was() != "" {
				t.Errorf("%q was removed", name)
			}
		}
	})
}

// A namespace that has something is not removed.
func TestRemoveNeedsAnEmptyNamespace(t *testing.T) {
	for table, words := range map[byte]string{system.QueueTable: `it has queues, "a" is the first`, system.CronTable: "it has schedules",
		system.TokenTable: "it has tokens", system.HookTable: "it has webhooks"} {
		inBubble(t, func(t *testing.T, w *world) {
			w.add(t, "team", nil)
			for _, other := range []string{"tean", "teal", "tea", "team2"} {
				w.Put(system.Key(table, other, "x"), []byte{1})
			}
			w.Put(system.Key(table, "team", "a"), []byte{1})
			w.Put(system.Key(table, "team", "b"), []byte{1})
			before := w.now()
			_, err := w.Remove(bg, lena, "team")
			if systemtest.IsRefusal(t, err, task.ErrWrongState, `namespace "team" is not empty: `+words); w.now() != before ||
				w.was() != "" {
				t.Errorf("refused because %s, but written", words)
			}
			w.Round(func(tx *store.Tx) { system.RemoveRows(tx, system.Key(table, "team", "")) })
			_, err = w.Remove(bg, lena, "team")
			must(t, err)
		})
	}
}

// While a node or a shard can't be reached, the namespace stays hidden, and a repeated call, by whomever, removes it in
// the name of the first caller. If a shard still has tasks of it, it is back.
func TestUnfinishedRemoval(t *testing.T) {
	for _, c := range []struct {
		what    string
		confirm error
		erase   map[uint32]error
		want    *task.Error
		words   string
		back    bool
	}{
		{"a node that doesn't confirm", errAway, nil, task.ErrUnavailable, "away", false},
		{"a shard that can't be reached", nil, map[uint32]error{2: errAway}, task.ErrUnavailable,
			"not all shards have deleted its data yet", false},
		{"another error", nil, map[uint32]error{1: errors.New("odd")}, task.ErrUnavailable, "odd", false},
		{"tasks in transit", nil, map[uint32]error{2: errBusy}, task.ErrWrongState, "in transit", true},
		{"tasks in transit, and a shard that can't be reached", nil, map[uint32]error{1: errAway, 2: errBusy}, task.ErrWrongState,
			"in transit", true},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.add(t, "team", nil)
			before, row := w.now(), string(w.Get(namespaceKey("team")))
			w.confirm, w.erase = c.confirm, c.erase
			version, err := w.Remove(bg, lena, "team")
			if systemtest.IsRefusal(t, err, c.want, c.words); version != 0 {
				t.Errorf("%s: version %d", c.what, version)
			}
			if did := w.was(); strings.Contains(did, "undivide") != c.back || strings.Contains(did, "forget") ||
				strings.Contains(did, "erase") != (c.confirm == nil) {
				t.Errorf("%s: did %s", c.what, did)
			}
			if _, err := w.get("team"); (err == nil) != c.back {
				t.Errorf("%s: then it is there: %v", c.what, err)
			}
			since := regexp.MustCompile(`"since":\d+`)
			if got := string(w.Get(namespaceKey("team"))); (since.ReplaceAllString(got, "") == since.ReplaceAllString(row, "")) != c.back {
				t.Errorf("%s: its row is %s, and was %s", c.what, got, row)
			}
			if !w.announces(before) || w.announces(before+1) != c.back {
				t.Errorf("%s: nodes are told that it is hidden: %v, that it is back: %v", c.what, w.announces(before),
					w.announces(before+1))
			}
			if len(w.Audited("default")) != 1 {
				t.Errorf("%s: audited %q", c.what, w.Audited("default"))
			}
			if !c.back {
				_, err := w.Add(bg, Call{By: lena, Name: "team"})
				systemtest.IsRefusal(t, err, task.ErrWrongState, "`pawl ns rm team` completes the removal")
			}
			w.confirm, w.erase = nil, nil
			before = w.now()
			hidden := before
			if c.back {
				hidden++
			}
			w.was()
			_, err = w.Remove(bg, task.Author{Name: "max"}, "team")
			if did := w.was(); err != nil || w.now() != hidden+1 || !strings.HasPrefix(did, fmt.Sprintf("confirm %d, ", hidden)) {
				t.Errorf("%s: %d rounds remove it later, %v; did %s", c.what, w.now()-before, err, did)
			}
			by := "lena"
			if c.back {
				by = "max"
			}
			if got := w.Audited("default"); len(got) != 2 || !strings.HasPrefix(got[1], by+" namespace.remove namespace team: ") {
				t.Errorf("%s: audited %q", c.what, got)
			}
		})
	}
}

// The shards learn in which version a namespace was removed. One that is added again under the name, or kept since a shard refuses to erase
// it, exists since a later one, even if few rounds lie between: shards tell by that whether an erasure comes late.
func TestVersionsOfRemovals(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		last := uint64(0)
		since := func(what string) {
			t.Helper()
			n, err := w.get("team")
			if must(t, err); n.Since <= last {
				t.Errorf("%s: it exists since %d, want more than %d", what, n.Since, last)
			}
			last = n.Since
		}
		w.add(t, "team", nil)
		since("added")
		removed := func() {
			if at := w.removed.Load(); at <= last {
				t.Errorf("it was removed in %d, want more than %d", at, last)
			}
			last = w.removed.Load()
		}
		w.erase[1] = errBusy
		_, err := w.Remove(bg, lena, "team")
		systemtest.IsRefusal(t, err, task.ErrWrongState)
		removed()
		since("kept")
		delete(w.erase, 1)
		_, err = w.Remove(bg, lena, "team")
		must(t, err)
		removed()
		w.add(t, "team", nil)
		since("added again")
	})
}

// Two callers may remove a namespace at once: what one has finished or undone, the other leaves alone.
func TestConcurrentRemovals(t *testing.T) {
	refused := map[uint32]error{1: errBusy}
	removed := func(Namespace) []byte { return nil }
	again := func(Namespace) []byte { return system.EncodeRow(Namespace{Name: "team"}) }
	removedAgain := func(n Namespace) []byte {
		return system.EncodeRow(Namespace{Name: "team", RemovedBy: &lena, RemovedIn: n.RemovedIn + 3})
	}
	undone := func(n Namespace) []byte {
		n.RemovedBy, n.RemovedIn = nil, 0
		return system.EncodeRow(n)
	}
	undoneAgain := func(n Namespace) []byte {
		n.RemovedIn += 2
		return system.EncodeRow(n)
	}
	for _, c := range []struct {
		what  string
		row   func(Namespace) []byte // that the other leaves
		erase map[uint32]error
		want  *task.Error
	}{
		{"removed", removed, nil, nil},
		{"removed, and added again", again, nil, nil},
		{"removed, added again, and being removed again", removedAgain, nil, nil},
		{"undone", undone, nil, task.ErrWrongState},
		{"undone, and begun again", undoneAgain, nil, task.ErrWrongState},
		{"removed, before a shard refuses", removed, refused, task.ErrWrongState},
		{"removed, added again, and being removed again, before a shard refuses", removedAgain, refused, task.ErrWrongState},
		{"undone, before a shard refuses", undone, refused, task.ErrWrongState},
		{"undone, and begun again, before a shard refuses", undoneAgain, refused, task.ErrWrongState},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.add(t, "team", nil)
			w.erase = c.erase
			var row []byte
			w.onErased = func() {
				w.Round(func(tx *store.Tx) {
					n, _, err := system.GetRow[Namespace](tx, namespaceKey("team"))
					must(t, err)
					if row = c.row(n); row == nil {
						tx.Delete(namespaceKey("team"))
					} else {
						tx.Set(namespaceKey("team"), row)
					}
				})
			}
			version, err := w.Remove(bg, lena, "team")
			if c.want != nil {
				systemtest.IsRefusal(t, err, c.want)
			} else if newest := w.shard.Changes(0).Version; err != nil || version != newest {
				t.Errorf("%s meanwhile: version %d, %v, want %d", c.what, version, err, newest)
			}
			if got := w.Get(namespaceKey("team")); string(got) != string(row) || strings.Contains(w.was(), "divide") ||
				len(w.Audited("default")) != 1 {
				t.Errorf("%s meanwhile: left %q, audited %q", c.what, got, w.Audited("default"))
			}
		})
	}
}

// A row that can't be read is reported by every call that needs it, and stays.
func TestDamagedRows(t *testing.T) {
	calls := map[string]func(w *world) (uint64, error){
		"get":         func(w *world) (uint64, error) { _, err := w.get("team"); return 0, err },
		"get default": func(w *world) (uint64, error) { _, err := w.get(auth.DefaultNamespace); return 0, err },
		"list":        func(w *world) (uint64, error) { _, err := w.List(bg); return 0, err },
		"add":         func(w *world) (uint64, error) { return w.Add(bg, Call{By: lena, Name: "team"}) },
		"add another": func(w *world) (uint64, error) { return w.Add(bg, Call{By: lena, Name: "new"}) },
		"set": func(w *world) (uint64, error) {
			return w.SetQuotas(bg, lena, "team", task.QuotaChange{task.QuotaQueues: 7})
		},
		"remove": func(w *world) (uint64, error) { return w.Remove(bg, lena, "team") },
	}
	for _, c := range []struct {
		key   []byte
		calls string
	}{
		{namespaceKey("team"), "get, list, add, add another, set, remove"},
		{namespaceKey("default"), "get default, list"},
		{system.SettingsKey, "add another, set, remove"},
		{auditHead, "add another, set"},
	} {
		for _, name := range strings.Split(c.calls, ", ") {
			inBubble(t, func(t *testing.T, w *world) {
				w.add(t, "team", nil)
				w.Damage(c.key)
				before := w.now()
				version, err := calls[name](w)
				if _, refused := task.AsError(err); err == nil || refused || version != 0 {
					t.Errorf("%s with row %q damaged: version %d, %v", name, c.key, version, err)
				}
				if w.now() != before || w.was() != "" {
					t.Errorf("%s with row %q damaged has done something", name, c.key)
				}
			})
		}
	}
	for _, c := range []struct {
		what  string
		key   []byte // that is damaged while the shards erase
		erase map[uint32]error
	}{
		{"its row", namespaceKey("team"), nil},
		{"its row, and a shard refuses", namespaceKey("team"), map[uint32]error{1: errBusy}},
		{"the audit log", auditHead, nil},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.add(t, "team", nil)
			w.erase, w.onErased = c.erase, func() { w.Damage(c.key) }
			version, err := w.Remove(bg, lena, "team")
			if err == nil || !strings.Contains(err.Error(), "system shard") || version != 0 || w.Get(namespaceKey("team")) == nil {
				t.Errorf("%s is damaged during the removal: version %d, %v", c.what, version, err)
			}
		})
	}
}

// auditHead is the key of the row that has the bounds of the audit log.
var auditHead = []byte{'A', 0, 'h'}
