package ui

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRunbookLinks: every page to which the runbook links exists.
func TestRunbookLinks(t *testing.T) {
	book, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`\{\w+\}|\b[A-Z]+\b`)
	there := map[string]bool{"/": true}
	for _, set := range sets(nil) {
		for _, p := range set.Pages {
			there[word.ReplaceAllString(p.Path, "X")] = p.Show != nil
		}
	}
	looked := 0
	for line := range strings.Lines(string(book)) {
		if !strings.HasPrefix(line, "- *Pages*") {
			continue
		}
		for _, m := range regexp.MustCompile("`(/[^` ]*)`").FindAllStringSubmatch(line, -1) {
			if looked++; !there[word.ReplaceAllString(m[1], "X")] {
				t.Errorf("the runbook links to %s, which is not a page: %s", m[1], line)
			}
		}
	}
	if looked < 17 {
		t.Errorf("the runbook links to %d pages, want at least 17", looked)
	}
}
