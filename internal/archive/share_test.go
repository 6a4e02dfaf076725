package archive

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A namespace loses nothing that is within its equal share of the archive, whatever others add, and may use what others leave.
func TestShares(t *testing.T) {
	d := newMemDisk()
	var said bytes.Buffer
	a := openOn(d, Config{MaxBytes: 1000, FileSize: 10, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	record := func(ns string, i int) string { return fmt.Sprintf("%s%08d", ns, i) } // ten bytes with its newline
	has := func(ns string) int { return strings.Count(allOf(t, a, ns, 1000)+" ", " ") }
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
	if got := allOf(t, a, "a", 1000); !strings.HasPrefix(got, record("a", 299)) {
		t.Errorf("the newest is %.10s", got)
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
		if got := allOf(t, a, fmt.Sprint("ns", i), 10); got == "" {
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
	if got := allOf(t, a, "idle", 10) + all(t, a, 10); got != "3" {
		t.Errorf("after 91 days the records are %q, want the new one", got)
	}
}
