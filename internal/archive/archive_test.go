package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, cfg Config) *Archive {
	t.Helper()
	a, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func write(t *testing.T, a *Archive, now time.Time, records ...string) {
	t.Helper()
	writeTo(t, a, "team", now, records...)
}

func writeTo(t *testing.T, a *Archive, ns string, now time.Time, records ...string) {
	t.Helper()
	var lines [][]byte
	for _, r := range records {
		lines = append(lines, []byte(r))
	}
	if err := a.Append(ns, lines, now); err != nil {
		t.Fatal(err)
	}
}

// all returns the lines of the namespace that write writes to, newest first.
func all(t *testing.T, a *Archive) string {
	t.Helper()
	return allOf(t, a, "team")
}

func allOf(t *testing.T, a *Archive, ns string) string {
	t.Helper()
	files, err := a.files()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if f.ns != ns {
			continue
		}
		l := lines{r: bufio.NewReader(contents(t, a, f.name)), limit: maxRecord}
		for {
			line, _, err := l.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(line))
		}
	}
	slices.Reverse(out)
	return strings.Join(out, " ")
}

// contents returns what a file of the archive has.
func contents(t *testing.T, a *Archive, name string) io.Reader {
	t.Helper()
	if d, ok := a.disk.(*memDisk); ok {
		return bytes.NewReader(d.files[name].data)
	}
	data, err := a.disk.(osDisk).ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// What was appended is in the files, also in those of an earlier process and after the clock was set back.
func TestRecordsAreKept(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir})
	write(t, a, noon, "1", "2")
	write(t, a, noon.Add(time.Second), "3")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, Config{Dir: dir})
	write(t, a, noon.Add(-time.Hour), "4")
	if got := all(t, a); got != "4 3 2 1" {
		t.Errorf("the records are %q", got)
	}
}

func TestTrim(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir, MaxBytes: 40, FileSize: 8})
	for i := range 20 {
		write(t, a, time.Now(), fmt.Sprintf("%08d", i))
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) > 5 {
		t.Errorf("there are %d files of 9 bytes, but 40 bytes are allowed", len(files))
	}
	if got := all(t, a); !strings.HasPrefix(got, "00000019 00000018") {
		t.Errorf("the newest records are %q", got)
	}
	old := time.Now().Add(-100 * 24 * time.Hour)
	for _, f := range files {
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	write(t, a, time.Now(), "new")
	if got := all(t, a); got != "new" {
		t.Errorf("after 100 days the records are %q, want only the new one", got)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, info.Mode())
		}
	}
}
