package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// shelf holds the files of a state that was closed, and its rows after each entry.
type shelf struct {
	t     *testing.T
	files map[string][]byte
	rows  []string
}

// wornShelf returns a state of several tables on several levels, with rows hidden by later ones.
func wornShelf(t *testing.T) *shelf {
	mem := vfs.NewMem()
	s := open(t, mem, me)
	w := &shelf{t: t, files: map[string][]byte{}, rows: []string{""}}
	for i := range 6 {
		for k := range 12 {
			round(t, s, fmt.Sprintf("%c%02d=%d%s", 'a'+rune(k%3), (i*5+k)%17, i, strings.Repeat(string(rune('a'+k)), 300)),
				fmt.Sprintf("-b%02d", (i+k)%17))
			w.rows = append(w.rows, strings.Join(rows(s), " "))
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			s.compact(t)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("state")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := mem.Open(path.Join("state", name))
		if err != nil {
			t.Fatal(err)
		}
		if w.files[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return w
}

func (s *Store) compact(t *testing.T) {
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff, 0xff}, false); err != nil {
		t.Fatal(err)
	}
}

// put creates a disk with the given files.
func put(t *testing.T, files map[string][]byte) *vfs.MemFS {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("state", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		f, err := mem.Create(path.Join("state", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		// Under the race detector Pebble changes what it has written, to find who keeps it.
		if _, err := f.Write(bytes.Clone(content)); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return mem
}

// outcome is the effect of damage to a state. older means that the state went back to an earlier entry: the log has the entries
// after that one, or notices that it does not.
type outcome string

const (
	unnoticed outcome = "unnoticed"
	older     outcome = "older"
	refused   outcome = "refused"
	stopped   outcome = "stopped"
)

// play opens a state whose files were changed, reads all of it and compacts all its tables, and returns the effect of the change.
// Every error must be reported as damage.
func (w *shelf) play(what string, change func(files map[string][]byte)) outcome {
	w.t.Helper()
	files := maps.Clone(w.files)
	change(files)
	var mu sync.Mutex
	var fatal error
	s, err := Open(Config{Dir: "state", FS: put(w.t, files), Identity: me, MustExist: true, Fatal: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		fatal = err
	}})
	if err != nil {
		w.mustBeDamage(what, err)
		return refused
	}
	defer s.Close()
	got, err := s.readAll()
	at := int(s.Applied().Index) // #nosec G115 -- a few
	if err == nil {
		if got != w.rows[at] {
			w.t.Errorf("%s: at entry %d the state has %d bytes of rows, want %d, and no error was reported", what, at,
				len(got), len(w.rows[at]))
		}
		err = s.db.Compact(w.t.Context(), []byte{0}, []byte{0xff, 0xff}, false)
	}
	mu.Lock()
	defer mu.Unlock()
	if fatal != nil {
		w.mustBeDamage(what, fatal)
		return stopped
	}
	if err != nil {
		w.t.Errorf("%s: reading failed with %v, which was not reported to Fatal", what, err)
	}
	if at < len(w.rows)-1 {
		return older
	}
	return unnoticed
}

// readAll reads all rows, and returns the error that would end a replica.
func (s *Store) readAll() (all string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(*Failure)
		}
	}()
	return strings.Join(rows(s), " "), nil
}

func (w *shelf) mustBeDamage(what string, err error) {
	w.t.Helper()
	var damage *ondisk.DamageError
	if !errors.Is(err, ondisk.ErrDamaged) || !errors.As(err, &damage) || !strings.HasPrefix(damage.File, "state") || damage.Reason == "" ||
		strings.Contains(err.Error(), "\n") {
		w.t.Errorf("%s: %v, want one line that names what is damaged", what, err)
	}
}

// A single flipped bit, anywhere in any file of a state, is reported as damage when the state is opened, read or compacted, or is
// harmless.
func TestFlippedBitIsNoticed(t *testing.T) {
	w := wornShelf(t)
	if f := w.play("nothing flipped", func(map[string][]byte) {}); f != unnoticed {
		t.Fatalf("with no bit flipped the state is %s", f)
	}
	kinds := map[string]map[outcome]int{}
	flips := 0
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		content, outcomes := w.files[name], map[outcome]int{}
		for at := 0; at < len(content); at += stride {
			at, bit := min(at+flips%64, len(content)-1), flips%8
			flips++
			outcomes[w.play(fmt.Sprintf("bit %d of byte %d of %d in %q flipped", bit, at, len(content), name),
				func(files map[string][]byte) {
					spoilt := slices.Clone(content)
					spoilt[at] ^= 1 << bit
					files[name] = spoilt
				})]++
		}
		kinds[name] = outcomes
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Log(name, len(w.files[name]), kinds[name])
		if strings.HasSuffix(name, ".sst") && kinds[name][unnoticed] > 3 { // in its footer, which is redundant
			t.Errorf("%q: %d flipped bits had the effects %v, too many unnoticed", name, len(w.files[name])/stride, kinds[name])
		}
		// Pebble checks some of it when it opens the store
		if f := kinds[name]; strings.HasPrefix(name, "OPTIONS-") && f[older]+f[stopped] > 0 {
			t.Errorf("%q, which holds no data, had the effects %v", name, kinds[name])
		}
	}
}

