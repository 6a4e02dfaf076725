package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clipperhouse/displaywidth"

	"github.com/pawlq/pawl/pawltype"
)

// watched runs a watcher for a while. look is called for every refresh, with the time since the start.
func watched(t *testing.T, w *watcher, while time.Duration, look func(at time.Duration) (string, error)) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), while)
		defer stop()
		start := time.Now()
		w.describe = (&App{Server: "n1:7295"}).Describe
		err = w.run(ctx, func() snapshot {
			rows, err := look(time.Since(start))
			return snapshot{at: time.Now(), rows: []byte(rows), err: err}
		})
	})
	return err
}

var errNobody = &pawltype.Error{Code: "unavailable", Message: `connection error: desc = "transport: Error while dialing: dial tcp"`}

// TestWatch: the list is shown again every two seconds, and an interrupt is not an error. Output to a pipe is complete.
func TestWatch(t *testing.T) {
	var shown []time.Duration
	var out, notes bytes.Buffer
	err := watched(t, &watcher{out: &out, err: &notes}, 5*time.Second, func(at time.Duration) (string, error) {
		shown = append(shown, at)
		return strings.Repeat("row\n", 100), nil
	})
	if want := []time.Duration{0, 2 * time.Second, 4 * time.Second}; !slices.Equal(shown, want) || err != nil {
		t.Errorf("the list was shown at %v, %v, want %v", shown, err, want)
	}
	if want := strings.Repeat("row\n", 300); out.String() != want || notes.Len() > 0 {
		t.Errorf("%d bytes were written to the pipe, want %d, and to stderr %q", out.Len(), len(want), notes.String())
	}
}

// TestWatchOfAPart: a refresh that lacks a shard is shown as any other.
func TestWatchOfAPart(t *testing.T) {
	for said, want := range map[error]error{ErrSilent: nil, errNobody: errNobody, nil: nil} {
		a := &App{Out: io.Discard, Err: io.Discard}
		g := a.snapshot(func() error {
			fmt.Fprint(a.Out, "rows")
			fmt.Fprint(a.Err, "notes")
			return said
		})
		if string(g.rows) != "rows" || string(g.notes) != "notes" || g.err != want || g.partial != (said == ErrSilent) {
			t.Errorf("a refresh that ends with %v has %q, %q, %v, partial: %t, want the error %v", said, g.rows, g.notes,
				g.err, g.partial, want)
		}
	}
}

// screens returns the drawn screens without the clearing sequence.
func screens(out *bytes.Buffer) []string {
	return strings.Split(out.String(), "\x1b[H\x1b[2J")[1:]
}

// TestWatchSurvivesRestart: the last screen remains, marked as stale, until the server is back.
func TestWatchSurvivesRestart(t *testing.T) {
	looks := func(at time.Duration) (string, error) {
		if at >= 4*time.Second && at < 10*time.Second {
			time.Sleep(500 * time.Millisecond)
			return "", fmt.Errorf("queues: %w", errNobody)
		}
		return fmt.Sprintf("seen at %v\n", at), nil
	}
	var out, pipe, notes bytes.Buffer
	if err := watched(t, &watcher{out: &out, size: func() (int, int) { return 80, 24 }}, 11*time.Second, looks); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range screens(&out) {
		head, rows, _ := strings.Cut(s, "\n\n")
		_, head, _ = strings.Cut(head, ", ")
		got = append(got, head+" | "+strings.TrimSpace(rows))
	}
	want := []string{
		"every 2s | seen at 0s", "every 2s | seen at 2s",
		"every 2s, no answer for 3s: no server at n1:7295 | seen at 2s",
		"every 2s, no answer for 5s: no server at n1:7295 | seen at 2s",
		"every 2s, no answer for 7s: no server at n1:7295 | seen at 2s",
		"every 2s | seen at 10s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the screens were\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := watched(t, &watcher{out: &pipe, err: &notes}, 11*time.Second, looks); err != nil {
		t.Fatal(err)
	}
	if want := "pawl: no answer: no server at n1:7295: retrying every 2s\n"; pipe.String() != "seen at 0s\nseen at 2s\nseen at 10s\n" ||
		notes.String() != want {
		t.Errorf("the pipe got %q and stderr %q, want it once: %q", pipe.String(), notes.String(), want)
	}
}

