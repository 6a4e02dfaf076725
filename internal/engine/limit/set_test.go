package limit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// step is the unit of the clock: an eighth of the period of all rates, and a power of two, so that no token is lost by rounding.
const step store.Time = 1 << 20

// world holds the set of a queue over its rows, and a model of it: whole eighths of tokens, and the claimed tasks. The
// clock moves in whole steps.
type world struct {
	*testing.T
	tx       *store.Tx
	now      store.Time
	settings task.Settings
	set      Set
	claims   map[string]*Claims
	model    map[string]*eighths // missing: it is full
	claimed  map[task.ID]string  // keys
	ids      uint64
}

type eighths struct {
	level int
	at    store.Time
	due   store.Time
}

func newWorld(t *testing.T) *world {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	tx := s.Begin(1, 1)
	t.Cleanup(func() { tx.Close(); _ = s.Close() })
	w := &world{T: t, tx: tx, now: 1000 * step, claims: map[string]*Claims{}, model: map[string]*eighths{}, claimed: map[task.ID]string{}}
	w.set = NewSet("ns", "q", &w.settings, w)
	return w
}

func (w *world) Tx() *store.Tx   { return w.tx }
func (w *world) Now() store.Time { return w.now }
func (w *world) Claims(key string) Claims {
	if c := w.claims[key]; c != nil {
		return *c
	}
	return Claims{}
}
func (w *world) SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte) {
	w.tx.Set(schema.DeadlineKey(at, kind, ns, rest), nil)
}

func each(limit, burst int) task.Rate {
	return task.Rate{Limit: limit, Burst: burst, Period: 8 * time.Duration(step) * time.Microsecond}
}

func (w *world) rate(key string) task.Rate { return modelRate(&w.settings, key) }

func modelRate(s *task.Settings, key string) task.Rate {
	if key == "" {
		return s.Rate
	}
	return s.RulesOf(key).Rate
}

// fill brings a bucket of the model up to date: a limit of n is n eighths a step.
func (b *eighths) fill(r task.Rate, now store.Time) {
	b.level = min(b.level+int((now-b.at)/step)*r.Limit, 8*r.Capacity())
	b.at = now
}

func (b *eighths) reaches(r task.Rate) store.Time {
	missing := store.Time(8 - b.level)
	return b.at + (missing*step+store.Time(r.Limit)-1)/store.Time(r.Limit)
}

// take takes tokens in the model, and reports whether there is a rate.
func (w *world) take(key string, cost int) bool {
	r := w.rate(key)
	if !r.IsSet() {
		return false
	}
	b := w.model[key]
	if b == nil {
		b = &eighths{level: 8 * r.Capacity(), at: w.now}
		w.model[key] = b
	}
	b.fill(r, w.now)
	if b.level -= 8 * max(cost, 1); b.level < 8 && b.due == 0 {
		b.due = b.reaches(r)
	}
	return true
}

// begin claims a task, whether or not its key has a token: a leader checks that first.
func (w *world) begin(key string, cost int) {
	w.ids++
	id := task.NewID(1, 1, w.ids)
	x := &schema.Exec{State: task.Claimed, Queue: "q", Key: key, Cost: cost, Claim: schema.Claim{Yields: yields(id)}}
	w.put(id, x)
	if w.claims[key] == nil {
		w.claims[key] = &Claims{}
	}
	w.claimed[id] = key
	if got, want := w.set.Begin(w, w.claims[key], id, x), w.take(key, cost); got != want {
		w.Fatalf("the claim of key %q took tokens: %t", key, got)
	}
	before := w.tx.Size()
	if got, want := w.set.TakeOfQueue(w, x), w.take("", cost); got != want || !want && w.tx.Size() != before {
		w.Fatalf("the claim took tokens of the queue: %t, and wrote %d bytes", got, w.tx.Size()-before)
	}
	if n := len(w.claims[key].Named); n > MaxNamed {
		w.Fatalf("the row of key %q names %d claims, which is more than MaxNamed", key, n)
	}
}

// yields reports whether a claim yields: every third does.
func yields(id task.ID) bool { return id[15]%3 == 0 }

