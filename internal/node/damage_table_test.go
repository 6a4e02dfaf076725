package node

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
)

// files are the contents of a data directory, by path.
type files map[string]string

// parts are the parts of a directory that can be lost one without the others, and how their files' names begin.
var dirParts = []struct{ name, prefix string }{
	{"segments", "raft/log/"}, {"marks", "raft/marks"}, {"shard 0", "shard-0000"}, {"shard 1", "shard-0001"}, {"map", datadir.MapFile},
	{"identity", datadir.IdentityFile},
}

// What can happen to a part.
const (
	whole = iota
	missing
	earlier // from an earlier copy
	strange // another node's
	spoilt
	fates
)

var fateNames = [fates]string{"", "missing", "earlier", "foreign", "damaged"}

// damageCase says what has happened to each part.
type damageCase [6]int

func (c damageCase) String() string {
	var out []string
	for i, fate := range c {
		if fate != whole {
			out = append(out, dirParts[i].name+" "+fateNames[fate])
		}
	}
	return strings.Join(out, ", ")
}

// all reports whether all of the parts have met with a fate.
func (c damageCase) all(fate int, of ...int) bool {
	return !slices.ContainsFunc(of, func(i int) bool { return c[i] != fate })
}

// damageCases returns every subset of the parts with one fate for all of them, and every pair with two; in short runs every eleventh of
// these: the race detector sees the same goroutines in each.
func damageCases() (all []damageCase) {
	for fate := missing; fate < fates; fate++ {
		for subset := 1; subset < 1<<len(dirParts); subset++ {
			var c damageCase
			for i := range dirParts {
				if subset&(1<<i) != 0 {
					c[i] = fate
				}
			}
			all = append(all, c)
		}
		for other := missing; other < fates; other++ {
			for i := range dirParts {
				for j := range dirParts {
					if i != j && fate != other {
						var c damageCase
						c[i], c[j] = fate, other
						all = append(all, c)
					}
				}
			}
		}
	}
	if testing.Short() {
		n := -1
		all = slices.DeleteFunc(all, func(damageCase) bool { n++; return n%11 > 0 })
	}
	return all
}

// histories are the copies of a directory that the cases are made of.
type histories struct {
	now, earlier, foreign files
	name, cluster         string
	reach                 map[uint32]uint64 // the last entry of each shard, now
	tasks                 []string          // that it has
}

// apply returns the directory of a case.
func (h *histories) apply(c damageCase) files {
	out := files{}
	for i, p := range dirParts {
		from := [fates]files{whole: h.now, earlier: h.earlier, strange: h.foreign, spoilt: h.now}[c[i]]
		for name, text := range from {
			if !strings.HasPrefix(name, p.prefix) {
				continue
			}
			if c[i] == spoilt {
				b := []byte(text)
				for at := 0; at < len(b); at += 512 {
					b[at+min(20, len(b)-at-1)] ^= 0x10
				}
				text = string(b)
			}
			out[name] = text
		}
	}
	return out
}

