package tasklog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
)

func TestDeadLetterLineHasTheListedHeaders(t *testing.T) {
	long := strings.Repeat("a", MaxValue-1) + "é" // the rune straddles the limit
	headers := map[string]string{"correlation-id": "c-1", "X-Request-ID": "r-1", "x-long": long, "authorization": "secret",
		"x-lines": "a\nlevel=ERROR", "x-twice": "lower", "X-Twice": "upper"}
	for _, c := range []struct {
		list, want string // want is the attribute as JSON; empty: none
	}{
		{"correlation-id,x-request-id,traceparent", `{"correlation-id":"c-1","x-request-id":"r-1"}`},
		{"x-long", `{"x-long":"` + strings.Repeat("a", MaxValue-1) + `"}`},
		{"x-lines", `{"x-lines":"a\nlevel=ERROR"}`},
		{"x-twice", `{"x-twice":"lower"}`},
		{"X-TWICE, Correlation-Id,correlation-id", `{"correlation-id":"c-1","x-twice":"lower"}`},
		{"x-absent", ""},
		{"", ""},
	} {
		var list []string
		if c.list != "" {
			list = strings.Split(c.list, ",")
		}
		names, err := Parse(list)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
			continue
		}
		var line bytes.Buffer
		Dead(slog.New(slog.NewJSONHandler(&line, nil)), &engine.DeadLetter{Headers: headers}, names)
		var fields map[string]any
		if err := json.Unmarshal(line.Bytes(), &fields); err != nil {
			t.Fatal(err)
		}
		got := ""
		if fields["headers"] != nil {
			b, err := json.Marshal(fields["headers"])
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != c.want || strings.Contains(line.String(), "secret") || strings.Count(line.String(), "\n") != 1 {
			t.Errorf("list %q: headers are %s, want %s in the line %s", c.list, got, c.want, line.String())
		}
	}
}

// A handler's error is truncated, and its missing parts are not logged.
func TestDeadLetterLineHasTheError(t *testing.T) {
	for _, typ := range []string{"", "Timeout"} {
		var line bytes.Buffer
		d := &engine.DeadLetter{}
		d.Failure = schema.Failure{Message: strings.Repeat("e", 2000), Type: typ}
		Dead(slog.New(slog.NewJSONHandler(&line, nil)), d, nil)
		var fields map[string]any
		if err := json.Unmarshal(line.Bytes(), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["error"] != strings.Repeat("e", 1024) {
			t.Errorf("the logged error has %d bytes, want 1024", len(fmt.Sprint(fields["error"])))
		}
		if got, there := fields["error_type"]; there != (typ != "") || there && got != typ {
			t.Errorf("error_type = %v, want %q", got, typ)
		}
	}
}
