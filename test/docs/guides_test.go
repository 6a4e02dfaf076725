package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// chapters are the chapters of every language's guide, in order; a guide may have more.
var chapters = []string{"A first task", "Enqueuing", "Workers", "Tasks that run more than once", "Chains, groups and schedules",
	"Connections", "Errors", "With ", "Testing", "Operate", "Traces", "Encryption"}

// TestGuidesHaveTheSameChapters: a reader of one language's guide finds the same topics in the others.
func TestGuidesHaveTheSameChapters(t *testing.T) {
	for _, page := range []string{"go.md", "python.md", "typescript.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for line := range strings.Lines(string(text)) {
			title, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
			if strings.HasPrefix(title, "With ") { // frameworks of the language
				title = "With "
			}
			if ok && slices.Contains(chapters, title) {
				has = append(has, title)
			}
		}
		if !slices.Equal(has, chapters) {
			t.Errorf("%s has the chapters %q, want %q", page, has, chapters)
		}
	}
}
