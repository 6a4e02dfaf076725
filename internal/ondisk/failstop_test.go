package ondisk

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// The first write that fails is kept, with its path; neither it nor any later one shows, and nothing is changed from then on.
func TestFailStop(t *testing.T) {
	mem := vfs.NewMem()
	full := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	})}
	s := NewFailStop(errorfs.Wrap(mem, &full))
	write := func(f vfs.File, text string) {
		t.Helper()
		if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("write %q: %d, %v", text, n, err)
		}
	}
	f, err := s.Create("a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	write(f, "before")
	if err := errors.Join(f.Sync(), s.MkdirAll("d", 0o700)); err != nil {
		t.Fatal(err)
	}
	for what, missing := range map[string]error{"remove": NewFailStop(mem).Remove("x"), "rename": s.Rename("x", "y"),
		"link": s.Link("a", "a")} {
		if missing == nil || s.Err() != nil {
			t.Errorf("%s of what is not there, or to what is: %v, failed is %v", what, missing, s.Err())
		}
	}
	full.On()
	write(f, "fails")
	if err := s.Err(); !errors.Is(err, syscall.ENOSPC) || err.Error() != `write "a": no space left on device` {
		t.Errorf("failed is %v", err)
	}
	full.Off() // too late
	write(f, "after")
	for what, err := range map[string]error{"sync": f.Sync(), "data": f.SyncData(), "close": f.Close(), "remove": s.Remove("a"),
		"all": s.RemoveAll("d"), "rename": s.Rename("a", "b"), "link": s.Link("a", "b"), "mkdir": s.MkdirAll("e", 0o700)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, open := range []func() (vfs.File, error){
		func() (vfs.File, error) { return s.Create("c", vfs.WriteCategoryUnspecified) },
		func() (vfs.File, error) { return s.OpenReadWrite("a", vfs.WriteCategoryUnspecified) },
		func() (vfs.File, error) { return s.ReuseForWrite("a", "c", vfs.WriteCategoryUnspecified) },
		func() (vfs.File, error) { return s.OpenDir("e") },
	} {
		f, err := open()
		if err != nil {
			t.Fatal(err)
		}
		write(f, "after")
		if _, err := f.WriteAt([]byte("after"), 0); err != nil {
			t.Error(err)
		}
		if whole, err := f.SyncTo(1); !whole || err != nil {
			t.Errorf("sync to: %v, %v", whole, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := strings.TrimSpace(mem.String()); got != strings.TrimSpace(memWith(t, "before").String()) {
		t.Errorf("it has\n%s", got)
	}
	if s.Err().Error() != `write "a": no space left on device` {
		t.Errorf("failed is %v", s.Err())
	}
}

// memWith returns a file system with a file a and a directory d.
func memWith(t *testing.T, text string) *vfs.MemFS {
	mem := vfs.NewMem()
	put(t, mem, "a", text)
	if err := mem.MkdirAll("d", 0o700); err != nil {
		t.Fatal(err)
	}
	return mem
}

func put(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
