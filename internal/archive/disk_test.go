package archive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// memDisk is a directory in memory.
type memDisk struct {
	files   map[string]*memFile
	durable map[string]*memFile // the names that survive a power loss
	fails   string              // the operation that fails from now on
	now     time.Time           // of writes
}

type memFile struct {
	disk    *memDisk
	data    []byte
	synced  int
	written time.Time
	closed  bool
}

var errDisk = errors.New("the disk failed")

func newMemDisk() *memDisk { return &memDisk{files: map[string]*memFile{}, now: noon} }

func (d *memDisk) do(op string) error {
	if op == d.fails {
		return errDisk
	}
	return nil
}

// losePower keeps the names and bytes that were synced.
func (d *memDisk) losePower() *memDisk {
	left := newMemDisk()
	for name, f := range d.durable {
		left.files[name] = &memFile{disk: left, data: bytes.Clone(f.data[:f.synced]), synced: f.synced, written: f.written}
	}
	left.durable = maps.Clone(left.files)
	return left
}

func (d *memDisk) Create(name string) (file, error) {
	if d.files[name] != nil {
		return nil, os.ErrExist
	}
	if err := d.do("create"); err != nil {
		return nil, err
	}
	d.files[name] = &memFile{disk: d, written: d.now}
	return d.files[name], nil
}

func (d *memDisk) Append(name string) (file, error) {
	if err := d.do("append"); err != nil {
		return nil, err
	}
	d.files[name].closed = false
	return d.files[name], nil
}

func (d *memDisk) List() ([]string, error) { return slices.Collect(maps.Keys(d.files)), d.do("list") }

func (d *memDisk) Stat(name string) (int64, time.Time, error) {
	f := d.files[name]
	return int64(len(f.data)), f.written, d.do("stat")
}

func (d *memDisk) Remove(name string) error {
	if err := d.do("remove"); err != nil {
		return err
	}
	delete(d.files, name)
	return nil
}

func (d *memDisk) Sync() error {
	if err := d.do("sync directory"); err != nil {
		return err
	}
	d.durable = maps.Clone(d.files)
	return nil
}

func (d *memDisk) Close() error { return d.do("close directory") }

// Write writes only half of the data if it fails.
func (f *memFile) Write(b []byte) (int, error) {
	err := f.disk.do("write")
	if err != nil {
		b = b[:len(b)/2]
	}
	f.data, f.written = append(f.data, b...), f.disk.now
	return len(b), err
}

func (f *memFile) Sync() error {
	if err := f.disk.do("sync"); err != nil {
		return err
	}
	f.synced = len(f.data)
	return nil
}

func (f *memFile) Close() error {
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	return f.disk.do("close")
}

func TestAcknowledgedRecordsSurvivePowerLoss(t *testing.T) {
	for fileSize, files := range map[int64]int{1: 5, 2: 5, 3: 3, 4: 3, 5: 2} { // of five records of two bytes
		d := newMemDisk()
		a := openOn(d, Config{MaxBytes: 1000, FileSize: fileSize})
		want := ""
		for _, record := range []string{"1", "2", "3", "4", "5"} {
			write(t, a, noon, record)
			want = record + " " + want
			if got := all(t, openOn(d.losePower(), Config{})) + " "; got != want {
				t.Errorf("after record %s a power loss leaves %q, want %q", record, got, want)
			}
		}
		if len(d.files) != files {
			t.Errorf("with files of %d bytes there are %d files, want %d", fileSize, len(d.files), files)
		}
	}
}

// whole matches what may be there after a failed append: the records after it, and complete ones of it and those before it.
var whole = regexp.MustCompile(`^6 5( torn)?( 3)?( second)?( first)?$`)

