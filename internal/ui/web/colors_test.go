package web

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
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

// TestColorsCanBeRead checks the stylesheet's color tokens against the contrasts of WCAG AA, light and dark.
func TestColorsCanBeRead(t *testing.T) {
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
	pairs = append(pairs, pair{"accent-strong", "accent-soft", 4.5}, pair{"on-accent", "accent", 4.5},
		pair{"on-accent", "accent-strong", 4.5}, pair{"on-danger", "danger-fill", 4.5}, pair{"danger", "dead-soft", 4.5},
		pair{"ink", "dead-soft", 4.5}, pair{"ink", "accent-soft", 4.5}, pair{"line-strong", "surface", 3}, pair{"focus", "ground", 3},
		pair{"focus", "raised", 3})
	for _, p := range pairs {
		for i, theme := range []string{"light", "dark"} {
			front, back := tokens[p.front][i], tokens[p.back][i]
			if front == "" || back == "" {
				t.Fatalf("the stylesheet lacks the color token %s or %s", p.front, p.back)
			}
			if got := contrast(t, front, back); got < p.least {
				t.Errorf("%s: %s on %s has a contrast of %s, want %g", theme, p.front, p.back, fmt.Sprintf("%.2f", got), p.least)
			}
		}
	}
}
