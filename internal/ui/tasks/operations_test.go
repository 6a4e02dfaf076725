package tasks

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
)

// A dialog states the exact number of tasks, or a lower bound.
func TestDialogsCount(t *testing.T) {
	word, err := wordOf(admin.ActionCancel)
	if err != nil {
		t.Fatal(err)
	}
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
		f := &form.Form{}
		countMatches(f, &admin.OperationPreview{Matched: c.matched, IsLowerBound: c.least}, admin.OperationSpec{Action: admin.ActionCancel,
			Max: c.most}, word)
		fact, button, text := f.Facts[0].Value, f.Button, f.Text
		if fact != c.fact || button != c.button || !strings.HasPrefix(text, c.text) || c.text == "" && text != "" {
			t.Errorf("%d matching tasks of at most %d, lower bound %t: the form has %q, %q, %q", c.matched, c.most, c.least,
				fact, button, text)
		}
	}
}
