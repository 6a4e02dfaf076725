package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

func write(t *testing.T, a *Archive, now time.Time, records ...string) []string {
	t.Helper()
	return writeTo(t, a, "team", now, records...)
}

func writeTo(t *testing.T, a *Archive, ns string, now time.Time, records ...string) []string {
	t.Helper()
	var lines [][]byte
	for _, r := range records {
		lines = append(lines, []byte(r))
	}
	places, err := a.Append(ns, lines, now)
	if err != nil {
		t.Fatal(err)
	}
	return places
}

// all lists in pages of n.
func all(t *testing.T, a *Archive, n int) string {
	t.Helper()
	return allOf(t, a, "team", n)
}

func allOf(t *testing.T, a *Archive, ns string, n int) string {
	t.Helper()
	var out []string
	cursor := ""
	for {
		left := n
		next, _, err := a.List(t.Context(), ns, cursor, func(_ string, record []byte) bool {
			out = append(out, string(record))
			left--
			return left > 0
		})
		if err != nil {
			t.Fatal(err)
		}
		if cursor = next; cursor == "" {
			return strings.Join(out, " ")
		}
	}
}

func TestRecordsAreRead(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir})
	places := write(t, a, noon, "1", "2")
	places = append(places, write(t, a, noon.Add(time.Second), "3")...)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, Config{Dir: dir})
	places = append(places, write(t, a, noon.Add(-time.Hour), "4")...) // the clock was set back
	for i, place := range places {
		if got, err := a.Read("team", place); err != nil || string(got) != fmt.Sprint(i+1) {
			t.Errorf("Read(%q) = %q, %v", place, got, err)
		}
	}
	for n := 1; n < 6; n++ {
		if got := all(t, a, n); got != "4 3 2 1" {
			t.Errorf("pages of %d records list %q", n, got)
		}
	}
	for _, place := range []string{places[0] + "0", "dead-9.jsonl:1", "dead-9~000001.jsonl:1"} {
		if _, err := a.Read("team", place); !errors.Is(err, ErrNoRecord) {
			t.Errorf("Read(%q) = %v, want ErrNoRecord", place, err)
		}
	}
	for _, place := range []string{"", "x", "../etc/passwd:1", "dead-../x.jsonl:1", "dead-\x00.jsonl:1", places[0] + "\x00", places[0] + "\n", "\n" + places[0], "dead-.jsonl:1",
		"dead-9.jsonl", "dead-9.jsonl:", "dead-9.jsonl:0", "dead-9.jsonl:+1", "dead-9.jsonl:01", "dead-9.jsonl:99999999999999999999", "dead-9xjsonl:1", "team@dead-9.jsonl:1"} {
		if _, err := a.Read("team", place); !errors.Is(err, ErrPlace) {
			t.Errorf("Read(%q) = %v, want ErrPlace", place, err)
		}
		if place == "" { // as a cursor it means the start
			continue
		}
		if _, _, err := a.List(t.Context(), "team", place, nil); !errors.Is(err, ErrPlace) {
			t.Errorf("List(%q) = %v, want ErrPlace", place, err)
		}
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
	if got := all(t, a, 100); !strings.HasPrefix(got, "00000019 00000018") {
		t.Errorf("the newest records are %q", got)
	}
	old := time.Now().Add(-100 * 24 * time.Hour)
	for _, f := range files {
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	write(t, a, time.Now(), "new")
	if got := all(t, a, 100); got != "new" {
		t.Errorf("after 100 days the records are %q, want only the new one", got)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, info.Mode())
		}
	}
}

func TestTornLineIsNotRead(t *testing.T) {
	dir := t.TempDir()
	a := open(t, Config{Dir: dir})
	place := write(t, a, noon, "1")[0]
	name, _, _ := strings.Cut(place, ":")
	f, err := os.OpenFile(filepath.Join(dir, "team@"+name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"half`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := all(t, a, 10); got != "1" {
		t.Errorf("the records are %q, want 1", got)
	}
}
