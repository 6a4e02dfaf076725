package ui_test

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/ui/web"
)

// An unfinished search says how far it got, whether or not it found anything, and links to the rest.
func TestUnfinishedSearchShowsProgress(t *testing.T) {
	old := web.SearchTime
	web.SearchTime = 0
	t.Cleanup(func() { web.SearchTime = old })
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
			t.Errorf("the page of a search without a match so far lacks %q", want)
		}
	}
	if _, body = w.get(t, "/tasks?q=tag:vip"); !strings.Contains(body, "Searched 10,000 rows, back to ") || !strings.Contains(body, "Older tasks may match too") || strings.Contains(body, "No match so far") {
		t.Error("the page of a search that found one of two tasks does not say how far it got")
	}
	if _, body = w.get(t, "/tasks?q=type:none"); !strings.Contains(body, "No task matches") || strings.Contains(body, "Searched") {
		t.Error("the page of a completed search does not say that no task matches")
	}
	if _, body = w.get(t, "/tasks?q=type:a"); strings.Contains(body, "Searched") {
		t.Error("a full page says how far the search got")
	}
}
