package cron

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	for rule, want := range map[string]string{
		"30 9 * * mon-fri":         "At 09:30, Monday to Friday",
		"30 9 * * *":               "At 09:30 every day",
		"0 9,12 * * *":             "At 09:00 and 12:00 every day",
		"15 30 9 * * *":            "At 09:30:15 every day",
		"0 0 0 * * *":              "At 00:00 every day",
		"* * * * *":                "Every minute",
		"*/5 * * * *":              "Every 5 minutes",
		"*/7 * * * *":              "Every 7th minute from 0 to 56 of every hour",
		"3-59/7 * * * *":           "Every 7th minute from 3 to 59 of every hour",
		"* * * * * *":              "Every second",
		"*/20 * * * * *":           "Every 20 seconds",
		"30 * * * * *":             "At second 30 of every minute",
		"30 0 * * * *":             "At second 30 of minute 0 of every hour",
		"*/30 0 9 * * *":           "At 09:00 and 09:00:30 every day",
		"0 * * * *":                "Every hour",
		"15 * * * *":               "At 15 minutes past every hour",
		"1 * * * *":                "At 1 minute past every hour",
		"0,15,40 * * * *":          "At minutes 0, 15 and 40 of every hour",
		"0-10 * * * *":             "At minutes 0 to 10 of every hour",
		"0 */2 * * *":              "Every 2 hours",
		"15 */2 * * *":             "Every 2 hours, 15 minutes past the hour",
		"0 9-17 * * *":             "Every hour from 09:00 to 17:00 every day",
		"*/5 9-17 * * 1-5":         "Every 5 minutes from 09:00 to 17:55, Monday to Friday",
		"*/20 * 9-17 * * *":        "Every 20 seconds from 09:00:00 to 17:59:40 every day",
		"*/5 9 * * *":              "Every 5 minutes from 09:00 to 09:55 every day",
		"*/5 1,5,9 * * *":          "Every 5th minute from 0 to 55 of hours 1, 5 and 9 every day",
		"* 22-23,0-2 * * *":        "Every minute of hours 0 to 2, 22 and 23 every day",
		"0 3 * * sun":              "At 03:00 every Sunday",
		"0 3 * * 7":                "At 03:00 every Sunday",
		"0 3 * * mon,wed,fri":      "At 03:00 every Monday, Wednesday and Friday",
		"0 3 * * sat,sun":          "At 03:00 every Saturday and Sunday",
		"0 3 * * fri-mon":          "At 03:00, Friday to Monday",
		"0 3 * * 0-6":              "At 03:00 every day",
		"*/5 * * * fri":            "Every 5 minutes, every Friday",
		"0 12 * * fri#3":           "At 12:00 on the third Friday of the month",
		"0 12 * * fri#L,mon#1,mon": "At 12:00 every Monday and on the first Monday and the last Friday of the month",
		"0 0 1 * *":                "At 00:00 on the 1st of the month",
		"0 0 1,15 * *":             "At 00:00 on the 1st and the 15th of the month",
		"0 0 */2 * *":              "At 00:00 on every 2nd day from the 1st to the 31st of the month",
		"0 0 1-7 * *":              "At 00:00 on the 1st to 7th of the month",
		"0 0 L * *":                "At 00:00 on the last day of the month",
		"0 0 L-3,LW,15W * *": "At 00:00 on the 3rd day before the last, the last weekday and the weekday nearest the 15th " +
			"of the month",
		"0 0 1 1 *":                   "At 00:00 on the 1st of January",
		"0 0 1 jan-mar,12 *":          "At 00:00 on the 1st of January to March and December",
		"0 0 * 2 *":                   "At 00:00 every day in February",
		"*/10 * * jul,aug *":          "Every 10 minutes in July and August",
		"0 9 * 6 mon-fri":             "At 09:00, Monday to Friday in June",
		"0 0 13 * fri":                "At 00:00 on the 13th of the month and every Friday",
		"0 0 */2 * mon":               "At 00:00 on every 2nd day from the 1st to the 31st of the month, but only every Monday",
		"0 0 13 * mon-fri":            "At 00:00 on the 13th of the month and every Monday to Friday",
		"0 0 1-31 * fri":              "At 00:00 every day",
		"@hourly":                     "Every hour",
		"@daily":                      "At 00:00 every day",
		"@weekly":                     "At 00:00 every Sunday",
		"@monthly":                    "At 00:00 on the 1st of the month",
		"@yearly":                     "At 00:00 on the 1st of January",
		"@every 1m":                   "Every minute, counted from when this was set",
		"@every 90m":                  "Every 1 hour and 30 minutes, counted from when this was set",
		"@every 24h0m1s":              "Every 24 hours and 1 second, counted from when this was set",
		"0 0 22,23,1,2,3 * * sun,mon": "At 01:00, 02:00, 03:00, 22:00 and 23:00 every Sunday and Monday",
	} {
		w, err := Parse(rule, "")
		if err != nil {
			t.Errorf("%q: %v", rule, err)
		} else if got := w.Words(); got != want {
			t.Errorf("%q is described as %q, want %q", rule, got, want)
		}
	}
	if got := (When{}).Words(); got != "" {
		t.Errorf("no rule is described as %q, want nothing", got)
	}
}

