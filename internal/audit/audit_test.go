package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

var usual = bounds{DefaultKeep, maxBytes, reserved}

// shard is a shard's state without Raft.
type shard struct {
	t     *testing.T
	state *store.Store
	now   store.Time
	index uint64
}

func newShard(t *testing.T) *shard {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &shard{t: t, state: s, now: store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// round runs fn in a committed round.
func (s *shard) round(fn func(tx *store.Tx)) {
	s.t.Helper()
	s.index++
	tx := s.state.Begin(s.now, s.index)
	defer tx.Close()
	fn(tx)
	if err := s.state.Apply(store.Position{Index: s.index, Term: 1, Time: s.now}, tx.Seal(nil)); err != nil {
		s.t.Fatal(err)
	}
}

// log runs fn on the log with the given bounds.
func (s *shard) log(b bounds, fn func(l *Log) store.Time) (due store.Time) {
	s.t.Helper()
	s.round(func(tx *store.Tx) {
		l, err := Open(tx, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		l.bounds = b
		due = fn(l)
	})
	return due
}

func (s *shard) append(e Entry) store.Time {
	s.t.Helper()
	return s.appendIn(usual, e)
}

func (s *shard) appendIn(b bounds, e Entry) store.Time {
	s.t.Helper()
	return s.log(b, func(l *Log) store.Time {
		due, err := l.Append(e)
		if err != nil {
			s.t.Fatal(err)
		}
		return due
	})
}

// some appends n entries, a second apart.
func (s *shard) some(n int) {
	s.t.Helper()
	for i := range n {
		s.now = s.now.Add(time.Second)
		s.append(Entry{Action: task.QueuePut, By: task.Author{Name: fmt.Sprint("a", i)}})
	}
}

func (s *shard) sound(after string) {
	s.t.Helper()
	if problems := Check(s.state); len(problems) > 0 {
		s.t.Errorf("after %s: %q", after, problems)
	}
}

// chain returns the chain of the cluster.
func (s *shard) chain() *chain { return s.chainOf("") }

func (s *shard) chainOf(ns string) *chain {
	c, err := readChain(s.state, ns)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// count returns how many entries a namespace has.
func (s *shard) count(ns string) (n int) {
	s.state.Scan(entryKey(ns, 0), entryKey(ns, math.MaxUint64), func(_, _ []byte) bool { n++; return true })
	return n
}

func (s *shard) sum() sum {
	all, err := readSum(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *shard) due() store.Time {
	due, err := Due(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	return due
}

// Any change made without the log is detected, except one to its beginning and end together.
func TestBrokenChains(t *testing.T) {
	edit := func(change func(c *chain, all *sum)) func(tx *store.Tx) {
		return func(tx *store.Tx) {
			c, err := readChain(tx, "")
			all, bad := readSum(tx)
			if err != nil || bad != nil {
				t.Error(err, bad)
			}
			change(c, &all)
			tx.Set(chainKey(""), encode(c))
			tx.Set(sumKey, encode(&all))
		}
	}
	for _, c := range []struct {
		what string
		harm func(tx *store.Tx)
		find string // the first problem
	}{
		{"an entry in the middle is changed", func(tx *store.Tx) {
			row, _ := tx.Get(entryKey("", 3))
			tx.Set(entryKey("", 3), []byte(strings.Replace(string(row), "a2", "xx", 1)))
		}, "entry 4 does not follow the one before it"},
		{"an entry in the middle is gone", func(tx *store.Tx) { tx.Delete(entryKey("", 3)) }, "entry 4 does not follow the one before it"},
		{"three in the middle are gone", func(tx *store.Tx) {
			for i := range uint64(3) {
				tx.Delete(entryKey("", 2+i))
			}
		}, "entry 5 does not follow the one before it"},
		{"the oldest is gone", func(tx *store.Tx) { tx.Delete(entryKey("", 1)) }, "the oldest entry is 2, should be 1"},
		{"the oldest begins another chain", edit(func(c *chain, _ *sum) { c.Before[0]++ }), "entry 1 does not follow the one before it"},
		{"the newest is gone", func(tx *store.Tx) { tx.Delete(entryKey("", 6)) }, "the newest entry is 5, should be 6"},
		{"the newest is changed", func(tx *store.Tx) { row, _ := tx.Get(entryKey("", 6)); tx.Set(entryKey("", 6), append(row, ' ')) },
			"entry 6 is not the one that was written last"},
		{"all are gone", func(tx *store.Tx) {
			for i := range uint64(7) {
				tx.Delete(entryKey("", i))
			}
		}, "the newest entry is 0, should be 6"},
		{"two have changed places", func(tx *store.Tx) {
			a, _ := tx.Get(entryKey("", 2))
			b, _ := tx.Get(entryKey("", 3))
			tx.Set(entryKey("", 2), b)
			tx.Set(entryKey("", 3), a)
		}, "entry 2 does not follow the one before it"},
		{"one is there that was not noted", func(tx *store.Tx) { row, _ := tx.Get(entryKey("", 6)); tx.Set(entryKey("", 7), row) },
			"entry 7 does not follow the one before it"},
		{"one is no entry", func(tx *store.Tx) { tx.Set(entryKey("", 4), []byte("?")) }, "entry 4: unknown format"},
		{"one is empty", func(tx *store.Tx) { tx.Set(entryKey("", 4), nil) }, "entry 4: unknown format"},
		{"one is not JSON", func(tx *store.Tx) { tx.Set(entryKey("", 4), []byte{rowVersion, '{'}) }, "entry 4: unexpected end of JSON"},
		{"one has half a hash", func(tx *store.Tx) { tx.Set(entryKey("", 4), []byte("\x01{\"prev\":\"00\"}")) },
			"entry 4: hash of 2 digits"},
		{"the head is gone", func(tx *store.Tx) { tx.Delete(sumKey) }, "entry 6 is newer than the newest, 0"},
		{"the head is not readable", func(tx *store.Tx) { tx.Set(sumKey, []byte{rowVersion + 1}) }, "head: unknown format"},
		{"the head counts other bytes", edit(func(_ *chain, all *sum) { all.Bytes++ }), "are counted as"},
		{"the head is of no chain", func(tx *store.Tx) { tx.Delete(chainKey("")) }, `entry 1 of namespace "" belongs to no chain`},
		{"the head is of a chain that is not readable", func(tx *store.Tx) { tx.Set(chainKey(""), []byte("?")) },
			`chain of namespace "": unknown format`},
		{"the chain counts other bytes", edit(func(c *chain, _ *sum) { c.Bytes++ }), "are counted as"},
		{"nothing will remove them", edit(func(_ *chain, all *sum) { all.Due = 0 }), "entries are never removed"},
		{"one is older than the one before it", func(tx *store.Tx) {
			l, err := Open(tx, 0)
			if err != nil {
				t.Error(err)
			}
			c, err := readChain(tx, "")
			if err != nil {
				t.Error(err)
			}
			e := Entry{Seq: 7, At: tx.Now().Add(-time.Hour), Prev: c.Hash}
			l.sum.Newest, c.Newest = 7, 7
			l.write(c, &e, 0)
			l.writeSum()
		}, "entry 7 is older than the one before it"},
	} {
		s := newShard(t)
		s.some(6)
		s.sound("six entries")
		s.round(c.harm)
		if problems := append(Check(s.state), ""); !strings.HasPrefix(problems[0], "audit: ") || !strings.Contains(problems[0], c.find) {
			t.Errorf("%s, and Check finds %q, want %q first", c.what, problems, c.find)
		}
		if !strings.HasPrefix(c.what, "the head is") { // nor does it keep the shard from working, and old entries from being removed
			s.some(2)
			s.now = s.now.Add(DefaultKeep + time.Hour)
			if due := s.log(usual, (*Log).Expire); due != 0 {
				t.Errorf("%s, but entries are kept until %d", c.what, due)
			}
			s.some(1)
			if n := s.count(""); n != 1 {
				t.Errorf("%s, but %d entries remain, want one", c.what, n)
			}
		}
	}
	s := newShard(t)
	s.sound("nothing")
	s.some(40)
	s.round(func(tx *store.Tx) {
		for i := range uint64(40) {
			tx.Set(entryKey("", i+1), []byte("?"))
		}
	})
	if problems := Check(s.state); len(problems) != 10 {
		t.Errorf("of a log that is all broken, Check reports %d problems, want the first ten", len(problems))
	}
}

// Surplus and old entries are removed, oldest first, and the chain stays intact.
func TestOldEntriesAreRemoved(t *testing.T) {
	s := newShard(t)
	few := bounds{keep: time.Hour, bytes: 1 << 20}
	due := s.appendIn(few, Entry{Action: task.QueuePut})
	if due != s.now.Add(time.Hour) {
		t.Errorf("the first entry expires at %d, want an hour after %d", due, s.now)
	}
	few.bytes = 5*s.chain().Bytes + 50 // the first has no hash before it, but that takes the same room
	for range 9 {
		s.now = s.now.Add(time.Minute)
		if again := s.appendIn(few, Entry{Action: task.QueuePut}); again != 0 {
			t.Errorf("Append returned a second deadline, %d", again)
		}
		s.sound("an entry too many")
	}
	if c := s.chain(); c.Oldest != 6 || c.Newest != 10 {
		t.Errorf("entries %d to %d, want 6 to 10", c.Oldest, c.Newest)
	}
	s.now = due
	due = s.log(few, (*Log).Expire) // entry 6 was appended at minute 5
	if h := s.chain(); h.Oldest != 6 || due != s.now.Add(5*time.Minute) {
		t.Errorf("oldest entry %d, next expiry %v later, want entry 6 and 5m", h.Oldest, due.Sub(s.now))
	}
	s.now = due.Add(90 * time.Second)
	due = s.log(few, (*Log).Expire)
	if h := s.chain(); h.Oldest != 8 || due != s.now.Add(30*time.Second) {
		t.Errorf("oldest entry %d, next expiry %v later, want entry 8 and 30s", h.Oldest, due.Sub(s.now))
	}
	s.sound("some have gone")
	s.now = s.now.Add(time.Hour)
	if due = s.log(few, (*Log).Expire); due != 0 {
		t.Errorf("the log is empty, but the next expiry is at %d", due)
	}
	s.sound("all have gone")
	s.some(2)
	s.sound("new ones")
	if h := s.chain(); h.Oldest != 11 || h.Newest != 12 {
		t.Errorf("entries %d to %d, want 11 and 12", h.Oldest, h.Newest)
	}
	narrow := bounds{keep: time.Hour, bytes: 1000}
	for range 10 {
		s.appendIn(narrow, Entry{Action: task.QueuePut, By: task.Author{Reason: strings.Repeat("x", 200)}})
	}
	if c := s.chain(); c.Bytes > 1000 || c.Oldest == 0 {
		t.Errorf("the log has entries of %d bytes from number %d, want at most 1000 bytes", c.Bytes, c.Oldest)
	}
	s.sound("large ones")
}

// The retention may change at any time: entries are removed or kept accordingly within a day.
func TestKeepChanges(t *testing.T) {
	s := newShard(t)
	const day = 24 * time.Hour
	kept := func(d time.Duration) bounds { return bounds{d, maxBytes, reserved} }
	due := s.appendIn(kept(10*day), Entry{Action: task.QueuePut})
	for n, c := range []struct {
		keep time.Duration
		next time.Duration // until the next check; 0: there are no entries left
	}{{10 * day, day}, {100 * day, day}, {3*day + time.Hour, time.Hour}, {4 * day, 23 * time.Hour}, {4 * day, 0}} {
		if s.now = due; s.due() != due {
			t.Errorf("step %d: due at %d, want %d", n, s.due(), due)
		}
		due = s.log(kept(c.keep), (*Log).Expire)
		if c.next == 0 && due != 0 || c.next != 0 && due != s.now.Add(c.next) {
			t.Errorf("step %d: retention %v, next expiry %v later, want %v", n, c.keep, due.Sub(s.now), c.next)
		}
		s.sound("a change")
	}
	if s.count("") != 0 {
		t.Errorf("an entry older than the retention of 4 days was kept")
	}
	for d, ok := range map[time.Duration]bool{day: true, day - 1: false, 3650 * day: true, 3650*day + 1: false, 0: false, -day: false} {
		if err := CheckKeep("retention", d); (err == nil) != ok {
			t.Errorf("CheckKeep(%v) = %v", d, err)
		}
	}
}

// A call of several rounds extends one entry, until another entry follows it.
func TestCallsGrow(t *testing.T) {
	s := newShard(t)
	of := Entry{Action: task.QueuePurged, Call: 7, Tasks: 500, Target: task.Target{Kind: task.OnQueue, Name: "q"}}
	s.append(of)
	s.append(of)
	s.append(Entry{Action: task.QueuePut})
	for _, change := range []func(e *Entry){func(e *Entry) { e.Call = 8 }, func(e *Entry) { e.Target.Name = "r" }, func(e *Entry) {
		e.Action = task.TaskCancelled
	}, func(e *Entry) { e.By.Name = "lena" }} {
		s.append(of)
		other := of
		change(&other)
		s.append(other)
	}
	s.sound("calls of rounds")
	p, err := Read(s.state, 1, Query{}, nil, 10)
	var tasks []int64
	for _, e := range p.Entries {
		tasks = append(tasks, e.Tasks)
	}
	if want := append(slices.Repeat([]int64{500}, 8), 0, 1000); err != nil || !slices.Equal(tasks, want) {
		t.Errorf("entries have %v tasks (%v), newest first, want %v", tasks, err, want)
	}
}

// Pages over several shards, with any filter and any limit, together equal the list of all.
func TestPagesAgainstAModel(t *testing.T) {
	const shards = 3
	rnd := rand.New(rand.NewPCG(1, 2))
	state := map[uint32]*shard{}
	var all []Record
	for id := range uint32(shards) {
		s := newShard(t)
		state[id] = s
		for range 40 {
			s.now = s.now.Add(time.Duration(rnd.IntN(3)) * time.Second) // many at the same time
			e := Entry{Action: []task.Action{task.QueuePut, task.QueuePaused, task.TaskCancelled}[rnd.IntN(3)],
				Namespace: []string{"", "default",
					"other"}[rnd.IntN(3)],
				By: task.Author{Name: []string{"lena", "ops"}[rnd.IntN(2)]}, Queue: []string{"", "a", "b"}[rnd.IntN(3)]}
			e.Target = task.Target{Kind: task.OnQueue, Name: e.Queue}
			s.append(e)
			e.At, e.Seq = s.now, s.chainOf(e.Namespace).Newest
			all = append(all, Record{e, id})
		}
	}
	slices.SortFunc(all, func(a, b Record) int {
		if b.Place().After(a.Place()) {
			return -1
		}
		return 1
	})
	began := all[len(all)-1].At
	for range 300 {
		q := Query{Namespace: "default", Action: []string{"", "queue.*", "queue.put"}[rnd.IntN(3)],
			Actor: []string{"", "lena"}[rnd.IntN(2)], Queue: []string{"", "a"}[rnd.IntN(2)]}
		if rnd.IntN(2) == 0 {
			q.Since = began.Add(time.Duration(rnd.IntN(50)) * time.Second)
		}
		if rnd.IntN(2) == 0 {
			q.Until = began.Add(time.Duration(rnd.IntN(50)) * time.Second)
		}
		var want, got []Place
		for _, r := range all {
			if (q.Since == 0 || r.At >= q.Since) && (q.Until == 0 || r.At < q.Until) && (r.Namespace == "" || r.Namespace == "default") &&
				(q.Actor == "" || r.By.Name == q.Actor) && (q.Queue == "" || r.Queue == q.Queue) &&
				strings.HasPrefix(string(r.Action), strings.TrimSuffix(q.Action, "*")) {
				want = append(want, r.Place())
			}
		}
		limit, most, bytes := 1+rnd.IntN(9), 1+rnd.IntN(15), 1+rnd.IntN(5000)
		var behind *Place
		for pages := 0; ; pages++ {
			read := map[uint32]Page{}
			for id, s := range state {
				p, err := readUpTo(most, s.state, id, q, behind, limit)
				if err != nil || len(p.Entries) > limit {
					t.Fatalf("%+v: %d entries of a shard, %v, want at most %d", q, len(p.Entries), err, limit)
				}
				read[id] = p
			}
			l := Merge(read, limit, bytes)
			if len(l.Records) > limit || pages > 500 {
				t.Fatalf("%+v: %d entries on page %d, want at most %d", q, len(l.Records), pages, limit)
			}
			for i := range l.Records {
				got = append(got, l.Records[i].Place())
			}
			if behind = l.More; behind == nil {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v in pages of %d: %v, want %v", q, limit, got, want)
		}
	}
}

// A page reads a bounded number of entries, however many there are.
func TestPagesAreBounded(t *testing.T) {
	s := newShard(t)
	s.round(func(tx *store.Tx) {
		l, err := Open(tx, 0)
		for i := range maxRead + 500 {
			if _, err := l.Append(Entry{Action: task.QueuePut, By: task.Author{Name: map[bool]string{true: "first"}[i == 0]}}); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	p, err := Read(s.state, 1, Query{Actor: "first"}, nil, 10)
	if err != nil || len(p.Entries) != 0 || p.Read.Seq != 501 {
		t.Fatalf("the first page has %d entries and ends at %+v (%v), want none, and entry 501", len(p.Entries), p.Read, err)
	}
	if p, err = Read(s.state, 1, Query{Actor: "first"}, &p.Read, 10); err != nil || len(p.Entries) != 1 || p.Read != (Place{}) {
		t.Errorf("the second page has %d entries and ends at %+v (%v), want one, and the end", len(p.Entries), p.Read, err)
	}
}

func TestChanged(t *testing.T) {
	type Inner struct {
		Wait time.Duration `json:"wait"`
	}
	type thing struct {
		Inner
		Name  string            `json:"name"`
		Max   int               `json:"max"`
		Of    *Inner            `json:"of"`
		By    map[string]Inner  `json:"by"`
		Share [3]int            `json:"share"`
		At    store.Time        `json:"at"`
		Until *time.Time        `json:"until"`
		Texts map[string]string `json:"texts"`
	}
	until := time.Date(2026, 11, 22, 15, 50, 3, 802006000, time.FixedZone("", 3600))
	full := &thing{Inner: Inner{time.Minute}, Name: "a", Max: 5, Of: &Inner{time.Second}, By: map[string]Inner{"k": {time.Hour}},
		Share: [3]int{7, 2, 1}, At: 1e6, Until: &until}
	other := *full
	other.Max, other.By = 6, map[string]Inner{"l": {time.Hour}}
	for _, c := range []struct {
		before, after any
		was, is       string
	}{
		{nil, nil, "", ""},
		{full, full, "", ""},
		{full, &other, `{"by.k.wait":"1h0m0s","max":5}`, `{"by.l.wait":"1h0m0s","max":6}`},
		{nil, &thing{Max: 1}, "", `{"max":1}`},
		{&thing{Max: 1}, &thing{}, `{"max":1}`, ""},
		{nil, full, "", `{"at":"1970-01-01T00:00:01Z","by.k.wait":"1h0m0s","max":5,"name":"a","of.wait":"1s","share":"7, 2, ` +
			`1","until":"2026-11-22T14:50:03.802006Z","wait":"1m0s"}`},
	} {
		if was, is := Changed(c.before, c.after); string(was) != c.was || string(is) != c.is {
			t.Errorf("Changed from %+v to %+v = %s → %s, want %s → %s", c.before, c.after, was, is, c.was, c.is)
		}
	}
	large := thing{Texts: map[string]string{}}
	for i := range 1000 {
		large.Texts[fmt.Sprintf("%04d", i)] = strings.Repeat("\x01ü", 500)
	}
	_, is := Changed(nil, &large)
	var back map[string]any
	if err := json.Unmarshal(is, &back); err != nil || len(is) > maxSide+30 || back["more"] == nil {
		t.Errorf("changes of a thousand texts have %d bytes (%v): %.100s", len(is), err, is)
	}
}

// A page ends with the entry that fills it, and a list with the one that fills a message; each has at least one entry.
func TestPagesFitIntoMessages(t *testing.T) {
	s := newShard(t)
	for range 20 {
		s.append(Entry{Action: task.QueuePut, By: task.Author{Reason: strings.Repeat("x", maxPageBytes/8)}})
	}
	p, err := Read(s.state, 1, Query{}, nil, 100)
	if err != nil || len(p.Entries) != 8 || p.Read.Seq != 13 {
		t.Fatalf("a page has %d entries and ends at %+v, %v; want 8, since they have an eighth of the maximum each", len(p.Entries), p.Read,
			err)
	}
	full := Entry{Before: make([]byte, 100), After: make([]byte, 200), By: task.Author{Reason: strings.Repeat("x", 300)}}
	one := full
	one.Seq = 1
	const size = 600 + recordBytes
	for _, c := range []struct{ limit, bytes, want int }{{9, 0, 1}, {9, 1, 1}, {9, size, 1}, {9, size + 1, 2}, {1, 3 * size, 1},
		{2, 3 * size, 2}} {
		l := Merge(map[uint32]Page{1: {Entries: []Entry{one, full}}}, c.limit, c.bytes)
		if len(l.Records) != c.want || (l.More == nil) != (c.want == 2) {
			t.Errorf("a list of up to %d entries and %d bytes has %d, and goes on after %v; want %d", c.limit, c.bytes,
				len(l.Records), l.More, c.want)
		}
	}
}

// A page of a log with a row that can't be read is an error, whether the row would be on it or is met while its beginning is looked for.
func TestDamagedPages(t *testing.T) {
	s := newShard(t)
	if p, err := Read(s.state, 1, Query{}, nil, 10); err != nil || len(p.Entries) != 0 || p.Read != (Place{}) {
		t.Errorf("a log without entries has the page %+v, %v", p, err)
	}
	s.some(7)
	s.round(func(tx *store.Tx) { tx.Set(entryKey("", 4), []byte("?")) })
	if p, err := Read(s.state, 1, Query{}, nil, 3); err != nil || len(p.Entries) != 3 {
		t.Errorf("before the damaged entry there are %d, %v; want 3", len(p.Entries), err)
	}
	for _, q := range []Query{{}, {Until: s.now}} {
		if _, err := Read(s.state, 1, q, nil, 10); err == nil || !strings.Contains(err.Error(), "entry 4: unknown format") {
			t.Errorf("%+v: %v, want the damaged entry", q, err)
		}
	}
	s.round(func(tx *store.Tx) { tx.Set(chainKey(""), []byte("?")) })
	if _, err := Read(s.state, 1, Query{}, nil, 10); err == nil || !strings.Contains(err.Error(), "unknown format") {
		t.Errorf("without a head: %v", err)
	}
}

// A query matches by each field of an entry.
func TestMatches(t *testing.T) {
	e := Entry{Namespace: "ns", Action: task.QueuePut, By: task.Author{Name: "lena"}, Queue: "q",
		Target: task.Target{Kind: task.OnQueue, Name: "a"}}
	cluster := e
	cluster.Namespace = ""
	for _, c := range []struct {
		q         Query
		own, both bool // matches e, and the same entry of the cluster
	}{
		{Query{Namespace: "ns"}, true, true}, {Query{Namespace: "ns", Own: true}, true, false}, {Query{Namespace: "n"}, false, true},
		{Query{Own: true}, false, true}, {Query{Namespace: "ns", Actor: "len"}, false, false}, {Query{Namespace: "ns", Queue: "q"}, true,
			true},
		{Query{Namespace: "ns", Queue: "a"}, false, false}, {Query{Namespace: "ns", Target: task.Target{Kind: task.OnQueue}}, true, true},
		{Query{Namespace: "ns", Target: task.Target{Kind: task.OnQueue, Name: "a"}}, true, true},
		{Query{Namespace: "ns", Target: task.Target{Name: "b"}}, false, false},
		{Query{Namespace: "ns", Target: task.Target{Kind: "task", Name: "a"}}, false, false}, {Query{Namespace: "ns", Action: "queue.*"},
			true, true}, {Query{Namespace: "ns", Action: "queue."}, false, false}, {Query{Namespace: "ns", Action: "task.*"}, false, false},
		{Query{Namespace: "ns", Action: "queue.put"}, true, true},
	} {
		if own, both := c.q.matches(&e), c.q.matches(&cluster); own != c.own || both != c.both {
			t.Errorf("%+v matches: %t, and of the cluster: %t; want %t and %t", c.q, own, both, c.own, c.both)
		}
	}
}

// A digest tells payloads apart, and says nothing else about them but their length.
func TestDigest(t *testing.T) {
	for payload, want := range map[string]string{"": "", "a": "1 bytes, sha256 ca978112ca1bbdca",
		"abc": "3 bytes, sha256 ba7816bf8f01cfea"} {
		if got := Digest([]byte(payload)); got != want {
			t.Errorf("Digest(%q) = %q, want %q", payload, got, want)
		}
	}
}