// A failed append returns an error, whatever failed. The next append skips what it left.
func TestFailedAppend(t *testing.T) {
	for _, op := range []string{"close", "list", "stat", "remove", "create", "sync directory", "write", "sync"} {
		d := newMemDisk()
		a := openOn(d, Config{MaxBytes: 8, FileSize: 1}) // each append ends a file, removes the oldest and begins one
		write(t, a, noon, "first")
		write(t, a, noon, "second")
		d.fails = op
		if err := a.Append("team", [][]byte{[]byte("3"), []byte("torn")}, noon); !errors.Is(err, errDisk) {
			t.Errorf("when %s fails Append returns %v", op, err)
		}
		d.fails = ""
		for name, f := range d.files {
			if !f.closed {
				t.Errorf("after %s failed, %s is still open", op, name)
			}
		}
		for _, record := range []string{"5", "6"} {
			write(t, a, noon, record)
			if got := all(t, a); !strings.HasPrefix(got, record) {
				t.Errorf("after %s failed, the newest of %q is not %s", op, got, record)
			}
		}
		if got := all(t, openOn(d.losePower(), Config{})); !whole.MatchString(got) {
			t.Errorf("after %s failed and power was lost, the records are %q", op, got)
		}
	}
}

// After a failed append to a file with room, the next record is in a new file: how the old one ends is not known.
func TestFailedAppendToFileWithRoom(t *testing.T) {
	for _, op := range []string{"append", "write", "sync", "close"} {
		d := newMemDisk()
		a := openOn(d, Config{MaxBytes: 1000, FileSize: 100})
		write(t, a, noon, "1")
		d.fails = op
		if err := a.Append("team", [][]byte{[]byte("torn")}, noon); !errors.Is(err, errDisk) {
			t.Errorf("when %s fails Append returns %v", op, err)
		}
		d.fails = ""
		write(t, a, noon, "2")
		if got := all(t, a); !strings.HasPrefix(got, "2 ") {
			t.Errorf("after %s failed, the newest of %q is not 2", op, got)
		}
		if got := all(t, openOn(d.losePower(), Config{})); got != "2 1" && got != "2 torn 1" {
			t.Errorf("after %s failed and power was lost, the records are %q", op, got)
		}
	}
}

func TestFailedClose(t *testing.T) {
	d := newMemDisk()
	d.fails = "close directory"
	if err := openOn(d, Config{}).Close(); !errors.Is(err, errDisk) {
		t.Errorf("when the directory can't be closed Close returns %v", err)
	}
}

func TestRecordWithNewlineIsRefused(t *testing.T) {
	a := openOn(newMemDisk(), Config{})
	for _, bad := range []string{"2\n3", "\n", "4\n"} {
		if err := a.Append("team", [][]byte{[]byte("1"), []byte(bad)}, noon); err == nil {
			t.Errorf("Append accepted %q", bad)
		}
	}
	if write(t, a, noon, "4"); all(t, a) != "4" {
		t.Errorf("after the refused appends the records are %q", all(t, a))
	}
}

// A clock that was once years ahead must not use up the names.
func TestClockGoesBack(t *testing.T) {
	d := newMemDisk()
	want := ""
	for i := range 300 {
		a := openOn(d, Config{}) // each start begins a file
		write(t, a, noon.Add(-time.Duration(i)*time.Hour), fmt.Sprint(i))
		want = fmt.Sprint(i) + " " + want
	}
	if got := all(t, openOn(d, Config{})) + " "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 300 {
		name := "team@dead-20260101T120000.000000000Z.jsonl"
		if i > 0 {
			name = fmt.Sprintf("team@dead-20260101T120000.000000000Z~%06d.jsonl", i)
		}
		if d.files[name] == nil {
			t.Errorf("file %s does not exist", name)
		}
	}
}

