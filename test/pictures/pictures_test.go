package main

import (
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDrawings: every drawing is up to date with its source, light and dark.
func TestDrawings(t *testing.T) {
	texts, err := filepath.Glob("../../docs/*.dot")
	if err != nil || len(texts) != 3 {
		t.Fatalf("drawings: %v (%v)", texts, err)
	}
	label := regexp.MustCompile(`label="([^"]+)"`)
	word := regexp.MustCompile(`>([^<>]+)</text>`)
	for _, text := range texts {
		base := strings.TrimSuffix(text, ".dot")
		light := content(t, base+".svg")
		_, dark, err := shades(light)
		if err != nil {
			t.Errorf("%s: %v", base, err)
		}
		if dark != content(t, base+"-dark.svg") {
			t.Errorf("%s-dark.svg is not the dark version of %s.svg: run make drawing", base, base)
		}
		drawn := map[string]bool{}
		for _, m := range word.FindAllStringSubmatch(light, -1) {
			drawn[strings.TrimSpace(html.UnescapeString(m[1]))] = true
		}
		for _, m := range label.FindAllStringSubmatch(content(t, text), -1) {
			for line := range strings.SplitSeq(m[1], `\n`) {
				if !drawn[strings.TrimSpace(line)] {
					t.Errorf("%s.svg lacks %q: run make drawing", base, line)
				}
			}
		}
	}
}

// TestPictures: the pictures in the README are small, and contain no scripts.
func TestPictures(t *testing.T) {
	for _, name := range []string{"stuck-queue-light.png", "stuck-queue-dark.png", "terminal.svg"} {
		text := content(t, "../../docs/"+name)
		if len(text) > mostBytes {
			t.Errorf("%s has %d bytes, want at most %d", name, len(text), mostBytes)
		}
		if strings.HasSuffix(name, ".svg") && regexp.MustCompile(`(?i)<script|\bon[a-z]+=|href=`).MatchString(text) {
			t.Errorf("%s has a script or a link", name)
		}
	}
}

// TestWrapped: long lines of an output are wrapped like in a terminal.
func TestWrapped(t *testing.T) {
	got := wrapped(strings.Repeat("x", columns) + "yz\n\nend  \n")
	if len(got) != 4 || len(got[0]) != columns || got[1] != "yz" || got[2] != "" || got[3] != "end" {
		t.Errorf("wrapped = %q", got)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path) // #nosec G304 -- ours
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
