package ondisk

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// An overlay behaves like a copy of the directory, and changes nothing in it.
func TestOverlay(t *testing.T) {
	below := vfs.NewMem()
	if err := below.MkdirAll("dir/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long ", 10)
	for name, text := range map[string]string{"dir/empty": "", "dir/short": "short", "dir/sub/1": long + "1", "dir/sub/2": long + "2",
		"dir/sub/3": long + "3"} {
		put(t, below, name, text)
	}
	before := below.String()
	o, err := NewOverlay(errorfs.Wrap(below, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			t.Errorf("%v of %s", op.Kind, op.Path)
		}
		return nil
	})), "dir")
	if err != nil {
		t.Fatal(err)
	}
	has := func(name, want string) {
		t.Helper()
		f, err := o.Open(name)
		if err != nil {
			t.Error(err)
			return
		}
		got, err := io.ReadAll(f)
		info, err2 := f.Stat()
		named, err3 := o.Stat(name)
		if err := errors.Join(err, err2, err3, f.Close()); err != nil || string(got) != want || info.Size() != int64(len(want)) ||
			named.Size() != info.Size() {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	has("dir/empty", "")
	has("dir/short", "short")
	has("dir/sub/1", long+"1")

	reads, err := o.Open("dir/sub/1")
	if err != nil {
		t.Fatal(err)
	}
	writes, err := o.OpenReadWrite("dir/sub/1", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Rename("dir/sub/1", "dir/sub/moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := writes.WriteAt([]byte("LONG"), 0); err != nil {
		t.Fatal(err)
	}
	changed := "LONG" + long[4:] + "1"
	b := make([]byte, len(changed))
	if _, err := reads.ReadAt(b, 0); err != nil || string(b) != changed {
		t.Errorf("one who had opened it before reads %q, %v", b, err)
	}
	if err := errors.Join(reads.Close(), writes.Close()); err != nil {
		t.Fatal(err)
	}
	has("dir/sub/moved", changed)
	if err := errors.Join(o.Remove("dir/sub/2"), o.Rename("dir/sub", "dir/other"), o.RemoveAll("dir/short")); err != nil {
		t.Fatal(err)
	}
	f, err := o.ReuseForWrite("dir/other/3", "dir/other/reused", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("LO")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	has("dir/other/reused", "LO"+long[2:]+"3")
	put(t, o, "dir/other/new", "new")
	if names, err := o.List("dir/other"); err != nil || len(names) != 3 {
		t.Errorf("there are %q, %v", names, err)
	}
	if got := below.String(); got != before {
		t.Errorf("below it is now\n%s", got)
	}
	if _, err := NewOverlay(below, "nothing"); err == nil {
		t.Error("it shows a directory that is not there")
	}
}