// Files are kept up to the byte limit, with room for one more file, and none whose last record is too old.
func TestTrimBoundaries(t *testing.T) {
	for _, c := range []struct {
		maxBytes int64
		age      time.Duration
		want     string
	}{
		{9 + 1, time.Hour, "new c b a"}, // three files of 3 bytes, and a new one of 1
		{9, time.Hour, "new c b"},
		{6 + 1, time.Hour, "new c b"},
		{100, time.Hour + 1, "new"},
	} {
		d := newMemDisk()
		a := openOn(d, Config{MaxBytes: c.maxBytes, MaxAge: time.Hour, FileSize: 1})
		a.uptime = func() time.Duration { return c.age }
		for _, record := range []string{"a", "b", "c"} {
			write(t, openOn(d, Config{}), noon, record)
		}
		for _, f := range d.files {
			f.data = append(f.data, '#') // torn
		}
		write(t, a, noon.Add(c.age), "new")
		if got := all(t, a); got != c.want {
			t.Errorf("with a limit of %d bytes, after %v: %q, want %q", c.maxBytes, c.age, got, c.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct{ cfg, want Config }{
		{Config{}, Config{MaxBytes: 1 << 30, MaxAge: 90 * 24 * time.Hour, FileSize: 1 << 20}},
		{Config{MaxBytes: 10240}, Config{MaxBytes: 10240, MaxAge: 90 * 24 * time.Hour, FileSize: 10}},
		{Config{MaxBytes: 5, MaxAge: 3, FileSize: 4}, Config{MaxBytes: 5, MaxAge: 3, FileSize: 4}},
	} {
		got := openOn(newMemDisk(), c.cfg).cfg
		got.Logger = nil
		if got != c.want {
			t.Errorf("%+v with defaults is %+v, want %+v", c.cfg, got, c.want)
		}
	}
}

// Files that are not the archive's are left alone, however old they are.
func TestForeignFiles(t *testing.T) {
	d := newMemDisk()
	for _, name := range []string{"notes.jsonl", "dead-letters", "team@dead-1.json", "team@notes.jsonl"} {
		d.files[name] = &memFile{disk: d, data: []byte("x\n"), written: noon.Add(-1000 * time.Hour)}
	}
	a := openOn(d, Config{MaxAge: time.Hour, MaxBytes: 2, FileSize: 1})
	write(t, a, noon, "1")
	write(t, a, noon.Add(time.Minute), "2")
	if len(d.files) != 5 || all(t, a) != "2" {
		t.Errorf("the directory has %v, the archive %q", slices.Sorted(maps.Keys(d.files)), all(t, a))
	}
}

func TestCloseUnused(t *testing.T) {
	if err := openOn(newMemDisk(), Config{}).Close(); err != nil {
		t.Error(err)
	}
}

// Errors of the operating system are passed on.
func TestOSDisk(t *testing.T) {
	dir := t.TempDir()
	d, err := openDisk(filepath.Join(dir, "new", "archive"))
	if err != nil {
		t.Fatal(err)
	}
	if size, _, err := d.Stat("none"); !errors.Is(err, os.ErrNotExist) || size != 0 {
		t.Errorf("Stat of a missing file = %d, %v", size, err)
	}
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.List(); err == nil {
		t.Error("a closed directory was listed")
	}
	if err := d.Sync(); err == nil {
		t.Error("a closed directory was synced")
	}
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: taken}); err == nil || !strings.Contains(err.Error(), "mkdir") {
		t.Errorf("Open on a file: %v", err)
	}
}

// tallied counts operations on a directory.
type tallied struct{ syncs, closes int }

func (d *tallied) Sync() error  { d.syncs++; return errDisk }
func (d *tallied) Close() error { d.closes++; return os.ErrClosed }

func TestSyncDir(t *testing.T) {
	d := &tallied{}
	if err := syncDir(d, nil); !errors.Is(err, errDisk) || !errors.Is(err, os.ErrClosed) || *d != (tallied{1, 1}) {
		t.Errorf("after syncDir the directory had %+v syncs and closes, %v, want one each and both errors", *d, err)
	}
	if err := syncDir(d, errDisk); !errors.Is(err, errDisk) || *d != (tallied{1, 1}) {
		t.Errorf("after a directory that could not be opened: %+v, %v", *d, err)
	}
}
