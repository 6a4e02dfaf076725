package lanes

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// TestLanes adds and removes tasks while keys and types are held and tried and leaders change, and compares what claims
// and explanations see with a list of the tasks. No worker time is used, so keys are ordered by their tasks; the
// engine's TestFairness checks how they share.
func TestLanes(t *testing.T) {
	for seed := range uint64(6) {
		warm, read := []int{0, 2, 1000}[seed%3], 1+int(seed%2)*1000
		t.Run(fmt.Sprintf("seed %d, %d warm, %d read at once", seed, warm, read), func(t *testing.T) {
			was, from := Bounds, store.RangeFrom
			defer func() { Bounds, store.RangeFrom = was, from }()
			Bounds.LaneHead, Bounds.Stale, store.RangeFrom, Bounds.Warm, Bounds.Head, Bounds.Heads = 1+int(seed/2), 1+int(seed%4),
				int(seed%3), warm, 3, 10
			Bounds.FirstRead, Bounds.TickRead, Bounds.ClaimRead = read, read, read
			w := newListed(t, seed)
			for step := range 300 {
				if w.rng.IntN(15) == 0 {
					w.round(w.begin)
				}
				w.round(func(r *Round) {
					for range 1 + w.rng.IntN(3) {
						w.step(r)
					}
				})
				if w.rng.IntN(3) == 0 {
					continue // some lanes stay unread
				}
				w.round(func(r *Round) {
					w.readAll(r, w.set)
					w.compare(r)
				})
				if t.Failed() {
					t.Fatalf("step %d", step)
				}
			}
		})
	}
}

// listed holds the lanes of a queue, and a list of the tasks in them.
type listed struct {
	t     *testing.T
	rng   *rand.Rand
	store *store.Store
	index uint64
	wrote int // rows and ranges by the last round
	set   *Set

	tasks []listedTask // in the order in which they became ready
	gone  []listedTask // the last few that left, which may return to their old places
	most  int
	seq   uint64
	held  map[string]bool
	tried map[string]bool
	keys  map[string]bool // held keys
}

type listedTask struct {
	id task.ID
	*schema.Exec
}

func (w *listed) Weight(string) float64 { return 1 }
func (w *listed) Held(key string, _ *limit.Claims, _ store.Time) (h Hold) {
	if w.keys[key] {
		h = HeldByPause
	}
	return h
}

func newListed(t *testing.T, seed uint64) *listed {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w := &listed{t: t, rng: rand.New(rand.NewPCG(seed, 5)), store: s, held: map[string]bool{}, tried: map[string]bool{},
		keys: map[string]bool{}, most: 15 + int(seed%2)*45}
	w.round(w.begin)
	return w
}

func (w *listed) round(do func(r *Round)) {
	w.index++
	now := store.Time(w.index) * 1000
	tx := w.store.Begin(now, w.index)
	defer tx.Close()
	r := Begin(tx, func(string, []schema.ReadyTask) {})
	do(&r)
	r.Seal()
	entry := tx.Seal(nil)
	w.wrote = int(binary.LittleEndian.Uint32(entry[8:]))
	if err := w.store.Apply(store.Position{Index: w.index, Term: 1, Time: now}, entry); err != nil {
		w.t.Fatal(err)
	}
}

// begin starts a new leader's memory.
func (w *listed) begin(r *Round) {
	w.set = New("ns", "q", w)
	w.open(r, w.set)
}

func (w *listed) open(r *Round, s *Set) {
	s.WatchTypes(true)
	for _, typ := range []string{"x", "y", "z"} {
		s.SetType(r, typ, w.held[typ], w.tried[typ])
	}
	r.Open(s)
}

func (w *listed) readAll(r *Round, s *Set) {
	for s.Partial() {
		r.ReadMore(s, math.MaxInt)
	}
}

func (w *listed) pick(of ...string) string { return of[w.rng.IntN(len(of))] }

