package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var me = Identity{Cluster: [16]byte{1}, Replica: 1, Shard: 7}

// seeds returns how many seeds a model tries: a sixth with -short. Many seeds find a wrong decision, but a few suffice for races.
func seeds(many uint64) uint64 {
	if testing.Short() {
		return (many + 5) / 6
	}
	return many
}

func open(t testing.TB, fs vfs.FS, id Identity) *Store {
	t.Helper()
	s, err := Open(Config{Dir: "state", FS: fs, Identity: id, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// round applies writes "key=value", "-key" and "-from:to" as the next entry.
func round(t testing.TB, s *Store, writes ...string) {
	t.Helper()
	at := s.Applied()
	tx := s.Begin(at.Time+1, at.Index+1)
	defer tx.Close()
	write(tx, writes...)
	if err := s.Apply(Position{Index: at.Index + 1, Term: 3, Time: tx.Now(), Conf: []byte("conf")}, tx.Seal(nil)); err != nil {
		t.Fatal(err)
	}
}

func write(tx *Tx, writes ...string) {
	for _, w := range writes {
		key, value, set := strings.Cut(w, "=")
		from, to, all := strings.Cut(strings.TrimPrefix(key, "-"), ":")
		switch {
		case set:
			tx.Set([]byte(key), []byte(value))
		case all:
			tx.DeleteRange([]byte(from), []byte(to))
		default:
			tx.Delete([]byte(from))
		}
	}
}

func rows(r Reader) (all []string) {
	r.Scan([]byte("a"), []byte("z"), func(k, v []byte) bool {
		all = append(all, fmt.Sprintf("%s=%s", k, v))
		return true
	})
	return all
}

func TestTxSeesItsOwnWrites(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	round(t, s, "a1=1", "a2=2", "a3=3")
	tx := s.Begin(10, 2)
	defer tx.Close()
	write(tx, "a2=20", "-a3", "b1=3", "b2=5", "-b1:b3", "b1=4")
	if got := strings.Join(rows(tx), " "); got != "a1=1 a2=20 b1=4" {
		t.Errorf("the Tx sees %s, want a1=1 a2=20 b1=4", got)
	}
	if got := strings.Join(rows(s), " "); got != "a1=1 a2=2 a3=3" {
		t.Errorf("before the Tx was applied the store has %s, want a1=1 a2=2 a3=3", got)
	}
	if _, ok := tx.Get([]byte("a3")); ok {
		t.Error("Get found a deleted row")
	}
	var each []string
	keys := [][]byte{[]byte("a1"), []byte("a11"), []byte("a3"), []byte("b1")}
	tx.GetEach(keys, func(i int, v []byte) { each = append(each, fmt.Sprintf("%d %s", i, v)) })
	if got := strings.Join(each, "; "); got != "0 1; 3 4" {
		t.Errorf("GetEach = %s, want 0 1; 3 4", got)
	}
	if key, _, ok := tx.First([]byte("a11"), []byte("z")); !ok || string(key) != "a2" {
		t.Errorf("First = %q, %t, want a2", key, ok)
	}
	var back []string
	tx.ScanBack([]byte("a"), []byte("z"), func(k, _ []byte) bool { back = append(back, string(k)); return len(back) < 2 })
	if fmt.Sprint(back) != "[b1 a2]" {
		t.Errorf("ScanBack = %q, want b1 and a2", back)
	}
}

// GetRuns returns the rows of the keys that have one, and which of them are apart from the one before, whatever was deleted in between.
func TestGetRuns(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := open(t, vfs.NewMem(), me)
		name := func(i int) string { return "t" + string(rune('a'+i)) }
		some := func() (writes []string) {
			for range rng.IntN(20) {
				switch at := rng.IntN(20); rng.IntN(4) {
				case 0:
					writes = append(writes, "-"+name(at))
				case 1:
					writes = append(writes, "-"+name(at)+":"+name(at+rng.IntN(4)+1))
				default:
					writes = append(writes, name(at)+"="+fmt.Sprint(rng.IntN(10)))
				}
			}
			return writes
		}
		round(t, s, some()...)
		tx := s.Begin(TimeOf(noon), 2)
		write(tx, some()...)
		wanted := map[string]bool{}
		var keys [][]byte
		for i := range 20 {
			if rng.IntN(3) > 0 {
				keys, wanted[name(i)] = append(keys, []byte(name(i))), true
			}
		}
		var want, got []string
		apart := false
		for _, row := range rows(tx) {
			if !wanted[row[:2]] {
				apart = apart || len(keys) > 0 && row[:2] > string(keys[0])
				continue
			}
			want, apart = append(want, fmt.Sprint(row, apart)), false
		}
		tx.GetRuns(keys, func(i int, v []byte, apart bool) { got = append(got, fmt.Sprint(string(keys[i])+"="+string(v), apart)) })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d: with rows %q, GetRuns(%q) = %q, want %q", seed, rows(tx), keys, got, want)
		}
		tx.Close()
		_ = s.Close()
	}
}

// A round applied with ApplyTx leaves the same state as its sealed bytes do on another replica.
func TestApplyTx(t *testing.T) {
	leader, follower := open(t, vfs.NewMem(), me), open(t, vfs.NewMem(), me)
	defer leader.Close()
	defer follower.Close()
	for i, writes := range [][]string{{"a1=1", "a2=2", "b=3"}, {"a2=20", "-b", "-a1", "a1=4", "c="}, {}, {"-c", "c=5"},
		{"a9=6", "-a1:a9", "a2=7"}, {"-a:a3"}} {
		at := Position{Index: uint64(i) + 1, Term: 3, Time: TimeOf(noon), Conf: []byte("conf")}
		tx := leader.Begin(TimeOf(noon), at.Index)
		write(tx, writes...)
		entry := tx.Seal(nil)
		wrong := at
		wrong.Index++
		if err := leader.ApplyTx(wrong, tx); err == nil {
			t.Error("a round was applied at another index than its own")
		}
		if err := errors.Join(leader.ApplyTx(at, tx), follower.Apply(at, entry)); err != nil {
			t.Fatal(err)
		}
		tx.Close()
		if l, f := strings.Join(rows(leader), " "), strings.Join(rows(follower), " "); l != f {
			t.Errorf("after round %d the leader has %s, the follower %s", i, l, f)
		}
		if l, f := leader.Applied(), follower.Applied(); l.Index != f.Index || l.Term != f.Term || l.Time != f.Time {
			t.Errorf("after round %d the leader is at %+v, the follower at %+v", i, l, f)
		}
	}
}

func TestSnapshotStands(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	round(t, s, "a=1")
	snap := s.Snapshot()
	defer snap.Close()
	round(t, s, "a=2", "b=3")
	if got := strings.Join(rows(snap), " "); got != "a=1" {
		t.Errorf("the snapshot has %s, want a=1", got)
	}
}

// After a power loss the state is as after some applied entry, at least the one that Durable returned, and the position
// says which.
func TestPowerLossLeavesAPrefix(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		s := open(t, fs, me)
		history := []string{""}
		durable := Position{}
		for range 30 {
			round(t, s, fmt.Sprintf("k%d=%d", rng.IntN(10), rng.IntN(100)), fmt.Sprintf("-k%d", rng.IntN(10)))
			history = append(history, strings.Join(rows(s), " "))
			if rng.IntN(8) == 0 {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if durable, err = s.Durable(); err != nil {
				t.Fatal(err)
			}
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, after, me)
		at := s.Applied()
		if at.Index < durable.Index {
			t.Errorf("seed %d: entry %d was durable, but after the power loss the state is at %d", seed, durable.Index, at.Index)
		}
		if got := strings.Join(rows(s), " "); got != history[at.Index] {
			t.Errorf("seed %d: at entry %d the state is %q, want %q", seed, at.Index, got, history[at.Index])
		}
		if at.Index > 0 && (at.Term != 3 || string(at.Conf) != "conf" || at.Time != Time(at.Index)) {
			t.Errorf("seed %d: the position is %+v", seed, at)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power loss never loses a store, even if it keeps a name but not an earlier one in the same directory.
func TestPowerLossKeepsAnyNames(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := open(t, mem, me)
	round(t, s, "a=1")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var left []*vfs.MemFS
	s = open(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		for seed := range uint64(4) {
			left = append(left, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50,
				RNG: rand.New(rand.NewPCG(uint64(len(left)), seed))}))
		}
		return nil
	})), me)
	round(t, s, "b=2")
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	for n, fs := range left {
		again, err := Open(Config{Dir: "state", FS: fs, Identity: me, MustExist: true})
		if err != nil {
			t.Fatalf("power loss %d of %d: %v", n, len(left), err)
		}
		if v, ok := again.Get([]byte("a")); !ok || string(v) != "1" {
			t.Errorf("power loss %d of %d: the row is %q, %v", n, len(left), v, ok)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each table has its own files, after a flush and after a compaction.
func TestTablesShareNoFile(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	files := func() (n int) {
		levels, err := s.db.SSTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range levels {
			for _, f := range level {
				n++
				if from, to := f.Smallest.UserKey, f.Largest.UserKey; from[0] != to[0] {
					t.Errorf("a file has rows from %q to %q, of more than one table", from, to)
				}
			}
		}
		return n
	}
	for i := range 3 {
		round(t, s, fmt.Sprintf("a%d=1", i), fmt.Sprintf("e%d=1", i), fmt.Sprintf("f%d=1", i), fmt.Sprintf("\xff%d=1", i))
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := files(); n < 5 { // the store's own rows are a table too; some may be compacted by now
		t.Errorf("%d files after three flushes, want at least 5", n)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff, 0xff}, false); err != nil {
		t.Fatal(err)
	}
	if n := files(); n != 5 {
		t.Errorf("%d files after a compaction, want 5", n)
	}
}

func TestApplyRefuses(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	round(t, s, "a=1")
	tx := s.Begin(1, 2)
	defer tx.Close()
	tx.Set([]byte("a"), []byte("2"))
	good := tx.Seal(nil)
	own := s.Begin(1, 2)
	defer own.Close()
	own.Set(positionKey, []byte("x"))
	sealed := func(lo, hi string) []byte {
		tx := s.Begin(1, 2)
		defer tx.Close()
		tx.DeleteRange([]byte(lo), []byte(hi))
		return tx.Seal(nil)
	}
	span := sealed("a1", "a2")
	for name, entry := range map[string][]byte{
		"a range of own rows":        sealed(string(positionKey), "\x00z"),
		"a range that ends too soon": sealed("a2", "a1"),
		"a range of nothing":         sealed("a", "a"),
		"a range cut short":          span[:len(span)-1],
		"cut short":                  good[:len(good)-1],
		"too short":                  good[:5],
		"wrong count":                append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 9}, good[9:]...),
		"own row":                    own.Seal(nil),
	} {
		if err := s.Apply(Position{Index: 2, Term: 1}, entry); err == nil {
			t.Errorf("an entry that is %s was applied", name)
		}
	}
	if err := s.Apply(Position{Index: 1, Term: 1}, good); err == nil {
		t.Error("an entry was applied twice")
	}
	if got := strings.Join(rows(s), " "); got != "a=1" || s.Applied().Index != 1 {
		t.Errorf("after refused entries the state is %s at entry %d, want a=1 at 1", got, s.Applied().Index)
	}
}

