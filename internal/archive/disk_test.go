package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// memDisk is a directory in memory.
type memDisk struct {
	files   map[string]*memFile
	durable map[string]*memFile // the names that a power loss leaves
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

// losePower leaves the names and the bytes that were synced.
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

func (d *memDisk) Open(name string) (io.ReadCloser, error) {
	f := d.files[name]
	if f == nil {
		return nil, os.ErrNotExist
	}
	if err := d.do("open"); err != nil {
		return nil, err
	}
	return reader{bytes.NewReader(f.data), d}, nil
}

// reader is a file that is read.
type reader struct {
	*bytes.Reader
	disk *memDisk
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.disk.do("read"); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (r reader) Close() error { return r.disk.do("close read") }

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

// Write writes half if it fails.
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

func TestPowerLossLeavesWhatWasAnswered(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{MaxBytes: 1000, FileSize: 4})
	want := ""
	for _, record := range []string{"1", "2", "3", "4", "5"} { // in three files
		write(t, a, noon, record)
		if want = record + " " + want; all(t, openOn(d.losePower(), Config{}), 10)+" " != want {
			t.Errorf("after record %s a power loss leaves %q, want %q", record, all(t, openOn(d.losePower(), Config{}), 10), want)
		}
	}
	if len(d.files) != 3 {
		t.Errorf("they lie in %d files, want 3", len(d.files))
	}
}

// whole is what may be there after an append that failed: the records after it, and of it and those before it whole ones.
var whole = regexp.MustCompile(`^6 5( torn)?( 3)?( second)?( first)?$`)

// An append that fails says so, whatever failed. The next one goes past what that left.
func TestFailedAppend(t *testing.T) {
	for _, op := range []string{"close", "list", "stat", "remove", "create", "sync directory", "write", "sync"} {
		d := newMemDisk()
		a := openOn(d, Config{MaxBytes: 8, FileSize: 1}) // each append ends a file, removes the oldest and begins one
		write(t, a, noon, "first")
		write(t, a, noon, "second")
		d.fails = op
		if places, err := a.Append([][]byte{[]byte("3"), []byte("torn")}, noon); !errors.Is(err, errDisk) || places != nil {
			t.Errorf("%s fails: %v, %v", op, places, err)
		}
		d.fails = ""
		for _, record := range []string{"5", "6"} {
			place := write(t, a, noon, record)[0]
			if got, err := a.Read(place); string(got) != record || err != nil {
				t.Errorf("after %s failed, %q is at %s: %v", op, got, place, err)
			}
		}
		if got := all(t, openOn(d.losePower(), Config{}), 1); !whole.MatchString(got) {
			t.Errorf("after %s failed, and the power with it, there are %q", op, got)
		}
	}
}

func TestFailedRead(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{})
	place := write(t, a, noon, "1")[0]
	for _, op := range []string{"list", "open", "read", "close read"} {
		d.fails = op
		if _, err := a.Read(place); op != "list" && !errors.Is(err, errDisk) {
			t.Errorf("%s fails, and Read says %v", op, err)
		}
		if next, err := a.List("", func(string, []byte) bool { return true }); !errors.Is(err, errDisk) || next != "" {
			t.Errorf("%s fails, and List says %q, %v", op, next, err)
		}
	}
}

func TestFailedClose(t *testing.T) {
	for _, op := range []string{"close", "close directory"} {
		d := newMemDisk()
		a := openOn(d, Config{})
		write(t, a, noon, "1")
		d.fails = op
		if err := a.Close(); !errors.Is(err, errDisk) {
			t.Errorf("%s fails, and Close says %v", op, err)
		}
		for name, f := range d.files {
			if !f.closed {
				t.Errorf("%s is open", name)
			}
		}
	}
}

func TestRecordWithNewlineIsRefused(t *testing.T) {
	a := openOn(newMemDisk(), Config{})
	if places, err := a.Append([][]byte{[]byte("1"), []byte("2\n3")}, noon); err == nil {
		t.Errorf("it went to %v", places)
	}
	if place := write(t, a, noon, "4")[0]; all(t, a, 10) != "4" || !strings.HasSuffix(place, ":1") {
		t.Errorf("after it there is %q, the last at %s", all(t, a, 10), place)
	}
}

// A clock that was years ahead once must not use up the names.
func TestClockGoesBack(t *testing.T) {
	d := newMemDisk()
	want := ""
	for i := range 300 {
		a := openOn(d, Config{}) // each start begins a file
		write(t, a, noon.Add(-time.Duration(i)*time.Hour), fmt.Sprint(i))
		want = fmt.Sprint(i) + " " + want
	}
	if got := all(t, openOn(d, Config{}), 1000) + " "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name := range d.files {
		if len(name) > 50 {
			t.Errorf("a name of %d characters: %s", len(name), name)
		}
	}
}
