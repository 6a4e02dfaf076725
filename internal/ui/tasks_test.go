package ui_test

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui"
)

// An unfinished search says how far it came, whether or not it found anything, and links to the rest.
func TestSearchSaysHowFarItCame(t *testing.T) {
	ui.SearchFor(t, 0)
	w := startWorld(t, "")
	w.enqueue(t, 10_500, func(i int) pawl.Item {
		opts := []pawl.Option{pawl.Queue("mail")}
		if i == 0 || i == 10_499 {
			opts = append(opts, pawl.Tags("vip"))
		}
		return job("a", `{}`, opts...)
	})
	_, body := w.get(t, "/tasks?q=tag:none")
	for _, want := range []string{"No match so far", "Searched 10,000 rows, back to ", "Search older tasks", "cursor="} {
		if !strings.Contains(body, want) {
			t.Errorf("a page that found nothing yet has no %q", want)
		}
	}
	if _, body = w.get(t, "/tasks?q=tag:vip"); !strings.Contains(body, "Searched 10,000 rows, back to ") || !strings.Contains(body, "Older tasks may match too") || strings.Contains(body, "No match so far") {
		t.Error("a page that found one of two tasks does not say how far it came")
	}
	if _, body = w.get(t, "/tasks?q=type:none"); !strings.Contains(body, "No task matches") || strings.Contains(body, "Searched") {
		t.Error("a search that came to its end does not say that no task matches")
	}
	if _, body = w.get(t, "/tasks?q=type:a"); strings.Contains(body, "Searched") {
		t.Error("a full page says how far it searched")
	}
}

// A dialog states the exact number of tasks, or a lower bound.
func TestDialogsCount(t *testing.T) {
	for _, c := range []struct {
		matched, most      int64
		least              bool
		fact, button, text string
	}{
		{3, 0, false, "3", "Cancel 3 tasks", ""},
		{3, 2, false, "3", "Cancel 2 tasks", ""},
		{3000, 0, true, "at least 3,000", "Cancel at least 3,000 tasks", ""},
		{3000, 3000, true, "at least 3,000", "Cancel 3,000 tasks", ""},
		{3000, 5000, true, "at least 3,000", "Cancel at least 3,000 tasks", ""},
		{0, 0, false, "0", "Cancel 0 tasks", "No matching task is in a state"},
		{0, 0, true, "at least 0", "Cancel tasks", "No matching task was found in the time allowed for a count"},
	} {
		fact, button, text := ui.Counted(&admin.OperationPreview{Matched: c.matched, IsLowerBound: c.least}, admin.OperationSpec{Action: admin.ActionCancel, Max: c.most})
		if fact != c.fact || button != c.button || !strings.HasPrefix(text, c.text) || c.text == "" && text != "" {
			t.Errorf("%d of %d, at least: %t: the form says %q, %q, %q", c.matched, c.most, c.least, fact, button, text)
		}
	}
}
