package ui

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var tokenPair = regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)`)

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestColoursCanBeRead checks the stylesheet's colour tokens against the contrasts of WCAG AA, light and dark.
func TestColoursCanBeRead(t *testing.T) {
	sheet, err := staticFiles.ReadFile("static/app.css")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string][2]string{}
	for _, m := range tokenPair.FindAllStringSubmatch(string(sheet), -1) {
		tokens[m[1]] = [2]string{m[2], m[3]}
	}
	type pair struct {
		front, back string
		least       float64
	}
	var pairs []pair
	for _, front := range []string{"ink", "ink-soft", "accent", "danger"} {
		for _, back := range []string{"ground", "surface", "raised", "sunken"} {
			pairs = append(pairs, pair{front, back, 4.5})
		}
	}
	for _, state := range []string{"scheduled", "ready", "claimed", "retrying", "succeeded", "dead", "poisoned", "quiet"} {
		pairs = append(pairs, pair{state, state + "-soft", 4.5}, pair{state, "surface", 3})
	}
	pairs = append(pairs, pair{"accent-strong", "accent-soft", 4.5}, pair{"on-accent", "accent", 4.5}, pair{"on-accent", "accent-strong", 4.5}, pair{"on-danger", "danger-fill", 4.5},
		pair{"danger", "dead-soft", 4.5}, pair{"ink", "dead-soft", 4.5}, pair{"ink", "accent-soft", 4.5}, pair{"line-strong", "surface", 3}, pair{"focus", "ground", 3}, pair{"focus", "raised", 3})
	for _, p := range pairs {
		for i, theme := range []string{"light", "dark"} {
			front, back := tokens[p.front][i], tokens[p.back][i]
			if front == "" || back == "" {
				t.Fatalf("no such token: %s or %s", p.front, p.back)
			}
			if got := contrast(t, front, back); got < p.least {
				t.Errorf("%s: %s on %s has a contrast of %s, want %g", theme, p.front, p.back, fmt.Sprintf("%.2f", got), p.least)
			}
		}
	}
}

var rowTag = regexp.MustCompile(`<(?:tr|li)\b[^>]*data-row[^>]*>`)

// TestRowsHaveIds: keys and refreshes identify rows by their ids.
func TestRowsHaveIds(t *testing.T) {
	names, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range names {
		text, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range rowTag.FindAllString(string(text), -1) {
			if found++; !strings.Contains(tag, ` id="`) {
				t.Errorf("%s: %s has no id", f.Name(), tag)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d rows in all templates", found)
	}
}

var (
	tableTag  = regexp.MustCompile(`<table\b[^>]*>`)
	emptyHead = regexp.MustCompile(`<th\b[^>]*></th>`)
	actsCell  = regexp.MustCompile(`(?s)<td class="acts.*?</td>`)
	rowButton = regexp.MustCompile(`(?s)<a [^>]*class="button[^>]*>([^<]*?)</a>`)
)

// TestTablesHaveNames: a screen reader can say what a table is about, what each column contains, and what a button in a row is for.
func TestTablesHaveNames(t *testing.T) {
	names, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		text, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tableTag.FindAllString(string(text), -1) {
			if !strings.Contains(tag, "aria-label") {
				t.Errorf("%s: a table has no name", f.Name())
			}
		}
		for _, head := range emptyHead.FindAllString(string(text), -1) {
			t.Errorf("%s: %s is empty", f.Name(), head)
		}
		for _, cell := range actsCell.FindAllString(string(text), -1) {
			for _, m := range rowButton.FindAllStringSubmatch(cell, -1) {
				if !strings.Contains(m[1], `{{template "of"`) {
					t.Errorf("%s: the button %q does not say of what", f.Name(), m[1])
				}
			}
		}
	}
}