// TestDescriptionsDiffer describes many random rules, and checks that rules with the same words are due at the same times.
func TestDescriptionsDiffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known, rules := map[string]When{}, map[string]string{}
	shared := 0
	for range 4_000 {
		rule := randomRule(r)
		w, err := Parse(rule, "")
		if err != nil {
			continue
		}
		words := w.Words()
		other, ok := known[words]
		if !ok {
			known[words], rules[words] = w, rule
			continue
		}
		if rule == rules[words] {
			continue
		}
		shared++
		if !same(w, other) {
			t.Errorf("%q describes both %q and %q", words, rule, rules[words])
		}
	}
	if shared < 200 || len(known) < 200 {
		t.Errorf("%d descriptions, shared by %d rules: too few to compare", len(known), shared)
	}
}

// same reports whether two rules are due at the same times of day, in the same months, and on the same days of two years.
func same(a, b When) bool {
	x, y := *a.spec, *b.spec
	// without the bit of *
	if x.Second<<1 != y.Second<<1 || x.Minute<<1 != y.Minute<<1 || x.Hour<<1 != y.Hour<<1 || x.Month<<1 != y.Month<<1 {
		return false
	}
	x.Second, x.Minute, x.Hour, y.Second, y.Minute, y.Hour = 1, 1, 1, 1, 1, 1
	for at, end := time.Date(2023, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(end); {
		next := x.Next(at)
		if !next.Equal(y.Next(at)) {
			return false
		}
		at = next
	}
	return true
}

// randomRule makes rules from few different parts, so that many mean the same.
func randomRule(r *rand.Rand) string {
	pick := func(some ...string) string { return some[r.IntN(len(some))] }
	fields := []string{pick("0", "0", "0", "30", "*", "*/30", "0,30", "1"), pick("*", "0", "0", "30", "*/30", "0,30", "*/15", "0-59",
		"15-45/15", "7,9"),
		pick("*", "0-23", "9", "9-17", "*/2", "1,2,3", "1-3", "22-23,0"), pick("*", "*", "1", "13", "1-31", "L", "L-1", "15W",
			"1,L", "*/2", "1-7"),
		pick("*", "*", "*", "1", "1-12", "2,3", "jan-mar", "*/3"), pick("*", "*", "*", "fri", "1-5", "0-6", "sat,sun", "fri-mon", "5,6,0",
			"fri#1", "fri#L,mon", "7", "0")}
	return strings.Join(fields, " ")
}

func FuzzWords(f *testing.F) {
	for _, rule := range []string{"*/5 1-4 L * mon#2", "@every 90s", "0 0 31W 2 0-7", "1,2,4,5,7 */7 3-22/9 */2,L-30 nov-feb 0,6#5"} {
		f.Add(rule)
	}
	f.Fuzz(func(t *testing.T, rule string) {
		w, err := Parse(rule, "")
		if err != nil {
			return
		}
		words := w.Words()
		if words == "" || len(words) > 2000 || strings.Contains(words, "  ") || strings.Contains(words, "%!") {
			t.Errorf("%q is described as %q", rule, words)
		}
	})
}