func (w *world) put(id task.ID, x *schema.Exec) {
	w.tx.Set(schema.IDKey("ns", schema.TableExec, id), x.Encode())
}

func (w *world) end(id task.ID) {
	key := w.claimed[id]
	delete(w.claimed, id)
	w.put(id, &schema.Exec{State: task.Ready, Queue: "q", Key: key})
	named, before := slices.Contains(w.claims[key].Named, id), w.tx.Size()
	defer func() {
		if kept := w.model[key] != nil || len(w.claims[key].Named) > 0; named && kept && w.tx.Size() != before {
			w.Fatalf("the end of a claim of key %q wrote its row, which holds other things", key)
		}
	}()
	for _, want := range []bool{true, false} {
		claimed := &schema.Exec{State: task.Claimed, Key: key, Claim: schema.Claim{Yields: yields(id)}}
		if got := w.set.End(w, w.claims[key], id, claimed); got != want {
			w.Fatalf("End of a claim of key %q = %t, want %t", key, got, want)
		}
	}
}

// deadlines returns those of buckets, by key. Each has at most one.
func (w *world) deadlines() map[string]store.Time {
	all := map[string]store.Time{}
	for key, b := range w.set.buckets {
		if b.Due != 0 {
			all[key] = b.Due
		}
	}
	stored := 0
	for _, table := range schema.Timelines {
		w.tx.Scan([]byte{table}, []byte{table + 1}, func(k, _ []byte) bool {
			stored++
			return true
		})
	}
	for key, at := range all {
		if _, ok := w.tx.Get(schema.DeadlineKey(at, schema.OnTokens, "ns", schema.BucketRest("q", key))); !ok {
			w.Fatalf("the bucket of %q has a token again at %d, but no deadline", key, at)
		}
	}
	if stored != len(all) {
		w.Fatalf("%d deadlines are stored for %d buckets with a deadline", stored, len(all))
	}
	return all
}

// pass advances the clock by steps, and handles deadlines when they are due.
func (w *world) pass(n int) {
	end := w.now + store.Time(n)*step
	for {
		at, key := end+1, ""
		for k, due := range w.deadlines() {
			if due < at {
				at, key = due, k
			}
		}
		if at > end {
			break
		}
		w.now = at
		w.tx.Delete(schema.DeadlineKey(at, schema.OnTokens, "ns", schema.BucketRest("q", key)))
		if w.set.TokenDue(w, key, at-1) {
			w.Fatalf("TokenDue of %q reported tokens before they were due", key)
		}
		if !w.set.TokenDue(w, key, at) {
			w.Fatalf("TokenDue of %q reported no tokens when they were due", key)
		}
	}
	w.now = end
	for key, b := range w.model {
		for b.due != 0 && b.due <= end {
			c := *b
			if c.due = 0; c.reaches(w.rate(key)) > b.due { // more was taken meanwhile
				c.due = c.reaches(w.rate(key))
			}
			b.due = c.due
		}
	}
}

func (w *world) isFull(key string, b *eighths) bool {
	b.fill(w.rate(key), w.now)
	return b.due == 0 && b.level >= 8*w.rate(key).Capacity()
}

func (w *world) sweep(most int) {
	full := 0
	for key, b := range w.model {
		if w.isFull(key, b) {
			full++
		}
	}
	before := len(w.set.buckets)
	dropped, left := w.set.Sweep(w, most)
	if dropped != min(full, most) || len(w.set.buckets) != before-dropped {
		w.Fatalf("%d of %d full buckets were dropped, at most %d may be, and %d of %d are left", dropped, full, most,
			len(w.set.buckets), before)
	}
	if full < most && left != (before > dropped) {
		w.Fatalf("buckets are left: %t, but %d of %d were dropped", left, dropped, before)
	}
	maps.DeleteFunc(w.model, func(key string, b *eighths) bool { return w.set.buckets[key] == nil && w.isFull(key, b) })
}

func (w *world) follow(next task.Settings) {
	watched := false
	for key, b := range w.model {
		was, rate := w.rate(key), modelRate(&next, key)
		if was == rate {
			continue
		}
		if w.isFull(key, b) || !rate.IsSet() {
			delete(w.model, key)
			continue
		}
		watched = true
		b.fill(rate, w.now)
		if b.due = 0; b.level < 8 {
			b.due = b.reaches(rate)
		}
	}
	if got := w.set.Follow(w, &next); got != watched {
		w.Fatalf("a change of rates asks for a sweep: %t", got)
	}
	w.settings = next
}

