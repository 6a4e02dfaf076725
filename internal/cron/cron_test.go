package cron

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// The next times of a rule, each by the clock of its zone.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name, rule, zone, from string
		want                   []string
	}{
		{"five fields", "30 9 * * mon-fri", "", "2026-11-20T10:00:00Z", []string{"2026-11-23T09:30:00Z", "2026-11-24T09:30:00Z"}},
		{"six fields", "*/20 * * * * *", "", "2026-01-01T00:00:01Z", []string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z",
			"2026-01-01T00:01:00Z"}},
		{"strictly after", "0 0 * * *", "", "2026-01-01T00:00:00Z", []string{"2026-01-02T00:00:00Z"}},
		{"a descriptor", "@monthly", "", "2026-01-31T23:59:59Z", []string{"2026-02-01T00:00:00Z"}},
		{"an interval", "@every 90s", "", "2026-01-01T00:02:00Z", []string{"2026-01-01T00:03:00Z", "2026-01-01T00:04:30Z"}},
		{"both days, if one begins with *", "0 0 */2 * mon", "", "2026-02-01T00:00:00Z", []string{"2026-02-09T00:00:00Z",
			"2026-02-23T00:00:00Z", "2026-03-09T00:00:00Z"}},
		{"both days, if the day of the week begins with *", "0 0 0 1-7 * */3", "", "2026-02-01T00:00:00Z", []string{"2026-02-04T00:00:00Z",
			"2026-02-07T00:00:00Z", "2026-03-01T00:00:00Z"}},
		{"either day, if * comes later", "0 0 13,*/28 * fri", "", "2026-02-13T00:00:00Z", []string{"2026-02-20T00:00:00Z",
			"2026-02-27T00:00:00Z", "2026-03-01T00:00:00Z"}},
		{"either day", "0 0 13 * fri", "", "2026-02-01T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z",
			"2026-02-20T00:00:00Z"}},
		{"last day", "0 0 L * *", "", "2028-02-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"}},
		{"third friday", "0 12 * * fri#3", "", "2026-11-01T00:00:00Z", []string{"2026-11-20T12:00:00Z", "2026-12-18T12:00:00Z"}},
		{"a leap day", "0 0 29 2 *", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"another zone", "0 9 * * *", "Asia/Tokyo", "2026-01-01T00:00:00Z", []string{"2026-01-02T09:00:00+09:00"}},
		{"a zone of half an hour", "0 9 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", []string{"2026-01-01T09:00:00+05:30"}},

		// 2026-03-29: 02:00 becomes 03:00.
		{"skipped: at the jump", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"skipped: once, however often", "0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"skipped and the hour behind", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"skipped: all hours know none", "30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"}},
		{"skipped: on the hour", "0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},

		// 2026-10-25: 03:00 becomes 02:00.
		{"shown twice: the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"shown twice: the first time, in the west", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"shown twice: from between", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", []string{"2026-10-26T02:30:00+01:00"}},
		{"shown twice: all hours run in both", "30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"}},
		{"shown twice: every second hour", "0 */2 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"}},

		// A clock that jumps by half an hour, and one that skips midnight.
		{"half an hour skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"half an hour skipped: all hours", "30 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T03:30:00+11:00"}},
		{"half an hour twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"no midnight", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z",
			[]string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}},
		{"past the end of a leap year", "30 * 1 1 *", "Europe/Berlin", "2044-05-01T00:00:00Z", []string{"2045-01-01T00:30:00+01:00",
			"2045-01-01T01:30:00+01:00"}},
		// A whole day was skipped at the date line.
		{"no 30th of December", "0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00:00Z",
			[]string{"2011-12-31T00:00:00+14:00", "2012-01-30T12:00:00+14:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := Parse(c.rule, c.zone)
			if err != nil {
				t.Fatal(err)
			}
			began := at(t, "2026-01-01T00:00:00Z")
			now := at(t, c.from)
			for _, want := range c.want {
				if now = w.Next(began, now); !now.Equal(at(t, want)) {
					t.Fatalf("the next time is %s, want %s", now, want)
				}
				if now.Location() != time.UTC {
					t.Errorf("%s is not in UTC", now)
				}
			}
		})
	}
}