func (w *listed) step(r *Round) {
	switch n := w.rng.IntN(20); {
	case n < 9 && len(w.tasks) < w.most:
		if at := w.rng.IntN(len(w.gone) + 1); at < len(w.gone) && w.rng.IntN(2) == 0 {
			w.enter(r, w.gone[at])
			w.gone = slices.Delete(w.gone, at, at+1)
			break
		}
		p, key, typ := task.Priorities[w.rng.IntN(3)], w.pick("", "a", "a", "a", "b", "c", "d", "e", "f", "g"), w.pick("x", "y", "z")
		for range []int{1, 1, 1, 5}[w.rng.IntN(4)] {
			w.enterNew(r, p, key, typ)
		}
	case n < 15:
		if len(w.tasks) > 0 {
			at := w.rng.IntN(len(w.tasks))
			switch w.rng.IntN(4) {
			case 0, 1:
				at = 0
			case 2:
				at = len(w.tasks) - 1
			}
			r.Leave(w.set, w.tasks[at].Exec)
			w.set.ForgetIdle(w.tasks[at].Key)
			w.gone = append(w.gone[max(0, len(w.gone)-4):], w.tasks[at])
			w.tasks = slices.Delete(w.tasks, at, at+1)
		}
	case n < 17:
		typ := w.pick("x", "y", "z")
		w.held[typ], w.tried[typ] = w.rng.IntN(2) == 0, false
		w.tried[typ] = w.held[typ] && w.rng.IntN(2) == 0
		w.set.SetType(r, typ, w.held[typ], w.tried[typ])
	default:
		key := w.pick("a", "b", "c")
		w.keys[key] = !w.keys[key]
		w.set.FollowRules(r, []string{key})
	}
}

// enterNew creates a new task.
func (w *listed) enterNew(r *Round, p task.Priority, key, typ string) {
	w.seq++
	x := &schema.Exec{State: task.Ready, Priority: p, Type: typ, Key: key, Seq: w.seq, ReadyAt: r.now}
	w.enter(r, listedTask{task.NewID(1, int64(w.index), w.rng.Uint64()), x})
}

// enter makes a task ready, at its place.
func (w *listed) enter(r *Round, t listedTask) {
	r.Enter(w.set, t.id, t.Exec)
	at, _ := slices.BinarySearchFunc(w.tasks, t.Seq, func(have listedTask, seq uint64) int { return cmp.Compare(have.Seq, seq) })
	w.tasks = slices.Insert(w.tasks, at, t)
}

// inOrder reports whether a task's type lets it run: if it is on trial, only tasks of the shown lane may.
func (w *listed) inOrder(x *schema.Exec) bool {
	shown := w.set.trials[x.Type]
	return !w.held[x.Type] || shown != nil && shown.LaneName == x.Lane()
}

func (w *listed) mayRun(x *schema.Exec) bool { return w.inOrder(x) && !w.keys[x.Key] }

// first returns the first task that satisfies ok.
func (w *listed) first(ok func(x *schema.Exec) bool) (first listedTask, some bool) {
	at := slices.IndexFunc(w.tasks, func(t listedTask) bool { return ok(t.Exec) })
	if at < 0 {
		return first, false
	}
	return w.tasks[at], true
}

func (w *listed) count(ok func(x *schema.Exec) bool) (n int) {
	for _, t := range w.tasks {
		if ok(t.Exec) {
			n++
		}
	}
	return n
}

