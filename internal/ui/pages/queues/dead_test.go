package queues

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/ui/web"
)

// An archive whose first page is empty is not, if more follows.
func TestEmptyPageOfArchive(t *testing.T) {
	for next, want := range map[string]string{"": "The archive is empty", "/archive?cursor=c": "Older dead letters may follow. Older →"} {
		if text, _ := rendered(t, "archive", archiveView{More: web.More{Next: next}}); !strings.Contains(text, want) {
			t.Errorf("with the next page %q, the page says %q, want %q", next, text, want)
		}
	}
}
