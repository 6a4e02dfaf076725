package form

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func TestRates(t *testing.T) {
	for text, want := range map[string]admin.RateLimit{"50/s": {Limit: 50, Period: time.Second}, "100/1m burst 20": {Limit: 100,
		Period: time.Minute, Burst: 20}} {
		if rate, err := ParseRate(text); err != nil || rate != want {
			t.Errorf("ParseRate(%q) = %+v, %v, want %+v", text, rate, err, want)
		}
	}
	for _, text := range []string{"50", "0/s", "abc", "/s", "5/", "5/0s", "0.5/s", "5/s burst", "NaN/s", "-1/s"} {
		if rate, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %+v, want an error", text, rate)
		}
	}
}

// TestFieldsRoundTrip: a form submitted without edits has the values that it was filled with.
func TestFieldsRoundTrip(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 90 * time.Second, 20 * time.Minute, 2 * time.Hour, 3*time.Hour + time.Minute,
		36 * time.Hour, 14 * 24 * time.Hour, 1500 * time.Millisecond} {
		if got, err := humanize.Duration(DurationText(d)); err != nil || got != d {
			t.Errorf("DurationText(%v) = %q, which parses as %v, %v", d, DurationText(d), got, err)
		}
	}
	if DurationText(0) != "" || DurationText(pawltype.NoWait) != "0s" {
		t.Errorf("DurationText of 0 is %q and of NoWait %q, want an empty text and 0s", DurationText(0), DurationText(pawltype.NoWait))
	}
}

// TestHiddenFieldsReadBack: a hidden field is read as what it was, whatever browsers do to it, also by way of a form
// that shows what was sent.
func TestHiddenFieldsReadBack(t *testing.T) {
	ofBrowser := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n", "\x00", "\uFFFD")
	for _, value := range []string{"", " a ", "a\nb", "a\rb\r\n", "\x00", "%", "%41", "a%zz", "%\r"} {
		sent := ofBrowser.Replace(Field{Kind: "hidden", Value: value}.Hidden())
		again := Fallback(url.Values{"q": {sent}}, "").Fields[0]
		if got := HiddenValue(sent); got != value || again.Value != value {
			t.Errorf("%q became %q and, sent again, %q", value, got, again.Value)
		}
	}
}

// TestListsAndHeadersReadBack: what a field shows is read back as what it was, also when something else in it is changed.
func TestListsAndHeadersReadBack(t *testing.T) {
	read := func(text string) *Reader { return NewReader(url.Values{"f": {text}}, time.Time{}) }
	for _, list := range [][]string{nil, {"a"}, {"a", "b c"}, {"a,b", " c ", `"q"`, "'s'", "`b`", `x"y`, "é\u2028"}} {
		if got := read(ListText(list) + ", new").List("f"); !slices.Equal(got, append(slices.Clone(list), "new")) {
			t.Errorf("the list %q, to which one was added, became %q", list, got)
		}
	}
	if got := read(` a ,, b, `).List("f"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the list became %q", got)
	}
	if got := read("'7', `x`").List("f"); !slices.Equal(got, []string{"'7'", "`x`"}) {
		t.Errorf("other quotes than double ones became %q", got)
	}
	if got := read("etag: '7'\n'a': `x`").Headers("f"); !maps.Equal(got, map[string]string{"etag": "'7'", "'a'": "`x`"}) {
		t.Errorf("headers with other quotes than double ones became %q", got)
	}
	headers := map[string]string{"a": "1", "b": "", "c:d": " x ", "e": "two\nlines\r", "f": `"q"`, `"g"`: "a: b", " h": "'s'"}
	r := read(HeadersText(headers) + "\n new : a:b ")
	want := maps.Clone(headers)
	if want["new"] = "a:b"; !maps.Equal(r.Headers("f"), want) {
		t.Errorf("the headers %q, to which one was added, became %q", headers, r.Headers("f"))
	}
	for _, text := range []string{`"a" b`, `"a" b, c`} {
		if r := read(text); r.List("f") != nil || r.Err == nil {
			t.Errorf("the list %s is not refused", text)
		}
	}
	for _, text := range []string{"a", ": 1", `"": 1`, `"a" 1`, "a: 1\na: 2"} {
		r := read(text)
		if got := r.Headers("f"); r.Err == nil {
			t.Errorf("the headers %q became %q, want a refusal", text, got)
		}
	}
}
