package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

func (a *app) checkFormat() error {
	switch a.format {
	case "table", "json", "yaml":
		return nil
	}
	return usage("--output %q is none of table, json, yaml", a.format)
}

// print writes v as JSON or YAML, or what table writes.
func (a *app) print(v any, table func(w io.Writer)) error {
	switch a.format {
	case "json":
		return writeJSON(a.out, v)
	case "yaml":
		return writeYAML(a.out, v)
	}
	var b bytes.Buffer
	table(&b)
	_, err := a.out.Write(b.Bytes())
	return err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeYAML goes by way of JSON, which YAML contains: so both have the same names in the same order.
func writeYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil {
		return err
	}
	plain(&doc)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return err
	}
	return e.Close()
}

// plain takes the braces and quotes of JSON from a document; the encoder quotes again where it must.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

// columns writes rows under a head, aligned.
func columns(w io.Writer, head string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(head, "|", "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush()
}

// fields writes names and values below each other, without those that are empty.
func fields(w io.Writer, pairs ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", pairs[i], printable(pairs[i+1]))
		}
	}
	_ = t.Flush()
}

// printable keeps what tasks contain from moving the cursor of whoever looks at them, or breaking a row.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// short cuts a text to at most n characters.
func short(s string, n int) string {
	r := []rune(printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// ago says how long before now t was, or how long after: "3m ago", "in 5s".
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// spanUnits are the units of a span, each up to what is easier to read in the next.
var spanUnits = []struct {
	unit, below time.Duration
	name        string
}{{time.Millisecond, time.Second, "ms"}, {time.Second, 2 * time.Minute, "s"}, {time.Minute, 2 * time.Hour, "m"}, {time.Hour, 48 * time.Hour, "h"}}

// span is a duration in its one largest unit, to the nearest: what ends in 90 days less a moment ends in 90d.
func span(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	for _, u := range spanUnits {
		if n := d.Round(u.unit); n < u.below {
			return strconv.FormatInt(int64(n/u.unit), 10) + u.name
		}
	}
	const day = 24 * time.Hour
	return strconv.FormatInt(int64(d.Round(day)/day), 10) + "d"
}

// period writes a duration as the API does, without units that are zero: "30s", "1h30m".
func period(d time.Duration) string {
	if d == 0 {
		return ""
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

// days writes a long duration in days, if it is a whole number of them.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return period(d)
}

// clock writes a time for people, in their zone.
func clock(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 MST") + " (" + ago(t, now) + ")"
}

// count writes "1 task", "2 tasks".
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// isTerminal reports whether a person is at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