func (w *listed) compare(r *Round) {
	w.compareRows(r)
	w.compareTrials()
	w.comparePositions(r)
	for i, p := range task.Priorities {
		for _, types := range [][]string{nil, {"x"}, {"z", "y"}, {"none"}} {
			next, some := w.first(func(x *schema.Exec) bool {
				return x.Priority == p && w.mayRun(x) && (types == nil || slices.Contains(types, x.Type))
			})
			switch has := w.set.Has(p, types); {
			case has != some:
				w.t.Errorf("Has(%d, %q) = %t, want %t", p, types, has, some)
			case has:
				if _, got := w.set.Next(r, p, types); got.ID != next.id || got.Seq != next.Seq || got.ReadyAt != next.ReadyAt {
					w.t.Errorf("Next(%d, %q) = %+v, want %+v", p, types, got, next)
				}
				if soon := w.set.Soon(p); types == nil && (len(soon) == 0 || soon[0].ID != next.id ||
					slices.ContainsFunc(soon, func(t schema.ReadyTask) bool { return t.ID == task.ID{} })) {
					w.t.Errorf("Soon lists %+v for priority %d, want %+v first", soon, p, next)
				}
			}
		}
		if w.set.MayFind(i, nil) {
			w.t.Errorf("all of priority %d is read, but MayFind reports more", p)
		}
	}
	for typ, of := range w.set.ofType {
		if len(of) == 0 {
			w.t.Errorf("type %q has no lane, but still takes memory", typ)
		}
	}
	again := New("ns", "q", w)
	w.open(r, again)
	w.readAll(r, again)
	if err := w.set.Verify(r.tx, again, false); err != nil {
		w.t.Error(err)
	}
	if err := w.set.VerifyTypes(again, true); err != nil {
		w.t.Error(err)
	}
}

// compareTrials checks that the shown lanes of types on trial are of keys that are not held, and of the best priority.
func (w *listed) compareTrials() {
	held := w.count(func(x *schema.Exec) bool { return w.held[x.Type] || w.keys[x.Key] })
	for _, typ := range []string{"x", "y", "z"} {
		best := task.Low + 1
		for _, t := range w.tasks {
			if t.Type == typ && !w.keys[t.Key] {
				best = min(best, t.Priority)
			}
		}
		shown := w.set.trials[typ]
		if wanted := w.tried[typ] && best <= task.Low; wanted != (shown != nil) || wanted && (shown.Priority != best || w.keys[shown.Key]) {
			w.t.Errorf("type %q, tried: %t: the lane on trial is %+v, want one of priority %d", typ, w.tried[typ], shown, best)
		}
		if shown != nil {
			held-- // the probe
		}
		if has := w.count(func(x *schema.Exec) bool { return x.Type == typ }) > 0; w.set.MayHave(typ) != has {
			w.t.Errorf("MayHave(%q) = %t", typ, !has)
		}
	}
	if got := w.set.HeldTasks(); got != int64(held) {
		w.t.Errorf("HeldTasks = %d, want %d", got, held)
	}
}

// comparePositions checks the positions of some tasks.
func (w *listed) comparePositions(r *Round) {
	for range min(len(w.tasks), 3) {
		t := w.tasks[w.rng.IntN(len(w.tasks))]
		p := r.Position(w.set, t.Exec)
		if w.rng.IntN(2) == 0 {
			p.Takes = func(typ string) bool { return typ == t.Type || typ == "x" }
		}
		same := w.count(func(x *schema.Exec) bool { return x.Lane() == t.Lane() && x.Seq < t.Seq })
		all := same + w.count(func(x *schema.Exec) bool {
			return x.Key == t.Key && x.Priority == t.Priority && x.Type != t.Type && x.Seq < t.Seq && w.inOrder(x) && p.takes(x.Type)
		})
		if gotSame, gotAll, more := p.TasksBefore(); gotSame != same || gotAll != all || more {
			w.t.Errorf("%+v has %d tasks of its type and %d in total before it (more: %t), want %d and %d", t, gotSame,
				gotAll, more, same, all)
		}
		firsts := map[string]uint64{} // of the keys of its priority
		for _, o := range w.tasks {
			if _, there := firsts[o.Key]; !there && o.Priority == t.Priority && w.mayRun(o.Exec) && p.takes(o.Type) {
				firsts[o.Key] = o.Seq
			}
		}
		keys := 0
		for _, first := range firsts {
			if own, runs := firsts[t.Key]; runs && first < own {
				keys++
			}
		}
		if n, more := p.KeysBefore(); n != keys || more {
			w.t.Errorf("%+v has %d keys before its own (more: %t), want %d", t, n, more, keys)
		}
		if shown := w.set.trials[t.Type]; p.IsProbe() != (shown != nil && shown.LaneName == t.Lane() && same == 0) {
			w.t.Errorf("%+v is a probe: %t, the lane on trial is %+v", t, p.IsProbe(), shown)
		}
		higher := int64(0)
		ready := [3]int64{1, 10, 100}
		for i, n := range ready {
			if _, some := w.first(func(x *schema.Exec) bool { return x.Priority == task.Priorities[i] && w.mayRun(x) }); some &&
				task.Priorities[i] < t.Priority {
				higher += n
			}
		}
		if p.Takes != nil {
			higher = int64(w.count(func(x *schema.Exec) bool { return x.Priority < t.Priority && w.mayRun(x) && p.takes(x.Type) }))
		}
		if got, more := p.HigherPriority(ready); got != higher || more {
			w.t.Errorf("%+v has %d tasks of higher priorities before it (more: %t), want %d", t, got, more, higher)
		}
	}
}