// Around every change of every clock of 2026, times only increase, no local time is due twice unless the hour is *, and asking at
// any moment between two of them returns the second.
func TestNextOnlyGrows(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca"} {
		for _, rule := range []string{"17 2 * * *", "0,30 0-4 * * *", "5 * * * *", "*/20 1,2,3 * * *", "0 */3 * * *"} {
			w, err := Parse(rule, zone)
			if err != nil {
				t.Fatal(err)
			}
			began := at(t, "2026-01-01T00:00:00Z")
			seen, days := map[string]bool{}, map[string]bool{}
			for now, end := began, began.AddDate(1, 0, 0); now.Before(end); {
				next := w.Next(began, now)
				if !next.After(now) {
					t.Fatalf("%s in %s: Next returned %s, not after %s", rule, zone, next, now)
				}
				between := now.Add(next.Sub(now) / 2)
				if again := w.Next(began, between); !again.Equal(next) {
					t.Fatalf("%s in %s: Next from %s is %s, but from %s it is %s", rule, zone, now, next, between, again)
				}
				wall := w.onWall(next).Format(time.DateTime)
				if seen[wall] && !w.all {
					t.Fatalf("%s in %s: local time %s is due twice", rule, zone, wall)
				}
				seen[wall], days[wall[:len(time.DateOnly)]] = true, true
				now = next
			}
			for day := 2; day < 364; day++ { // no clock skips a whole day
				if date := began.AddDate(0, 0, day).Format(time.DateOnly); !days[date] {
					t.Fatalf("%s in %s: nothing is due on %s", rule, zone, date)
				}
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ rule, zone, words string }{
		{"", "", "0 fields, want 5 (minute, hour"},
		{"* * *", "", "3 fields, want 5 (minute, hour"},
		{"61 * * * *", "", `minute: "61" is not 0 to 59, such as`},
		{"61 * * * * *", "", `second: "61" is not 0 to 59`},
		{"0 0,24 * * *", "", `hour: "24" is not 0 to 23`},
		{"0 0 0 * *", "", `day of the month: "0" is not 1 to 31`},
		{"0 0 1 foo *", "", `month: "foo" is not 1 to 12 or jan to dec`},
		{"0 0 * * mon#6", "", `day of the week: "mon#6" is not 0 to 7`},
		{"*/0 * * * *", "", `minute: "*/0" is not`},
		{"H * * * *", "", `minute: "H" is not`},
		{"1,,x * * * *", "", `minute: "x" is not`},
		{"0 0 30 2 *", "", "never due"},
		{"TZ=Asia/Tokyo 0 0 * * *", "", "field of its own"},
		{"CRON_TZ=Asia/Tokyo 0 0 * * *", "", "field of its own"},
		{"@every soon", "", "duration"},
		{"@every 90s", "Europe/Berlin", "no time zone"},
		{"@every 1ms", "", "whole seconds"},
		{"@every 1500ms", "", "whole seconds"},
		{"@every 9000h", "", "8784h"},
		{"@every 0s", "", "whole seconds"},
		{"@every -5s", "", "whole seconds"},
		{"@reboot", "", "want @yearly, @monthly"},
		{"0 0 * * TZ", "", `day of the week: "TZ" is not`},
		{"0 0 * * x=1", "", `day of the week: "x=1" is not`},
		{"0 0 * * *", "Berlin", "IANA"},
		{"0 0 * * *", "Local", "IANA"},
		{"0 0 * * *", "../etc/passwd", "IANA"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "256"},
	} {
		if _, err := Parse(c.rule, c.zone); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("Parse(%q, %q) = %v, want an error with %q", c.rule, c.zone, err, c.words)
		}
	}
}

func TestLongestExpression(t *testing.T) {
	rule := "0 0 * * *" + strings.Repeat(" ", MaxExpression-9)
	if _, err := Parse(rule, ""); err != nil {
		t.Errorf("Parse of %d bytes: %v", len(rule), err)
	}
	if _, err := Parse(rule+" ", ""); err == nil {
		t.Errorf("Parse accepted %d bytes", len(rule)+1)
	}
}

