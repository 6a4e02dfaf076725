package archive

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// A namespace loses nothing that is within its equal share of the archive, regardless of what others add, and may use what others leave.
func TestShares(t *testing.T) {
	d := newMemDisk()
	var said bytes.Buffer
	a := openOn(d, Config{MaxBytes: 1000, FileSize: 10, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	record := func(ns string, i int) string { return fmt.Sprintf("%s%08d", ns, i) } // ten bytes with its newline
	has := func(ns string) int { return strings.Count(allOf(t, a, ns)+" ", " ") }
	for i := range 300 {
		writeTo(t, a, "b", noon, record("b", i))
	}
	if n := has("b"); n < 98 || n > 100 {
		t.Errorf("alone, a namespace has %d records, want all that fit", n)
	}
	for i := range 30 {
		writeTo(t, a, "a", noon, record("a", i))
	}
	for i := range 300 {
		writeTo(t, a, "b", noon, record("b", i))
	}
	if n := has("a"); n != 30 {
		t.Errorf("another namespace's records have left %d of 30", n)
	}
	for i := range 300 {
		writeTo(t, a, "a", noon, record("a", i))
	}
	if n, m := has("a"), has("b"); n < 49 || m < 49 || n+m > 100 {
		t.Errorf("both have too many, and keep %d and %d, want half each", n, m)
	}
	if got := allOf(t, a, "a"); !strings.HasPrefix(got, record("a", 299)) {
		t.Errorf("the newest is %.10s", got)
	}
	if n := a.Evicted(); n != uint64(10*(300+30+300+300-has("a")-has("b"))) {
		t.Errorf("%d bytes count as removed early", n)
	}
	if line := `namespace=b file=b@dead-`; !strings.Contains(said.String(), line) {
		t.Errorf("the log lacks %q", line)
	}
}

// Files with room count too: many namespaces with one each stay within the bound.
func TestFilesWithRoomCount(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{MaxBytes: 1000, FileSize: 40})
	for i := range 2000 {
		writeTo(t, a, fmt.Sprint("ns", i%5), noon, "123456789")
		total := 0
		for _, f := range d.files {
			total += len(f.data)
		}
		if total > 1000 {
			t.Fatalf("after record %d the archive has %d bytes, want at most 1000", i, total)
		}
	}
	for i := range 5 {
		if got := allOf(t, a, fmt.Sprint("ns", i)); got == "" {
			t.Errorf("namespace %d has nothing left", i)
		}
	}
}

// The files of a namespace that adds nothing become too old as well.
func TestIdleNamespaces(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{FileSize: 1})
	writeTo(t, a, "idle", noon, "1")
	write(t, a, noon, "2")
	a.uptime = func() time.Duration { return 91 * 24 * time.Hour }
	d.now = noon.Add(91 * 24 * time.Hour)
	write(t, a, d.now, "3")
	if n := a.Evicted(); n != 0 {
		t.Errorf("%d bytes that were too old count as removed early", n)
	}
	if got := allOf(t, a, "idle") + all(t, a); got != "3" {
		t.Errorf("after 91 days the records are %q, want the new one", got)
	}
}

// A call with many records fills several files: none has more than a record too many.
func TestManyRecordsFillFiles(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{FileSize: 10})
	write(t, a, noon, "1")
	write(t, a, noon, "222", "333", "4444", "5555555555555", "6", "7")
	if got := all(t, openOn(d.losePower(), Config{})); got != "7 6 5555555555555 4444 333 222 1" || len(d.files) != 3 {
		t.Errorf("%d files have %q, want 3", len(d.files), got)
	}
	var sizes []int
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		sizes = append(sizes, len(d.files[name].data))
	}
	if want := []int{10, 19, 4}; !slices.Equal(sizes, want) {
		t.Errorf("the files have %d bytes, want %d", sizes, want)
	}
}

// While a namespace has several files, none that has a single one loses it, even if that is large.
func TestSingleFilesStay(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{MaxBytes: 1000, FileSize: 10})
	writeTo(t, a, "a", noon, strings.Repeat("a", 499))
	for i := range 200 {
		writeTo(t, a, "b", noon, fmt.Sprintf("b%08d", i))
	}
	if got := allOf(t, a, "a"); got == "" {
		t.Error("a namespace with one file has lost it to one with many")
	}
	if got := allOf(t, a, "b"); len(got) < 450 || !strings.HasPrefix(got, "b00000199 b00000198") {
		t.Errorf("the other keeps %d bytes, the newest %.19q", len(got), got)
	}
}

// A namespace whose file was removed while it had room goes on in a new one.
func TestRemovedFileWithRoom(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{FileSize: 100})
	writeTo(t, a, "idle", noon, "1")
	a.uptime = func() time.Duration { return 91 * 24 * time.Hour }
	d.now = noon.Add(91 * 24 * time.Hour)
	write(t, a, d.now, "2")
	writeTo(t, a, "idle", d.now, "3")
	if got := allOf(t, openOn(d.losePower(), Config{}), "idle"); got != "3" {
		t.Errorf("after its file was removed, the namespace has %q", got)
	}
}