// The first task of a lane with none in memory is read, because the known lower bound is too low.
func TestFirstOfAFlow(t *testing.T) {
	was := Bounds
	defer func() { Bounds = was }()
	Bounds.LaneHead = 1
	w := newListed(t, 0)
	w.round(func(r *Round) {
		for _, typ := range []string{"x", "y", "z", "x", "y", "z", "z", "y", "x"} {
			w.enterNew(r, task.Normal, "a", typ)
		}
		for _, gone := range w.tasks[:6] {
			r.Leave(w.set, gone.Exec)
		}
		for reads, want := range []uint64{4, 5, 5, 7} {
			if got := r.firstOf(w.set, w.set.flows["a"], 1, func(string) bool { return true }, &reads); got != want {
				t.Errorf("the first task is at %d, want %d", got, want)
			}
		}
	})
}

// KeysBefore counts no more keys than it examines.
func TestManyKeysBefore(t *testing.T) {
	was := Bounds
	defer func() { Bounds = was }()
	Bounds.Warm = 2 * MaxBefore
	w := newListed(t, 0)
	w.round(func(r *Round) {
		for i := range MaxBefore + 100 {
			w.enterNew(r, task.Normal, fmt.Sprint("k", i), "x")
		}
		for at, want := range map[int]int{MaxBefore - 1: MaxBefore - 1, MaxBefore + 99: MaxBefore} {
			if n, more := r.Position(w.set, w.tasks[at].Exec).KeysBefore(); n > want || n < want-1 || more != (want == MaxBefore) {
				t.Errorf("before key %d there are %d keys (more: %t), want %d", at, n, more, want)
			}
		}
	})
}

// The claimed tasks of a key are listed up to a bound.
func TestKeyClaimed(t *testing.T) {
	f := &Flow{Use: limit.Claims{Named: []task.ID{{1}, {2}, {3}}}}
	for most, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3} {
		if got := (&Position{flow: f}).KeyClaimed(most); len(got) != want {
			t.Errorf("KeyClaimed(%d) = %v, want %d tasks", most, got, want)
		}
	}
}

// A key shares with others that are in memory, cold or still to be read.
func TestShared(t *testing.T) {
	for name, c := range map[string]struct {
		others func(s *Set)
		want   bool
	}{
		"alone":  {func(*Set) {}, false},
		"flow":   {func(s *Set) { s.Flow("b", 0) }, true},
		"cold":   {func(s *Set) { s.cold.byKey["b"] = &coldLane{} }, true},
		"unread": {func(s *Set) { s.unread[2] = []byte("x") }, true},
	} {
		s := New("ns", "q", &listed{})
		s.Flow("a", 0)
		if c.others(s); s.shared() != c.want {
			t.Errorf("%s: shared = %t", name, !c.want)
		}
	}
}