func TestIntervals(t *testing.T) {
	began := at(t, "2026-01-01T00:00:00Z")
	for _, d := range []time.Duration{MinEvery, time.Hour, MaxEvery} {
		w, err := Every(d)
		if err != nil {
			t.Fatal(err)
		}
		for after, want := range map[time.Duration]time.Duration{-3 * d: d, -1: d, 0: d, d - 1: d, d: 2 * d, 5*d + 1: 6 * d} {
			if got := w.Next(began.Add(time.Millisecond), began.Add(after)); !got.Equal(began.Add(want)) || got.Location() != time.UTC {
				t.Errorf("every %v, %v after the start: Next = %v, want %v", d, after, got, began.Add(want))
			}
		}
	}
	for _, d := range []time.Duration{0, -time.Hour, MinEvery - 1, 1500 * time.Millisecond, MaxEvery + time.Second} {
		if _, err := Every(d); err == nil {
			t.Errorf("Every accepted an interval of %v", d)
		}
	}
}

// Neither a century of missed times nor a rule that is never due takes long.
func TestNewestOfACentury(t *testing.T) {
	w, err := Parse("* * * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	began := at(t, "1926-01-01T00:00:00Z")
	upto := began.AddDate(100, 0, 0)
	for _, n := range []int{1, 60, 61} {
		if got := w.Newest(began, began, upto, n); len(got) != n || !got[n-1].Equal(upto) ||
			!got[0].Equal(upto.Add(time.Second*time.Duration(1-n))) {
			t.Errorf("Newest(%d) returned %d times, or the wrong ones", n, len(got))
		}
	}
	if got := w.Last(began, upto.Add(-5*time.Second), upto); !got.Equal(upto) {
		t.Errorf("Last = %v, want the end", got)
	}
	if got := (When{}).Newest(began, began, upto, 1); len(got) != 0 {
		t.Errorf("no rule is due at %v, want never", got)
	}
}

func TestNewest(t *testing.T) {
	w, err := Parse("*/10 * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	began := at(t, "2020-01-01T00:00:00Z")
	got := w.Newest(began, began, at(t, "2026-01-01T00:05:00Z"), 3)
	want := []time.Time{at(t, "2025-12-31T23:40:00Z"), at(t, "2025-12-31T23:50:00Z"), at(t, "2026-01-01T00:00:00Z")}
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("Newest = %v, want %v", got, want)
	}
	if got := w.Last(began, at(t, "2026-01-01T00:00:00Z"), at(t, "2026-01-01T00:09:59Z")); !got.IsZero() {
		t.Errorf("Last = %v, want no time in an interval without one", got)
	}
	if got := w.Last(began, at(t, "2025-12-31T23:59:59Z"), at(t, "2026-01-01T00:00:00Z")); !got.Equal(want[2]) {
		t.Errorf("Last = %v, want the end of the interval, %v", got, want[2])
	}
	every, err := Every(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if got := every.Newest(began, began, began.Add(150*time.Minute), 5); len(got) != 2 {
		t.Errorf("Newest of an hourly rule = %v, want 2 times", got)
	}
	if got := (When{}).Next(began, began); !got.IsZero() {
		t.Errorf("Next without a rule = %v, want no time", got)
	}
}

// FuzzNext: the next time by the local clock is found in one step, from any moment, and is that of a search through all that the clock has
// shown.
func FuzzNext(f *testing.F) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago", "Pacific/Apia",
		"Antarctica/Troll", ""} {
		for _, change := range []string{"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-04-04T15:00:00Z", "2026-02-15T02:00:00Z",
			"2026-09-06T04:00:00Z", "2011-12-30T10:00:00Z"} {
			at, err := time.Parse(time.RFC3339, change)
			if err != nil {
				f.Fatal(err)
			}
			for _, near := range []int64{-7200, -3600, -1, 0, 1, 1800, 3600, 7199, 10800} {
				f.Add("* * 0-22 * * *", zone, at.Unix()+near)
				f.Add("30 2 * * *", zone, at.Unix()+near)
				f.Add("*/7 59 1-23/2 * * *", zone, at.Unix()+near)
			}
		}
	}
	f.Fuzz(func(t *testing.T, rule, zone string, from int64) {
		w, err := Parse(rule, zone)
		if err != nil || w.spec == nil || w.all || from < 0 || from > 4e9 {
			return
		}
		at := time.Unix(from, 0)
		next := w.Next(at, at)
		if wall := w.nextOnWall(w.shown(at)); !wall.IsZero() && !w.first(wall).Equal(next) {
			t.Errorf("%q in %q: the first step from %s leads to %s, the next time is %s", rule, zone, at.UTC(), w.first(wall), next)
		}
		for wall := w.onWall(at).Add(-maxShift); ; {
			if wall = w.nextOnWall(wall); wall.IsZero() {
				return
			}
			if found := w.first(wall); found.After(at) {
				if !found.Equal(next) {
					t.Errorf("%q in %q: the next time after %s is %s, want %s", rule, zone, at.UTC(), next, found)
				}
				return
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-4 L * mon#2", "Europe/Berlin", int64(1_700_000_000))
	f.Add("@daily", "", int64(0))
	f.Add("* * * 29 2 mon#5", "Europe/Berlin", int64(2_595_592_332))
	f.Fuzz(func(t *testing.T, rule, zone string, from int64) {
		w, err := Parse(rule, zone)
		if err != nil || from < 0 || from > 4e9 {
			return
		}
		now := time.Unix(from, 0)
		for range 3 {
			next := w.Next(time.Unix(0, 0), now)
			if next.IsZero() {
				return
			}
			if !next.After(now) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %q: Next returned %s after %s", rule, zone, next, now)
			}
			now = next
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, rule := range []string{"30 9 * * mon-fri", "* * 0-22 * * *", "* * * * * *"} {
		b.Run(rule, func(b *testing.B) {
			w, err := Parse(rule, "Europe/Berlin")
			if err != nil {
				b.Fatal(err)
			}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				now = w.Next(now, now)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("30 9 * * mon-fri", "Europe/Berlin"); err != nil {
			b.Fatal(err)
		}
	}
}

// Lists with gaps and ranges that run backwards are rejected with the field's name, but stored ones still parse.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ rule, field, part string }{
		{"1,2,,4 * * * *", "minute", `"1,2,,4"`},
		{"* ,5 * * *", "hour", `",5"`},
		{"* * 5, * *", "day of the month", `"5,"`},
		{"5-1 * * * *", "minute", `"5-1"`},
		{"* 1,22-2 * * *", "hour", `"22-2"`},
		{"* * 28-3/2 * *", "day of the month", `"28-3/2"`},
		{"* * * nov-FEB *", "month", `"nov-FEB"`},
		{"* * * * fri-mon", "day of the week", `"fri-mon"`},
		{"5-1 * * * * *", "second", `"5-1"`},
		{"* 5-1 * * * *", "minute", `"5-1"`},
	} {
		if _, err := Parse(c.rule, ""); err != nil {
			t.Errorf("Parse(%q) = %v", c.rule, err)
		}
		if err := Check(c.rule); err == nil || !strings.HasPrefix(err.Error(), c.field+": ") || !strings.Contains(err.Error(), c.part) {
			t.Errorf("Check(%q) = %v, want it to reject %s %s", c.rule, err, c.field, c.part)
		}
	}
	for _, rule := range []string{"* * * * *", "1,2,4 5-5 1-31/3 jan-dec sat-sun", "0 0 L-3 * 5-7", "*/20 * * * * 1-fri",
		"@daily", "@every 90s", "", "* * * * 7-sun", "* * * * sun-mon", "* * * 1-feb *", "* * * 2-feb *", "* * * feb-2 *",
		"* * * * * * *", "@daily,", "5-x * * * *", "99999999999999999999-3 * * * *", // Parse rejects these
	} {
		if err := Check(rule); err != nil {
			t.Errorf("Check(%q) = %v", rule, err)
		}
	}
}
