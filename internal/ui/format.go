package ui

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

// funcs are the functions of templates. They build all URLs, so that none lacks the prefix.
func (u *UI) funcs() template.FuncMap {
	return template.FuncMap{
		// URLs.
		"url": func(parts ...any) string { return addressOf(baseMark, parts) }, // of a page, by the parts of its path
		"at":  func(path string) string { return baseMark + path },             // of a path below the base
		"find": func(field string, value any, more ...any) string { // of the tasks that a filter selects
			return findAddress(baseMark, append([]any{field, value}, more...))
		},
		"root":  func() string { return u.base + "/" }, // of the overview, without a namespace
		"asset": u.assets.url,                          // of a file in static/
		// Times and durations.
		"ago":    func(t time.Time) moment { return momentOf(t, time.Now()) },
		"day":    dayText,
		"now":    time.Now,
		"span":   durationText,
		"offset": offsetText,
		"median": medianText,
		// Numbers.
		"num":    number,      // 1,204
		"short":  shortNumber, // 12.3k
		"bytes":  sizeText,
		"rate":   perSecondText,
		"host":   hostText, // of a URL
		"failed": failedText,
		"plural": plural, // 1 task, 1,204 tasks
		// Texts.
		"clip":  func(n int, s string) string { return clip(s, n) },                        // at most n characters
		"words": words,                                                                     // a comma-separated list
		"reads": func(s any) string { return strings.ReplaceAll(fmt.Sprint(s), "_", " ") }, // a word of the API
		"named": humanize.Named,                                                            // in figures
		"tidy":  tidy,                                                                      // a sentence of the API
		// For templates that call others.
		"strings": func(roles []admin.Role) (all []string) {
			for _, r := range roles {
				all = append(all, string(r))
			}
			return all
		},
		"dict": dict,
		"icon": icon,
	}
}

// baseMark stands for the base in rendered templates, which are parsed once while the base differs between visits. It is random, so that no input
// can contain it.
var baseMark = "/" + rand.Text()

func (v *visit) url(parts ...any) string { return addressOf(v.base, parts) }

func (v *visit) find(field string, value any, more ...any) string {
	return findAddress(v.base, append([]any{field, value}, more...))
}

// addressOf returns the URL of a page: the base, followed by the parts as path segments. A part "?a=b" is appended as it is.
func addressOf(base string, parts []any) string {
	var b strings.Builder
	b.WriteString(base)
	for _, p := range parts {
		s := fmt.Sprint(p)
		if strings.HasPrefix(s, "?") {
			b.WriteString(s)
			continue
		}
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	if len(parts) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

// findAddress returns the URL of the tasks selected by a filter, which is given as names and values of its fields. It has at least one, since an
// empty filter selects every task, and offers actions on all of them.
func findAddress(base string, pairs []any) string {
	var terms []term
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			terms = append(terms, term{Field: fmt.Sprint(pairs[i]), Value: value})
		}
	}
	return addressOf(base, []any{"tasks", "?q=" + url.QueryEscape(termsText(terms))})
}

// moment is a time as people read it. Pages are rendered in UTC; with scripts, app.js shows times in the browser's zone, with UTC next to them.
type moment struct {
	Set     bool
	Machine string // RFC 3339, from which a script keeps Text up to date
	Text    string // "3 min ago"; a date if it is not today: "20 Nov 13:04Z"
	Long    string
}

func momentOf(t, now time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	m := moment{Set: true, Machine: t.UTC().Format(time.RFC3339Nano), Long: t.UTC().Format("Mon 2 Jan 2006 15:04:05.000 MST")}
	switch away := t.Sub(now); {
	case away.Abs() < 500*time.Millisecond:
		m.Text = "now"
	case away > 0:
		m.Text = "in " + coarse(away)
	default:
		m.Text = coarse(-away) + " ago"
	}
	if t.Sub(now).Abs() >= time.Hour && !sameDay(t, now) {
		m.Text = dateText(t, now, "Z")
	}
	return m
}

// sameDay reports whether two times are on the same day in UTC.
func sameDay(t, now time.Time) bool {
	return t.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly)
}

// dateText formats a time on another day: within a year by day, clock and the given zone name, else by date.
func dateText(t, now time.Time, zone string) string {
	if t = t.UTC(); t.Year() == now.UTC().Year() {
		return t.Format("2 Jan 15:04") + zone
	}
	return t.Format("2 Jan 2006")
}

