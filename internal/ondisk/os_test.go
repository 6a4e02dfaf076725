package ondisk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Files are private whatever the umask is and whatever they replace, and keep the contents that another link refers to.
func TestFilesArePrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("linked"), []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(at("linked"), at("replaced")); err != nil {
		t.Fatal(err)
	}
	writeTo := func(f vfs.File, err error) error {
		if err != nil {
			return err
		}
		_, err = f.Write([]byte("text"))
		return errors.Join(err, f.Close())
	}
	create := func(name string) error { return writeTo(OS.Create(name, vfs.WriteCategoryUnspecified)) }
	open := func(name string) error { return writeTo(OS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)) }
	lock := func(name string) error {
		l, err := OS.Lock(name)
		if err != nil {
			return err
		}
		return l.Close()
	}
	for _, c := range []struct {
		name string
		do   func(name string) error
		want string
	}{{"new", create, "text"}, {"replaced", create, "text"}, {"opened", open, "text"}, {"opened", open, "text"}, {"LOCK", lock, ""}} {
		if err := c.do(at(c.name)); err != nil {
			t.Fatal(err)
		}
		if err := c.do(at("no/dir")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s in no directory: %v", c.name, err)
		}
		info, err := os.Stat(at(c.name))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(at(c.name)); info.Mode().Perm() != 0o600 || string(text) != c.want {
			t.Errorf("%s is %v with %q, %v, want %q for its owner only", c.name, info.Mode(), text, err, c.want)
		}
	}
	if text, err := os.ReadFile(at("linked")); string(text) != "old" {
		t.Errorf("the other link has %q, %v", text, err)
	}
	if err := os.MkdirAll(at("full/of"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := create(at("full")); err == nil {
		t.Error("a directory that is not empty was replaced")
	}
}

// A lock outlives another attempt of the same process: the system drops it when the process closes the file.
func TestLockIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	l, err := OS.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OS.Lock(name); err == nil {
		t.Error("it was locked twice")
	}
	held, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Skip(err)
	}
	if pid := strconv.Itoa(os.Getpid()); !strings.Contains(string(held), " "+pid+" ") {
		t.Errorf("process %s holds no lock:\n%s", pid, held)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
