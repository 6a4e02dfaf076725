package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/pawltype"
)

// A long search reports its progress every few seconds, and a short one reports nothing.
func TestLongSearchReportsProgress(t *testing.T) {
	for _, c := range []struct {
		page time.Duration // duration of each page
		want []string
	}{
		{100 * time.Millisecond, nil},
		{1500 * time.Millisecond, []string{"searched 20000 rows", "searched 40000 rows"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var notes bytes.Buffer
			a := &app{&cli.App{Err: &notes}}
			pages := 0
			read := a.withSearchProgress(func(pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
				time.Sleep(c.page)
				if pages++; pages == 5 {
					return pawltype.Page[*pawltype.Task]{Items: []*pawltype.Task{{}}}, nil
				}
				return pawltype.Page[*pawltype.Task]{Items: []*pawltype.Task{{}}, NextCursor: strings.Repeat("x", pages),
					Searched: &pawltype.Searched{Rows: 10_000, Until: time.Now().Add(-time.Hour)}}, nil
			})
			got, err := cli.Collect(cli.ListFlags{Limit: 100}, read)
			if len(got.Items) != 5 || got.NextCursor != "" || err != nil {
				t.Errorf("collected %d tasks with the next cursor %q (%v), want 5 and none", len(got.Items), got.NextCursor, err)
			}
			lines := strings.FieldsFunc(notes.String(), func(r rune) bool { return r == '\n' })
			if len(lines) != len(c.want) {
				t.Fatalf("with pages that take %s, the search reported %q, want %q", c.page, lines, c.want)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, c.want[i]) || !strings.Contains(line, "back to ") || !strings.Contains(line, "60m ago") {
					t.Errorf("the search reported %q, want %q and how far back", line, c.want[i])
				}
			}
		})
	}
}