// check compares the set, and one read from the rows, with the model.
func (w *world) check() {
	w.deadlines()
	fresh := NewSet("ns", "q", &w.settings, w)
	read, yielding := map[task.ID]string{}, map[string]int{}
	fresh.Read(w.tx, func(id task.ID, x *schema.Exec, named bool) {
		if read[id] != "" || named != slices.Contains(w.claims[x.Key].Named, id) {
			w.Fatalf("a claim of key %q was read, by name: %t, read before: %t", x.Key, named, read[id] != "")
		}
		if read[id] = x.Key; x.Claim.Yields {
			yielding[x.Key]++
		}
	})
	for key, c := range w.claims {
		if c.Yielding != yielding[key] {
			w.Fatalf("%d claims of key %q yield, want %d", c.Yielding, key, yielding[key])
		}
	}
	if !maps.Equal(read, w.claimed) || len(fresh.Stale()) > 0 {
		w.Fatalf("claims %v and %d stale rows were read, but %v are claimed", read, len(fresh.Stale()), w.claimed)
	}
	for _, set := range []*Set{&w.set, &fresh} {
		if len(set.Buckets()) != len(w.model) {
			w.Fatalf("the set has the buckets %v, the model has %d", set.Buckets(), len(w.model))
		}
		for _, key := range []string{"", "a", "b", "c"} {
			has, until, due := true, store.Time(0), store.Time(0)
			if b := w.model[key]; b != nil {
				c := *b
				if c.fill(w.rate(key), w.now); c.level < 8 {
					has, until = false, c.reaches(w.rate(key))
				}
				if due = c.due; set.buckets[key] == nil || set.buckets[key].Due != due {
					w.Fatalf("the bucket of %q is %+v, in the model it is %+v", key, set.buckets[key], c)
				}
			}
			if at, empty := set.NextToken(key, w.now); empty == has || at != until {
				w.Fatalf("key %q has a token: %t, at %d, in the model: %t, at %d", key, !empty, at, has, until)
			}
			if fill := set == &fresh || w.ids%3 == 0; fill && set.HasToken(key, w.now) != has { // HasToken fills the bucket
				w.Fatalf("HasToken(%q) = %t", key, !has)
			}
		}
	}
}

// TestModel compares random lives of a queue's tokens and claims with the model.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		w, rng := newWorld(t), rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test that can be repeated
		rate := func() task.Rate { return []task.Rate{{}, each(1, 2), each(2, 0), each(5, 3)}[rng.IntN(4)] }
		w.settings.Rate, w.settings.PerKey.Rate = rate(), rate()
		for range 150 {
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				w.begin([]string{"a", "b", "c"}[rng.IntN(3)], rng.IntN(3))
			case 4, 5, 6:
				for id := range w.claimed {
					w.end(id)
					break
				}
			case 7, 8, 9:
				w.pass(1 + rng.IntN(8))
			case 10:
				w.sweep(1 + rng.IntN(3))
			case 11:
				next := w.settings
				switch next.Keys = maps.Clone(w.settings.Keys); rng.IntN(4) {
				case 0:
					next.Rate = rate()
				case 1:
					next.PerKey.Rate = rate()
				case 2:
					if next.Keys == nil {
						next.Keys = map[string]task.KeyRules{}
					}
					next.Keys["a"] = task.KeyRules{Rules: task.Rules{Rate: rate()}, Weight: rng.IntN(3)}
				case 3:
					delete(next.Keys, "a")
				}
				w.follow(next)
			}
			if w.check(); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		w.set.Drop(w.tx)
		clear(w.set.buckets)
		if w.deadlines(); w.uses() > 0 {
			t.Errorf("seed %d: %d rows are left of a dropped queue", seed, w.uses())
		}
	}
}

func (w *world) uses() (n int) {
	prefix := schema.QueueKey("ns", schema.TableUse, "q")
	w.tx.Scan(prefix, schema.After(prefix), func(_, _ []byte) bool { n++; return true })
	return n
}