func TestIdentity(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, me)
	round(t, s, "a=1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, other := range []Identity{{Cluster: [16]byte{2}, Replica: 1, Shard: 7}, {Cluster: [16]byte{1}, Replica: 2, Shard: 7},
		{Cluster: [16]byte{1}, Replica: 1, Shard: 8}} {
		if _, err := Open(Config{Dir: "state", FS: fs, Identity: other}); !errors.Is(err, ErrIdentity) {
			t.Errorf("Open as %+v: %v, want ErrIdentity", other, err)
		}
	}
	s = open(t, fs, me)
	defer s.Close()
}

func FuzzApply(f *testing.F) {
	s := open(f, vfs.NewMem(), me)
	tx := s.Begin(1, 1)
	tx.Set([]byte("a"), []byte("1"))
	tx.Delete([]byte("b"))
	f.Add(tx.Seal(nil))
	f.Add([]byte{})
	tx.Close()
	f.Fuzz(func(t *testing.T, entry []byte) {
		given := bytes.Clone(entry)
		at := s.Applied()
		_ = s.Apply(Position{Index: at.Index + 1, Term: 1}, entry) // any result, but no panic
		if !bytes.Equal(given, entry) {
			t.Error("Apply changed the entry, which the log owns")
		}
	})
}

func FuzzDecodeRows(f *testing.F) {
	f.Add(encodePosition(Position{Index: 1, Term: 2, Time: 3, Conf: []byte("c")}))
	f.Add(encodeIdentity(me))
	f.Fuzz(func(t *testing.T, row []byte) {
		if p, err := decodePosition(row); err == nil {
			if again, err := decodePosition(encodePosition(p)); err != nil || again.Index != p.Index || again.Time != p.Time {
				t.Errorf("%+v was decoded again as %+v: %v", p, again, err)
			}
		}
		if id, err := decodeIdentity(row); err == nil && !bytes.Equal(encodeIdentity(id), row) {
			t.Errorf("identity %+v has two encodings", id)
		}
	})
}