// A missing, empty or truncated file is reported as damage, too.
func TestLostFileIsNoticed(t *testing.T) {
	w := wornShelf(t)
	for name, content := range w.files {
		t.Log(name, "missing:", w.play(fmt.Sprintf("%q is missing", name), func(files map[string][]byte) { delete(files, name) }))
		for n := 0; n < len(content); n += max(1, len(content)/20) {
			w.play(fmt.Sprintf("%q is cut to %d of %d bytes", name, n, len(content)), func(files map[string][]byte) {
				files[name] = content[:n]
			})
		}
	}
	if f := w.play("all are missing", func(files map[string][]byte) { clear(files) }); f != refused {
		t.Errorf("with all files missing the state is %s, want it refused", f)
	}
	if f := w.play("only the lock is left", func(files map[string][]byte) {
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return name != "LOCK" })
	}); f != refused {
		t.Errorf("with only the lock file the state is %s, want it refused", f)
	}
}

// Damage that occurs while a state is open ends every kind of read that meets it, and is reported once.
func TestDamageWhileOpen(t *testing.T) {
	for name, read := range map[string]func(s *Store){
		"get":       func(s *Store) { s.Get([]byte("a1")) },
		"scan":      func(s *Store) { rows(s) },
		"scan back": func(s *Store) { s.ScanBack([]byte("a"), []byte("z"), func(_, _ []byte) bool { return true }) },
		"get each":  func(s *Store) { s.GetEach([][]byte{[]byte("a1"), []byte("b1")}, func(int, []byte) {}) },
		"a snapshot": func(s *Store) {
			snap := s.Snapshot()
			defer snap.Close()
			_ = snap.WriteImage(io.Discard)
		},
		"merge": func(s *Store) { _ = s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			reported := make(chan error, 9)
			s, err := Open(Config{Dir: "state", FS: mem, Identity: me, Fatal: func(err error) { reported <- err }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			round(t, s, "a1=1", "b1=2")
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			table := spoilTables(t, mem)
			func() {
				defer func() {
					var f *Failure
					if p := recover(); name != "merge" && (p == nil || !errors.As(p.(error), &f) || !errors.Is(f, ondisk.ErrDamaged)) {
						t.Errorf("the read ended with %v, want a failure due to damage", p)
					}
				}()
				read(s)
			}()
			var damage *ondisk.DamageError
			if said := <-reported; len(reported) > 0 || !errors.As(said, &damage) || !strings.HasSuffix(damage.File, ".sst") {
				t.Errorf("reported %v and %d more, want a single report that a table is damaged, such as %s", said, len(reported), table)
			}
		})
	}
}

// spoilTables flips a bit in the first block of every table of rows.
func spoilTables(t *testing.T, mem *vfs.MemFS) (last string) {
	names, err := mem.List("state")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		last = name
		f, err := mem.OpenReadWrite(path.Join("state", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, 10); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x10
		if _, err := f.WriteAt(b, 10); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return last
}

// Values of overwritten rows that a snapshot still sees may be stored separately in a table. If one can't be read, no other value is
// returned instead.
func TestUnreadableOlderValue(t *testing.T) {
	mem := vfs.NewMem()
	s, err := Open(Config{Dir: "state", FS: mem, Identity: me})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 1)) // incompressible, so that it can be found
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'a' + byte(rng.IntN(26)) // #nosec G115 -- below 26
	}
	round(t, s, "a1="+string(long), "a2="+string(long[100:]))
	snap := s.Snapshot()
	defer snap.Close()
	round(t, s, "a1=2", "a2=2")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	names, _ := mem.List("state")
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			spoilWord(t, mem, path.Join("state", name), string(long[:20]))
		}
	}
	defer func() {
		if p := recover(); p == nil {
			t.Error("the read did not fail")
		}
	}()
	snap.GetEach([][]byte{[]byte("a1"), []byte("a2")}, func(i int, value []byte) {
		if string(value) != string(long[100*i:]) {
			t.Errorf("row %d was read as %q", i, value)
		}
	})
}

