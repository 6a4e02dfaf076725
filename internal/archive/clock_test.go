package archive

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestClockJumps: a jump of the clock removes no file if it is corrected within the hour. Every removal is logged, and so is the doubt.
func TestClockJumps(t *testing.T) {
	const day = 24 * time.Hour
	type step struct {
		passed, jump time.Duration // before the record
		restart      bool
		want         string // what is left, with the new record
	}
	const doubt, removal = "level=INFO msg=\"the last record of the dead-letter archive is over an hour old, or the clock is wrong",
		"file=team@dead-20260101T120000.000000000Z.jsonl bytes=2 age=2184h0m0s reason=\"its last record is older than 2160h0m0s\""
	for _, c := range []struct {
		name     string
		fileSize int64
		steps    []step
		doubts   int
		removals string // what each line says
	}{
		{"time passes", 1, []step{{want: "0"}, {passed: 91 * day, want: "1"}}, 0, removal},
		{"forward and back", 1, []step{{want: "0"}, {jump: 91 * day, want: "1 0"}, {passed: 59 * time.Minute, want: "2 1 0"},
			{jump: -91 * day, want: "3 2 1 0"}, {passed: 2 * day, want: "4 3 2 1 0"}}, 1, ""},
		{"forward, a restart, and back", 1, []step{{want: "0"}, {jump: 91 * day, want: "1 0"}, {passed: 5 * time.Minute, restart: true,
			want: "2 1 0"}, {passed: 54 * time.Minute, want: "3 2 1 0"}, {jump: -91 * day, want: "4 3 2 1 0"}}, 1, ""},
		{"back and forward", 1, []step{{want: "0"}, {jump: -91 * day, want: "1 0"}, {jump: 91 * day, want: "2 1 0"}}, 1, ""},
		{"forward for good", 1, []step{{want: "0"}, {jump: 91 * day, want: "1 0"}, {passed: time.Hour - 1, want: "2 1 0"},
			{passed: 1, want: "3 2 1"}}, 1, "age=2185h0m0s"},
		{"by less than an hour", 1, []step{{want: "0"}, {passed: 91*day - time.Hour, jump: time.Hour, want: "1"}}, 0, removal},
		{"after a time without a process", 1, []step{{want: "0"}, {jump: 91 * day, restart: true, want: "1 0"},
			{passed: time.Hour, want: "2 1"}},
			1, "age=2185h0m0s"},
		{"after a restart", 1, []step{{want: "0"}, {jump: time.Hour, restart: true, want: "1 0"}, {passed: 91 * day, want: "2"}},
			0, "is older than"},
		{"while a file has room", 100, []step{{want: "0"}, {jump: 91 * day, restart: true, want: "1 0"}, {passed: time.Hour, want: "2 1"}},
			1, "age=2185h0m0s"},
	} {
		d := newMemDisk()
		var said bytes.Buffer
		uptime := time.Duration(0)
		opened := func() *Archive {
			a := openOn(d, Config{FileSize: c.fileSize, Logger: slog.New(slog.NewTextHandler(&said, nil))})
			a.uptime = func() time.Duration { return uptime }
			return a
		}
		a := opened()
		for i, s := range c.steps {
			if s.restart {
				uptime, a = 0, opened()
			}
			uptime += s.passed
			d.now = d.now.Add(s.passed + s.jump)
			write(t, a, d.now, string(rune('0'+i)))
			if got := all(t, a); got != s.want {
				t.Errorf("%s: after record %d the records are %q, want %q", c.name, i, got, s.want)
			}
		}
		if n := strings.Count(said.String(), doubt); n != c.doubts {
			t.Errorf("%s: %d doubts were logged, want %d: %s", c.name, n, c.doubts, said.String())
		}
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "removed\"") && (c.removals == "" || !strings.Contains(line, c.removals)) {
				t.Errorf("%s: unexpected line: %s", c.name, line)
			}
		}
		if c.removals != "" && !strings.Contains(said.String(), c.removals) {
			t.Errorf("%s: no removal was logged with %q: %s", c.name, c.removals, said.String())
		}
	}
}