// A token is available at its time, even if the deadline has not been handled yet, and within rounding errors.
func TestTokenBounds(t *testing.T) {
	w := newWorld(t)
	w.settings.PerKey.Rate = each(1, 0)
	w.begin("a", 1)
	if w.now += 8 * step; !w.set.HasToken("a", w.now) {
		t.Error("a key has no token at the time when one is due")
	}
	if w.set.TokenDue(w, "b", w.now) {
		t.Error("TokenDue reported tokens for a key with a full bucket")
	}
	b := &Bucket{Level: Enough, At: w.now}
	w.set.buckets["b"] = b
	if !w.set.HasToken("b", w.now) {
		t.Error("a key with enough for a task has no token")
	}
	if w.set.watch(w, "b", b, w.rate("b")); b.Due != 0 {
		t.Errorf("a key with enough for a task has a token due at %d", b.Due)
	}
}

// Rows of ended claims, as left by an older leader, are ignored, and deleted with the next claim. Rows that also hold something valid stay.
func TestStaleRows(t *testing.T) {
	w := newWorld(t)
	for n, x := range []schema.Exec{
		{State: task.Claimed, Queue: "q", Key: "a"},
		{State: task.Claimed, Queue: "q", Key: "b"},
		{State: task.Claimed, Queue: "r", Key: "a"},
		{State: task.Ready, Queue: "q", Key: "a"},
		{State: task.Claimed, Queue: "q"},
	} {
		w.put(task.ID{byte(n + 1)}, &x)
	}
	use := func(key string, b *Bucket, ids ...byte) {
		u := Use{Bucket: b}
		for _, id := range ids {
			u.Named = append(u.Named, task.ID{id})
		}
		w.tx.Set(schema.UseKey("ns", "q", key), u.Encode())
	}
	use("", nil, 9)                            // of no key
	use("a", nil, 1, 2, 3, 4, 5, 9)            // 1 is claimed for this key
	use("b", &Bucket{At: 7}, 1)                // it has spent tokens
	use("c", nil, 3, 4)                        // holds nothing valid
	for _, id := range []byte{2, 3, 4, 5, 9} { // 2 is claimed
		w.tx.Set(schema.ClaimedKey("ns", "q", "b", task.ID{id}), nil)
	}
	set := NewSet("ns", "q", &w.settings, w)
	var got []string
	set.Read(w.tx, func(id task.ID, x *schema.Exec, named bool) { got = append(got, fmt.Sprint(x.Key, id[0], named)) })
	if want := []string{"b2 false", "a1 true"}; !slices.Equal(got, want) {
		t.Errorf("claims %q were read, want %q", got, want)
	}
	if len(set.Buckets()) != 1 || set.Buckets()["b"].At != 7 {
		t.Errorf("buckets %+v were read", set.Buckets())
	}
	if n := len(set.Stale()); n != 6 {
		t.Errorf("%d rows are stale, want those of 4 tasks and of 2 keys", n)
	}
	set.Begin(w, &Claims{}, task.ID{8}, &schema.Exec{Key: "d"})
	if w.uses() != 3 || len(set.Stale()) > 0 {
		t.Errorf("after a claim %d keys have a row, and %d rows are stale", w.uses(), len(set.Stale()))
	}
}

// A damaged row stops the reader.
func TestDamagedRowsStop(t *testing.T) {
	for what, key := range map[string][]byte{"use": schema.UseKey("ns", "q", "a"), "task": schema.IDKey("ns",
		schema.TableExec, task.ID{1})} {
		w := newWorld(t)
		w.tx.Set(schema.ClaimedKey("ns", "q", "a", task.ID{1}), nil)
		w.tx.Set(key, []byte("x"))
		if !stops(func() { w.set.Read(w.tx, func(task.ID, *schema.Exec, bool) {}) }) {
			t.Errorf("a damaged %s row was read", what)
		}
		if what == "use" && !stops(func() { w.set.Drop(w.tx) }) {
			t.Error("a queue with a damaged row was dropped")
		}
	}
}

func stops(read func()) (stopped bool) {
	defer func() { stopped = recover() != nil }()
	read()
	return
}