// spoilWord changes the first occurrence of a word in a file.
func spoilWord(t *testing.T, mem *vfs.MemFS, file, word string) {
	f, err := mem.OpenReadWrite(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if at := strings.Index(string(b), word); at >= 0 {
		if _, err := f.WriteAt([]byte{'y'}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
}

// A state written by a newer release is not damage.
func TestNewerFormatIsNotDamage(t *testing.T) {
	w := wornShelf(t)
	w.files["marker.format-version.000099.999"] = nil
	_, err := Open(Config{Dir: "state", FS: put(t, w.files), Identity: me})
	if err == nil || errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), "format 999") {
		t.Errorf("Open = %v, want an error about format 999 that is not damage", err)
	}
}

// TestOpenOnAFullDisk: where Pebble would exit the process because it can't write while it opens, Open returns an error.
func TestOpenOnAFullDisk(t *testing.T) {
	for _, file := range []string{"marker.manifest", "MANIFEST"} {
		full := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, file) {
				return syscall.ENOSPC
			}
			return nil
		})
		s, err := Open(Config{Dir: "state", FS: errorfs.Wrap(vfs.NewMem(), full)})
		if err == nil {
			t.Errorf("no room for %q: Open succeeded, and Close returned %v", file, s.Close())
			continue
		}
		if !strings.Contains(err.Error(), "no space left on device") || errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("no room for %q: %v, want an error about space, and no damage", file, err)
		}
	}
}

// A table truncated while it is open is damaged.
func TestShortTableIsDamage(t *testing.T) {
	var short atomic.Bool
	fs := errorfs.Wrap(put(t, wornShelf(t).files), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if short.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt {
			return io.EOF
		}
		return nil
	}))
	reported := make(chan error, 9)
	s, err := Open(Config{Dir: "state", FS: fs, Identity: me, Fatal: func(err error) { reported <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	short.Store(true)
	if _, err := s.readAll(); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), `state "state" is damaged`) {
		t.Errorf("readAll: %v, want damage", err)
	}
	if said := <-reported; !errors.Is(said, ondisk.ErrDamaged) || len(reported) > 0 {
		t.Errorf("reported %v and %d more, want a single report of damage", said, len(reported))
	}
	short.Store(false)
}

// A disk error when a table is opened is distinguished from damage: the table may be readable the next time.
func TestDiskErrorIsNotDamage(t *testing.T) {
	mem := put(t, wornShelf(t).files)
	var broken atomic.Bool
	failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}))
	cfg := Config{Dir: "state", FS: failing, Identity: me}
	broken.Store(true)
	if _, err := Open(cfg); !errors.Is(err, syscall.EIO) || errors.Is(err, ondisk.ErrDamaged) ||
		strings.Count(err.Error(), "state in") != 1 {
		t.Errorf("Open: %v, want EIO", err)
	}
	broken.Store(false)
	reported := make(chan error, 9)
	cfg.Fatal = func(err error) { reported <- err }
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	broken.Store(true)
	_, err = s.readAll()
	if !errors.Is(err, syscall.EIO) || errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("readAll: %v, want EIO", err)
	}
	if !strings.Contains(err.Error(), "read: ") {
		t.Errorf("the error does not say that it occurred while the state was read: %v", err)
	}
	if said := <-reported; !errors.Is(said, syscall.EIO) || len(reported) > 0 || !strings.HasPrefix(said.Error(), `state in "state": `) {
		t.Errorf("reported %v and %d more, want EIO once", said, len(reported))
	}
	broken.Store(false)
}
