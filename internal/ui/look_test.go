package ui

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// templates returns the texts of all templates.
func templates(t *testing.T) map[string]string {
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 37 {
		t.Errorf("found %d templates, want at least 37", len(all))
	}
	return all
}

var rowTag = regexp.MustCompile(`<(?:tr|li)\b[^>]*data-row[^>]*>`)

// TestRowsHaveIds: keys and refreshes identify rows by their ids.
func TestRowsHaveIds(t *testing.T) {
	found := 0
	for file, text := range templates(t) {
		for _, tag := range rowTag.FindAllString(text, -1) {
			if found++; !strings.Contains(tag, ` id="`) {
				t.Errorf("%s: %s has no id", file, tag)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d rows in all templates, want at least 10", found)
	}
}

var (
	tableTag  = regexp.MustCompile(`<table\b[^>]*>`)
	emptyHead = regexp.MustCompile(`<th\b[^>]*></th>`)
	actsCell  = regexp.MustCompile(`(?s)<td class="acts.*?</td>`)
	rowButton = regexp.MustCompile(`(?s)<a [^>]*class="button[^>]*>([^<]*?)</a>`)
)

// TestTablesHaveNames: a screen reader can announce what a table is about, what each column contains, and what a button in a row is for.
func TestTablesHaveNames(t *testing.T) {
	for file, text := range templates(t) {
		for _, tag := range tableTag.FindAllString(text, -1) {
			if !strings.Contains(tag, "aria-label") {
				t.Errorf("%s: a table has no aria-label", file)
			}
		}
		for _, head := range emptyHead.FindAllString(text, -1) {
			t.Errorf("%s: the column head %s is empty", file, head)
		}
		for _, cell := range actsCell.FindAllString(text, -1) {
			for _, m := range rowButton.FindAllStringSubmatch(cell, -1) {
				if !strings.Contains(m[1], `{{template "of"`) {
					t.Errorf("%s: the button %q does not name its subject", file, m[1])
				}
			}
		}
	}
}