// A reopened store continues to compact its tables: with 40 sublevels in L0 it would accept no more writes.
func TestTablesAreMerged(t *testing.T) {
	fs := vfs.NewMem()
	for range 2 {
		s := open(t, fs, me)
		for i := range 60 {
			round(t, s, fmt.Sprintf("a=%d", i), "b=1")
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.db.Metrics().Compact.Count; n == 0 {
			t.Error("no compaction ran")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A read whose callback panics keeps no files: Close would report an iterator that is still open.
func TestPanickingReadEnds(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	round(t, s, "k=v")
	tx := s.Begin(1, 2)
	keys := [][]byte{[]byte("k")}
	for what, read := range map[string]func(){
		"Scan":     func() { tx.Scan([]byte("a"), []byte("z"), func(_, _ []byte) bool { panic(t) }) },
		"ScanBack": func() { tx.ScanBack([]byte("a"), []byte("z"), func(_, _ []byte) bool { panic(t) }) },
		"GetEach":  func() { tx.GetEach(keys, func(int, []byte) { panic(t) }) },
		"GetRuns":  func() { tx.GetRuns(keys, func(int, []byte, bool) { panic(t) }) },
	} {
		func() {
			defer func() {
				if recover() != t {
					t.Errorf("%s did not pass the panic on", what)
				}
			}()
			read()
		}()
	}
	tx.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