// readFiles reads a directory, except for locks and what no start depends on.
func readFiles(t *testing.T, dir string) files {
	t.Helper()
	out := files{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || e.IsDir() || e.Name() == datadir.LockFile || !slices.ContainsFunc(dirParts,
			func(p struct{ name, prefix string }) bool {
				return strings.HasPrefix(name, p.prefix)
			}) {
			return err
		}
		b, err := os.ReadFile(path)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// write creates the files in a directory in memory.
func (f files) write(t *testing.T, dir string) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range f {
		path := filepath.Join(dir, name)
		err := mem.MkdirAll(filepath.Dir(path), 0o700)
		var file vfs.File
		if err == nil {
			file, err = mem.Create(path, vfs.WriteCategoryUnspecified)
		}
		if err == nil {
			_, err = file.Write([]byte(text))
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// memFiles reads a directory in memory, except for locks.
func memFiles(t *testing.T, mem *vfs.MemFS, dir, prefix string, out files) {
	t.Helper()
	names, err := mem.List(filepath.Join(dir, prefix))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		name := filepath.Join(prefix, n)
		f, err := mem.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		switch {
		case err != nil:
		case info.IsDir():
			memFiles(t, mem, dir, name, out)
		case n != datadir.LockFile:
			var b []byte
			b, err = io.ReadAll(f)
			out[name] = string(b)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// The ways in which a start may end.
const (
	heals   = "heals by itself"
	refuses = "refuses"
	starts  = "starts with everything"
	isNew   = "starts as a new node"
	other   = "starts as the other node"
	forgets = "starts with less"

	rejoinsOther = "rejoins the other node's cluster"
)

// verdict starts a node in a directory as far as it only reads, and returns how the start would end.
func (h *histories) verdict(t *testing.T, c damageCase, dir string, member bool) string {
	t.Helper()
	before := h.apply(c)
	mem := before.write(t, dir)
	cfg := Config{Dir: dir, fs: mem, Name: h.name, Logger: slog.New(slog.DiscardHandler)}
	n := &Node{cfg: cfg}
	if member {
		cfg.PeerListener = pipe{}
		n.cfg = cfg
	}
	damage, err := n.openDir()
	if err == nil {
		err = damage
	}
	if err == nil && !n.dir.Identity.Read().Member() {
		_ = n.close(0)
		return isNew
	}
	if err == nil {
		err = n.checkReplicas(t.Context())
	}
	if err == nil {
		err = n.bootstrap.findMap(t.Context())
	}
	out := starts
	switch {
	case err == nil && n.ClusterID() != h.cluster:
		out = other
	case err == nil:
		for id, last := range h.reach {
			if n.replicas.checked[id].last < last {
				out = forgets
			}
		}
		if out == forgets && member { // the others know
			err = &DamageError{What: "log"}
		}
	}
	if err != nil {
		switch of := cmp.Or(n.ClusterID(), n.bootstrap.of); {
		case !member || !n.bootstrap.replaceable(t.Context(), err):
			out = refuses
		case of != h.cluster:
			out = rejoinsOther
		default:
			out = heals
		}
	}
	if err := n.close(0); err != nil {
		t.Errorf("%v: close: %v", c, err)
	}
	after := files{}
	memFiles(t, mem, dir, "", after)
	if !maps.Equal(before, after) {
		t.Errorf("%v: %s, and has changed %q to %q", c, out, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	return out
}

// small makes the logs of nodes small, so that directories can be copied quickly.
func small(t *testing.T) {
	before := segmentSize
	segmentSize = 64 << 10
	t.Cleanup(func() { segmentSize = before })
}

// single returns the histories of a standalone node.
func single(t *testing.T) *histories {
	h := &histories{name: DefaultName, reach: map[uint32]uint64{}}
	synctest.Test(t, func(t *testing.T) { // no time passes, so no log is cut
		dir, other := t.TempDir(), t.TempDir()
		for i := range 3 {
			s := start(t, Config{Dir: dir})
			for range 3 {
				id, _ := enqueue(t, s.client(), "mail")
				h.tasks = append(h.tasks, id)
			}
			for id := range uint32(2) {
				if i < 2 { // the rest is only in the log
					if err := s.replicas.get(id).state.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				h.reach[id] = s.replicas.get(id).state.Applied().Index
			}
			h.cluster = s.ClusterID()
			s.end()
			if i == 0 {
				h.earlier = readFiles(t, dir)
			}
		}
		h.now = readFiles(t, dir)
		start(t, Config{Dir: other}).end()
		h.foreign = readFiles(t, other)
	})
	return h
}

// ofThree returns the histories of a member of three.
func ofThree(t *testing.T) *histories {
	h := &histories{name: "n3", reach: map[uint32]uint64{}}
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := w.grow()["n3"]
		for i := range 2 {
			enqueue(t, w.nodes["n2"].client(), "mail")
			pass(time.Minute)
			s := w.nodes["n3"]
			for id := range uint32(2) {
				if err := s.replicas.get(id).state.Flush(); err != nil {
					t.Fatal(err)
				}
				h.reach[id] = s.replicas.get(id).state.Applied().Index
			}
			h.cluster = s.ClusterID()
			w.crash("n3")
			if i == 0 {
				h.earlier = readFiles(t, dir)
				w.start("n3", dir)
				w.until("three voters each", w.replicated(3))
			}
		}
		h.now = readFiles(t, dir)
	})
	other := t.TempDir()
	s := start(t, Config{Dir: other, Name: "n3"})
	_, m := members.Saved(&datadir.Dir{FS: h.now.write(t, other), Path: other}) // as if it were one of three, too
	cluster := s.ClusterID()
	s.end() // it saves maps, too
	if err := members.Save(s.dir, cluster, m); err != nil {
		t.Fatal(err)
	}
	h.foreign = files{}
	for name, text := range readFiles(t, other) {
		for _, p := range dirParts { // the directories of states are named after their replicas
			if rest, ok := strings.CutPrefix(name, p.prefix+"/"); ok {
				name = h.stateDir(p.prefix) + "/" + rest
			}
		}
		h.foreign[name] = text
	}
	return h
}

// stateDir returns the directory whose name begins like this.
func (h *histories) stateDir(prefix string) string {
	for name := range h.now {
		if strings.HasPrefix(name, prefix) {
			return filepath.Dir(name)
		}
	}
	return ""
}

// Whatever parts of a directory are missing, earlier, another node's or damaged, one alone, all subsets alike and all pairs: a standalone
// node starts with everything, or refuses and changes nothing, so that the parts can be put back.
func TestDamageTableOfOne(t *testing.T) {
	small(t)
	h := single(t)
	dir := t.TempDir()
	if got := h.verdict(t, damageCase{}, dir, false); got != starts {
		t.Fatalf("undamaged, it %s", got)
	}
	for _, c := range damageCases() {
		got := h.verdict(t, c, dir, false)
		c.checkByPart(t, 0, got)
		ok := got == refuses
		switch {
		case c.all(missing, 0, 1, 2, 3, 4, 5):
			ok = got == isNew
		case c.all(strange, 0, 1, 2, 3, 5):
			ok = got == other
		case c.all(earlier, 0, 1, 2, 3): // nothing here can tell
			ok = got == forgets
		case got == starts:
			ok = h.startsWithEverything(t, c)
		}
		if !ok {
			t.Errorf("%v: it %s", c, got)
		}
	}
}

// startsWithEverything starts a standalone node in the directory of a case, and reports whether it has all tasks.
func (h *histories) startsWithEverything(t *testing.T, c damageCase) bool {
	t.Helper()
	dir := t.TempDir()
	s, err := tryStart(t, Config{Dir: dir, fs: h.apply(c).write(t, dir)})
	if err != nil {
		t.Errorf("%v: %v", c, err)
		return false
	}
	defer s.end()
	client := s.client()
	for _, id := range h.tasks {
		if _, err := client.Task(t.Context(), id); err != nil {
			t.Errorf("%v: task %s: %v", c, id, err)
		}
	}
	_, err = client.Enqueue(t.Context(), pawl.RawTask{Type: "job"})
	return err == nil
}

// A member of three also heals by itself, if it knows the others. It never runs with less than it had.
func TestDamageTableOfThree(t *testing.T) {
	small(t)
	h := ofThree(t)
	dir := t.TempDir()
	if got := h.verdict(t, damageCase{}, dir, true); got != starts {
		t.Fatalf("undamaged, it %s", got)
	}
	for _, c := range damageCases() {
		got := h.verdict(t, c, dir, true)
		c.checkByPart(t, 1, got)
		ok := got == refuses || got == heals || got == starts
		switch {
		case c.all(missing, 0, 1, 2, 3, 4, 5):
			ok = got == isNew
		case c.all(strange, 0, 1, 5): // it is the directory of the other node
			ok = got == refuses || got == rejoinsOther
		}
		if !ok {
			t.Errorf("%v: it %s", c, got)
		}
	}
}

// byPart is what becomes of a standalone node, and of a member, if only one part has met with a fate.
var byPart = [...][2][fates]string{
	{{"", refuses, refuses, refuses, refuses}, {"", heals, heals, refuses, heals}}, // segments
	{{"", refuses, starts, refuses, refuses}, {"", heals, starts, refuses, heals}}, // marks
	{{"", refuses, starts, refuses, refuses}, {"", heals, starts, refuses, heals}}, // shard 0
	{{"", refuses, starts, refuses, refuses}, {"", heals, starts, refuses, heals}}, // shard 1
	{{"", starts, starts, starts, starts}, {"", starts, starts, starts, starts}},   // map
	{{"", refuses, starts, refuses, refuses}, {"", heals, starts, refuses, heals}}, // identity
}

// checkByPart compares what becomes of a case with byPart, if the case has one part.
func (c damageCase) checkByPart(t *testing.T, member int, got string) {
	t.Helper()
	hit := -1
	for i, fate := range c {
		switch {
		case fate != whole && hit >= 0:
			return
		case fate != whole:
			hit = i
		}
	}
	if want := byPart[hit][member][c[hit]]; got != want {
		t.Errorf("%v: it %s, want: %s", c, got, want)
	}
}
