package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// night maps the colors that drawings may use to dark ones, so that one text yields both pictures.
var night = map[string]string{
	"#0f172a": "#e2e8f0", // text
	"#475569": "#94a3b8", // text beside
	"#ffffff": "#1e293b", // boxes
	"#64748b": "#64748b", // their lines
	"#94a3b8": "#64748b", // arrows
	"#e2e8f0": "#334155", // lines of groups
	"#f8fafc": "#111827", // groups
	"#dc2626": "#f87171", // the highlighted path; failure
	"#fee2e2": "#4c1d1d",
	"#15803d": "#4ade80", // success
	"#dcfce7": "#14361f",
	"#1d4ed8": "#60a5fa", // work
	"#dbeafe": "#172554",
	"#b45309": "#fbbf24", // waiting again
	"#fef3c7": "#3b2a0a",
}

var hexColor = regexp.MustCompile(`#[0-9a-f]{6}`)

// drawAll writes NAME.svg and NAME-dark.svg for every NAME.dot.
func drawAll(ctx context.Context, dir string) error {
	texts, err := filepath.Glob(filepath.Join(dir, "*.dot"))
	if err != nil || len(texts) == 0 {
		return fmt.Errorf("no drawings in %s (%v)", dir, err)
	}
	for _, text := range texts {
		cmd := exec.CommandContext(ctx, "dot", "-Tsvg", text) // #nosec G204 -- ours
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		svg, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("dot %s: %w\n%s", text, err, &stderr)
		}
		light, dark, err := shades(string(svg))
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		base := strings.TrimSuffix(text, ".dot")
		for name, picture := range map[string]string{base + ".svg": light, base + "-dark.svg": dark} {
			if err := os.WriteFile(name, []byte(picture), 0o644); err != nil { // #nosec G306 -- a picture for all
				return err
			}
		}
	}
	return nil
}

// shades returns a drawing for light and for dark pages.
func shades(svg string) (light, dark string, err error) {
	// versions, and names that would show as tooltips
	svg = regexp.MustCompile(`(?s)<!--.*?-->\n?|<!DOCTYPE.*?>\n?|<title>.*?</title>\n?`).ReplaceAllString(svg, "")
	svg = strings.ReplaceAll(svg, `fill="white" stroke="transparent"`, `fill="none" stroke="none"`)
	svg = strings.ReplaceAll(svg, `fill="white" stroke="none"`, `fill="none" stroke="none"`) // the background is the page's
	svg = strings.ReplaceAll(svg, `"Helvetica,sans-Serif"`, `"Helvetica,Arial,sans-serif"`)
	svg = regexp.MustCompile(`<text ([^>]*)>`).ReplaceAllStringFunc(svg, func(tag string) string {
		if strings.Contains(tag, "fill=") {
			return tag
		}
		return strings.TrimSuffix(tag, ">") + ` fill="#0f172a">`
	})
	dark = hexColor.ReplaceAllStringFunc(svg, func(c string) string {
		if night[c] == "" {
			err = fmt.Errorf("color %s has no dark one", c)
		}
		return night[c]
	})
	return svg, dark, err
}