// coarse formats a duration in its largest unit, rounded to the nearest, as app.js does too: 90 days less a moment is 90 days.
func coarse(d time.Duration) string {
	for _, u := range []struct {
		unit, below time.Duration
		name        string
	}{{time.Second, time.Minute, "s"}, {time.Minute, time.Hour, "min"}, {time.Hour, 48 * time.Hour, "h"}} {
		if n := d.Round(u.unit); n < u.below {
			return fmt.Sprintf("%d %s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d days", d.Round(24*time.Hour)/(24*time.Hour))
}

const day = 24 * time.Hour

// durationText formats a duration in its two largest units: 3 ms, 48.7 s, 1 min 9 s, 2 h, 14 days.
func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + durationText(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Round(time.Microsecond)/time.Microsecond)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	case d < time.Minute:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < time.Hour:
		return twoUnits(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < day:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	case d.Round(time.Hour) < 2*day:
		return twoUnits(d.Round(time.Hour), day, "day", time.Hour, "h")
	}
	return twoUnits(d.Round(time.Hour), day, "days", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// offsetText formats a clock's offset with its sign.
func offsetText(d time.Duration) string {
	if d = d.Round(100 * time.Microsecond); d == 0 {
		return "0 ms"
	}
	sign := "+"
	if d < 0 {
		sign, d = "−", -d
	}
	if d < time.Second {
		return sign + strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
	}
	return sign + durationText(d)
}

// dayText formats a time of day, with the date if it is not today.
func dayText(t time.Time) string { return dayFrom(t, time.Now()) }

func dayFrom(t, now time.Time) string {
	if sameDay(t, now) {
		return t.UTC().Format("15:04 MST")
	}
	return dateText(t, now, " UTC")
}

// clockText formats the start of a step of a chart.
func clockText(t, now time.Time) string {
	if sameDay(t, now) {
		return t.UTC().Format("15:04:05 MST")
	}
	return t.UTC().Format("2 Jan 15:04:05 MST")
}

// fieldDuration formats a duration for a form field, so that humanize.Duration can parse it; "" for none.
func fieldDuration(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d == pawltype.NoWait:
		return "0s"
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// number groups digits: 1,204.
func number(n any) string {
	s := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// shortNumber formats a count in about four characters: 12.3k.
func shortNumber(n int64) string {
	for _, u := range []struct {
		from int64
		unit string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if n >= u.from {
			by := u.from
			if u.unit == "k" {
				by = 1000
			}
			f := strconv.FormatFloat(float64(n)/float64(by), 'f', 1, 64)
			if len(f) > 4 {
				f = strconv.FormatInt(n/by, 10)
			}
			return strings.TrimSuffix(f, ".0") + u.unit
		}
	}
	return number(n)
}

func sizeText(n int64) string {
	const unit = 1024
	f, i := float64(n), 0
	for ; f >= unit && i < 5; i++ {
		f /= unit
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[i])
}

// clip shortens a text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

func words(list []string) string { return strings.Join(list, ", ") }

// plural formats a count with its noun: 1 task, 1,204 tasks.
func plural(n any, noun string) string {
	s := number(n)
	if s == "1" {
		return s + " " + noun
	}
	return s + " " + noun + "s"
}

// perSecondText formats a rate in the unit that reads best: per second, or per minute for rare events.
func perSecondText(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond >= 1:
		return decimal(perSecond) + "/s"
	}
	return decimal(perSecond*60) + "/min"
}

// medianText formats the median of a duration; a dash if there is none.
func medianText(l admin.Latency) string {
	if l.Count == 0 {
		return "–"
	}
	return durationText(l.P50) + " · " + durationText(l.P95)
}

// failedText formats the share of attempts that failed; a dash if none ended.
func failedText(s *admin.Stats) string {
	if s.Totals.Succeeded+s.Totals.Failed+s.Totals.Crashed == 0 {
		return "–"
	}
	return decimal(s.FailureRate*100) + " %"
}

// longNumber matches a count in a sentence of the API, whose digits are not grouped yet.
var longNumber = regexp.MustCompile(`(^|\s)(\d{4,})( [a-z])`)

// groupDigits groups the digits of counts in a sentence.
func groupDigits(s string) string {
	return longNumber.ReplaceAllStringFunc(s, func(m string) string {
		at := longNumber.FindStringSubmatch(m)
		return at[1] + number(at[2]) + at[3]
	})
}

// instant matches a time in a sentence of the API.
var instant = regexp.MustCompile(`(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z`)

// duration matches a duration in a sentence of the API, such as 1m53s, 10s or 2h0m0s, but not in quotes, where names are.
var duration = regexp.MustCompile(`(^|[ (])((?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:ms|µs|s))([ ,;:.)]|$)`)

// tidy reformats the times and durations in a sentence as they are written elsewhere on pages.
func tidy(s string) string {
	return duration.ReplaceAllStringFunc(instant.ReplaceAllString(s, "$1 $2 UTC"), func(found string) string {
		m := duration.FindStringSubmatch(found)
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return found
		}
		return m[1] + durationText(d) + m[3]
	})
}

// dict lets a template pass several values to a part.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

// document is a payload, result or checkpoint as a page shows it.
type document struct {
	Text string // indented if it is JSON, with \u escapes decoded
	Raw  string // the original text if escapes were decoded; "": they were not
	Size int64
	Kind string
	Cut  bool // it was truncated
}

// maxShown is how much of a document a page shows: the whole has a URL of its own.
const maxShown = 8 << 10

func documentOf(data []byte, kind string) *document {
	if len(data) == 0 {
		return nil
	}
	d := &document{Size: int64(len(data)), Kind: kind}
	if key, ok := keyring.EncryptedWith(kind); ok {
		d.Kind, d.Text = "encrypted", "Encrypted with key "+key+". Only programs that have the key can read it."
		return d
	}
	text := data
	if kind == "" || kind == "application/json" {
		d.Kind = "application/json"
		var b bytes.Buffer
		if json.Indent(&b, data, "", "  ") == nil {
			var read bool
			if text, read = readEscapes(b.Bytes()); read {
				d.Raw = shownOf(data)
			}
		}
	}
	d.Cut = len(text) > maxShown
	d.Text = shownOf(text)
	return d
}

// shownOf returns as much of a document as a page shows.
func shownOf(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), maxShown)]), "\ufffd")
}
