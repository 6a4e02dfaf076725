package store

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// Peek sees what Open sees, also a state that is about to replace the old one, and refuses what Open refuses. It changes nothing.
func TestPeek(t *testing.T) {
	w := wornShelf(t)
	manifest := ""
	for name := range w.files {
		if strings.HasPrefix(name, "MANIFEST-") {
			manifest = name
		}
	}
	with := func(change func(map[string][]byte)) map[string][]byte {
		files := maps.Clone(w.files)
		change(files)
		return files
	}
	for what, c := range map[string]struct {
		files  map[string][]byte
		exists bool // MustExist
		found  bool
		is     error
	}{
		"sound":              {w.files, true, true, nil},
		"damaged options":    {with(func(f map[string][]byte) { f["OPTIONS-000003"] = []byte("[Version") }), true, true, nil},
		"nothing":            {nil, false, false, nil},
		"nothing, though":    {nil, true, false, ondisk.ErrDamaged},
		"no list of tables":  {with(func(f map[string][]byte) { delete(f, manifest) }), false, false, ondisk.ErrDamaged},
		"only a useless one": {map[string][]byte{"x": nil}, false, false, nil},
	} {
		mem := put(t, c.files)
		before := contents(t, mem)
		cfg := Config{Dir: "state", FS: mem, Identity: me, MustExist: c.exists}
		found, err := Peek(cfg, func(s *Store) error {
			if got := strings.Join(rows(s), " "); got != w.rows[len(w.rows)-1] {
				t.Errorf("%s: it has %q, want %q", what, got, w.rows[len(w.rows)-1])
			}
			return nil
		})
		if found != c.found || !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
			t.Errorf("%s: %t, %v, want %t, %v", what, found, err, c.found, c.is)
		}
		if after := contents(t, mem); !maps.Equal(before, after) {
			t.Errorf("%s: it has changed %q to %q", what, before, after)
		}
	}
	if _, err := Peek(Config{Dir: "state", FS: put(t, w.files), Identity: Identity{Replica: 99}}, func(*Store) error {
		return nil
	}); !errors.Is(err, ErrIdentity) {
		t.Errorf("another's state: %v", err)
	}
	mem := put(t, w.files)
	if err := mem.Rename("state", "state.ready"); err != nil {
		t.Fatal(err)
	}
	before := contents(t, mem)
	if found, err := Peek(Config{Dir: "state", FS: mem, Identity: me, MustExist: true}, func(*Store) error { return nil }); !found ||
		err != nil {
		t.Errorf("a state that is ready: %t, %v", found, err)
	}
	if after := contents(t, mem); !maps.Equal(before, after) {
		t.Errorf("a state that is ready: it has changed %q to %q", before, after)
	}
}

// contents returns the contents of all files but the locks, by path.
func contents(t *testing.T, mem *vfs.MemFS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{"state", "state.ready"} {
		names, err := mem.List(dir)
		if err != nil {
			continue
		}
		all[dir] = ""
		for _, name := range names {
			f, err := mem.Open(path.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if name != "LOCK" {
				all[path.Join(dir, name)] = string(b)
			}
		}
	}
	return all
}

// Whatever a crash leaves, Peek refuses it only if Open does, and sees the same.
func TestPeekAfterACrash(t *testing.T) {
	from := source(t)
	image := imageOf(t, from)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewCrashableMem()
	var mu sync.Mutex
	n := 0 // operations
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		for _, unsynced := range []int{0, 50, 100} {
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(uint64(n), 3))})
			var seen Position
			cfg := Config{Dir: "state", FS: left, Identity: me}
			found, peekErr := Peek(cfg, func(s *Store) error { seen = s.Applied(); return nil })
			s, err := Open(cfg)
			if err == nil {
				if at := s.Applied(); peekErr == nil && at.Index != seen.Index {
					t.Errorf("crash before operation %d (kind %d of %s): Peek sees entry %d (found: %t), Open %d", n, op.Kind, op.Path,
						seen.Index, found, at.Index)
				}
				err = s.Close()
			}
			if (err == nil) != (peekErr == nil) {
				t.Errorf("crash before operation %d (kind %d of %s), %d %% kept: Peek says %v, Open %v", n, op.Kind, op.Path,
					unsynced, peekErr, err)
			}
		}
		return nil
	}))
	s := open(t, fs, me)
	round(t, s, "a=1")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs, me)
	round(t, s, "b=1")
	if _, err := s.Stage(bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	if err := s.Switch(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.ClearInstalled(), s.Close()); err != nil {
		t.Fatal(err)
	}
}