// TestWatchOfASilentServer: while a refresh hangs, the screen shows how long there has been no answer.
func TestWatchOfASilentServer(t *testing.T) {
	var out bytes.Buffer
	err := watched(t, &watcher{out: &out, size: func() (int, int) { return 80, 24 }}, 9*time.Second,
		func(at time.Duration) (string, error) {
			if at > 0 {
				time.Sleep(time.Hour)
			}
			return "row\n", nil
		})
	all := screens(&out)
	if last := all[len(all)-1]; err != nil || !strings.Contains(last, "every 2s, no answer for 8s\n\nrow") {
		t.Errorf("%v, and the last screen was %q", err, last)
	}
}

// TestWatchEndsByRefusal: an error that a refresh can't fix ends the watch, and so does any error before the first
// answer, without clearing the screen.
func TestWatchEndsByRefusal(t *testing.T) {
	var out bytes.Buffer
	size := func() (int, int) { return 80, 24 }
	refused := &pawltype.Error{Code: "permission_denied"}
	err := watched(t, &watcher{out: &out, size: size}, time.Minute, func(at time.Duration) (string, error) {
		if at > 0 {
			return "", refused
		}
		return "row\n", nil
	})
	if !errors.Is(err, pawltype.ErrPermissionDenied) || len(screens(&out)) != 1 {
		t.Errorf("a refused watch ended with %v after %d screens, want 1 screen", err, len(screens(&out)))
	}
	out.Reset()
	err = watched(t, &watcher{out: &out, size: size}, time.Minute, func(time.Duration) (string, error) { return "", errNobody })
	if !errors.Is(err, pawltype.ErrUnavailable) || out.Len() > 0 {
		t.Errorf("a watch without any answer ended with %v and drew %q, want nothing drawn", err, out.String())
	}
}

// TestWatchFits: on every screen size the head and the first rows are visible, and no line wraps.
func TestWatchFits(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("ID   TYPE\n")
	for i := range 100 {
		fmt.Fprintf(&rows, "task%03d 漢字漢字漢字漢字漢字漢字漢字 and so on\n", i)
	}
	now := time.Date(2026, 1, 31, 9, 5, 7, 0, time.Local)
	w := watcher{last: snapshot{at: now, rows: []byte(rows.String()), notes: []byte("there are more: use --limit\n")}}
	if got, want := w.picture(now, 30, 8), []string{
		"09:05:07, every 2s", "", "ID   TYPE", "task000 漢字漢字漢字漢字漢字…", "task001 漢字漢字漢字漢字漢字…", "task002 漢字漢字漢字漢字漢字…",
		"… 97 more lines", "there are more: use --limit",
	}; !slices.Equal(got, want) {
		t.Errorf("on 30x8: %q, want %q", got, want)
	}
	for _, size := range [][2]int{{1, 1}, {10, 2}, {60, 3}, {60, 4}, {60, 15}, {200, 103}, {200, 104}, {200, 200}} {
		got := w.picture(now, size[0], size[1])
		if len(got) > size[1] || !strings.HasPrefix("09:05:07, every 2s", strings.TrimSuffix(got[0], "…")) {
			t.Errorf("on %v: %d lines, the first one %q", size, len(got), got[0])
		}
		for _, line := range got {
			if n := displaywidth.String(line); n > size[0] {
				t.Errorf("on %v: %q is %d columns wide", size, line, n)
			}
		}
	}
	if got := w.picture(now, 200, 104); len(got) != 104 || got[103] != "there are more: use --limit" ||
		!strings.Contains(got[102], "task099") {
		t.Errorf("a screen with room for everything shows %d lines, the last ones %q", len(got), got[len(got)-2:])
	}
	if got := w.picture(now, 0, 0); len(got) != 104 {
		t.Errorf("on a screen of unknown size: %d lines, want all 104", len(got))
	}
}
