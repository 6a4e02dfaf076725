package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A list reads little more than it returns, even if the archive has older records and those of other namespaces.
func TestListReadsWhatItReturns(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{FileSize: 8 << 20})
	record := strings.Repeat("x", 1000)
	var places []string
	for i := range 30_000 {
		places = append(places, write(t, a, noon, fmt.Sprint(record, i))...)
	}
	writeTo(t, a, "other", noon, strings.Repeat("y", 1<<20))
	d.read = 0
	cursor := ""
	for page := range 10 {
		n := 0
		next, _, err := a.List(t.Context(), "team", cursor, func(string, []byte) bool { n++; return n < 50 })
		if err != nil || n != 50 || d.read > (page+1)*2*block {
			t.Fatalf("page %d has %d records, %v; so far %d bytes were read, want at most two blocks a page", page, n, err, d.read)
		}
		cursor = next
	}
	d.read = 0
	if got, err := a.Read("team", places[15_000]); err != nil || string(got) != fmt.Sprint(record, 15_000) || d.read > 2*block {
		t.Errorf("Read = %.10q, %v after %d bytes, want at most two blocks", got, err, d.read)
	}
}

// A list ends after a bounded number of bytes, with a cursor to continue from, and with its context.
func TestListIsBounded(t *testing.T) {
	a := openOn(newMemDisk(), Config{MaxRead: 10, FileSize: 12})
	var want []string
	for i := range 9 { // each has six bytes with its newline
		write(t, a, noon, fmt.Sprint("rec0", i))
		want = append(want, fmt.Sprint("rec0", 8-i))
	}
	var got []string
	pages := 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		n := 0
		next, _, err := a.List(t.Context(), "team", cursor, func(_ string, record []byte) bool { got, n = append(got, string(record)), n+1; return true })
		if err != nil || n > 2 {
			t.Fatalf("a page has %d records, want at most 2; %v", n, err)
		}
		cursor = next
	}
	if !slices.Equal(got, want) || pages != 5 {
		t.Errorf("%d pages have %q", pages, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, _, err := openOn(a.disk.(*memDisk), Config{}).List(ctx, "team", "", func(string, []byte) bool { seen++; cancel(); return true })
	if !errors.Is(err, context.Canceled) || seen > 2 {
		t.Errorf("after its context ended, List read %d records: %v", seen, err)
	}
}

// Backward, a file has the lines that it has forward, regardless of their lengths and of where a block ends. What follows the last newline
// is no line.
func TestLinesBackward(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	lengths := []int{0, 1, block - 2, block - 1, block, block + 1, 3 * block, 5*block - 1}
	for range 200 {
		var file []byte
		var lines, starts []string
		for range rnd.IntN(8) {
			n := lengths[rnd.IntN(len(lengths))] + rnd.IntN(3)
			starts = append(starts, fmt.Sprint(len(file)))
			lines = append(lines, strings.Repeat(string(rune('a'+rnd.IntN(26))), n))
			file = append(append(file, lines[len(lines)-1]...), '\n')
		}
		file = append(file, strings.Repeat("#", rnd.IntN(2)*(rnd.IntN(2*block)))...) // torn
		r := backward{ctx: t.Context(), file: bytes.NewReader(file), at: int64(len(file))}
		for i := len(lines) - 1; i >= -1; i-- {
			line, start, err := r.line()
			if i < 0 {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("before the first of %d lines: %d bytes at %d, %v", len(lines), len(line), start, err)
				}
				break
			}
			if err != nil || string(line) != lines[i] || fmt.Sprint(start) != starts[i] {
				t.Fatalf("line %d of %d has %d bytes at %d, %v; want %d at %s", i, len(lines), len(line), start, err, len(lines[i]), starts[i])
			}
		}
	}
}

// A forged cursor leads to records of its namespace, at most to all of them.
func TestForgedCursors(t *testing.T) {
	d := newMemDisk()
	a := openOn(d, Config{FileSize: 6})
	writeTo(t, a, "other", noon, "secret")
	first, second := write(t, a, noon, "11", "22")[0], write(t, a, noon, "33")[0]
	one, _, _ := strings.Cut(first, ":")
	two, _, _ := strings.Cut(second, ":")
	for cursor, want := range map[string]string{two + ":999999999999999999": "33 22 11", "dead-9.jsonl:1": "33 22 11", two + ":1": "22 11", one + ":6": "11", one + ":4": "11", one + ":3": "", "dead-0.jsonl:7": ""} {
		var got []string
		next, _, err := a.List(t.Context(), "team", cursor, func(_ string, record []byte) bool { got = append(got, string(record)); return true })
		if err != nil || next != "" || strings.Join(got, " ") != want {
			t.Errorf("after %s come %q, %q, %v, want %q", cursor, got, next, err, want)
		}
	}
}

// zeros is a file without a newline.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }
func (zeros) Close() error                          { return nil }

// zeroDisk has one file, of 1 TiB.
type zeroDisk struct{ *memDisk }

func (zeroDisk) Open(string) (source, error) { return zeros{}, nil }

// A record that no task can have is not read to its end.
func TestOverlongRecord(t *testing.T) {
	a := openOn(zeroDisk{}, Config{})
	if _, err := a.Read("team", "dead-9.jsonl:1"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("Read = %v", err)
	}
	r := backward{ctx: t.Context(), file: zeros{}, name: "f", at: 1 << 40}
	if _, _, err := r.line(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("backward: %v", err)
	}
}

// A place within a record is none.
func TestPlaceWithinRecord(t *testing.T) {
	a := openOn(newMemDisk(), Config{})
	places := write(t, a, noon, `{"a":{}}`, "2")
	file, _, _ := strings.Cut(places[0], ":")
	for n := 1; n < 15; n++ {
		place := fmt.Sprint(file, ":", n)
		if _, err := a.Read("team", place); (err == nil) != slices.Contains(places, place) || err != nil && !errors.Is(err, ErrNoRecord) {
			t.Errorf("Read(%q) = %v", place, err)
		}
	}
}

// A namespace can name no file of another.
func TestPlacesOfOtherNamespaces(t *testing.T) {
	a := openOn(newMemDisk(), Config{})
	place := write(t, a, noon, "secret")[0]
	for _, ns := range []string{"", "other", "tea", "team2", "team@"} {
		if got, err := a.Read(ns, place); !errors.Is(err, ErrNoRecord) {
			t.Errorf("Read of %q by %q = %q, %v", place, ns, got, err)
		}
		if got := allOf(t, a, ns, 10); got != "" {
			t.Errorf("%q lists %q", ns, got)
		}
	}
}
