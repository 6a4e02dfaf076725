package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
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

// A refused task does not keep the others from the verb. A server that can't be reached ends the command, which then
// still says what was refused.
func TestEachTask(t *testing.T) {
	refused := &pawltype.Error{Code: pawltype.ErrNotFound, Message: "there is no task a"}
	away := &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "no server answers"}
	for _, c := range []struct {
		last error // of task c; d would succeed
		ids  string
		want []string
	}{
		{nil, "a b c d", []string{"there is no task a"}},
		{refused, "a b c d", []string{"there is no task a"}},
		{away, "a b c", []string{"there is no task a", "1 of 4 cancelled: ", "no server answers"}},
	} {
		var tried []string
		a := &app{&cli.App{Out: io.Discard, Err: io.Discard}}
		verb := taskVerb{done: "cancelled", do: func(_ context.Context, _ *pawl.Client, id string) error {
			tried = append(tried, id)
			return map[string]error{"a": refused, "c": c.last}[id]
		}}
		err := a.eachTask(t.Context(), nil, verb, []string{"a", "b", "c", "d"}, &operateFlags{})
		if got := strings.Join(tried, " "); got != c.ids {
			t.Errorf("after %v, the verb was applied to %s, want %s", c.last, got, c.ids)
		}
		for _, words := range c.want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("after %v, the error is %v, want %q in it", c.last, err, words)
			}
		}
	}
}
