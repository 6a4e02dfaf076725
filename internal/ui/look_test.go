package ui

import (
	"regexp"
	"strings"
	"testing"
)

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
