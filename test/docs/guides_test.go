package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// chapters are those of the guide of each language, in their order; each guide may have more.
var chapters = []string{"A first task", "Enqueuing", "Workers", "Tasks that run more than once", "Chains, groups and schedules", "Connections", "Errors", "With ", "Testing", "Operate",
	"Traces", "Encryption"}

// TestGuidesHaveTheSameChapters: who knows the guide of one language finds the same things in the others.
func TestGuidesHaveTheSameChapters(t *testing.T) {
	for _, page := range []string{"go.md", "python.md", "typescript.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for line := range strings.Lines(string(text)) {
			title, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
			if strings.HasPrefix(title, "With ") { // the frameworks of the language
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
