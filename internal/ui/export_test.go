package ui

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
)

// SearchFor changes searchTime until the end of a test.
func SearchFor(t testing.TB, d time.Duration) {
	old := searchTime
	searchTime = d
	t.Cleanup(func() { searchTime = old })
}

// Counted returns what the form of an operation says about a count: the fact, the button and the text.
func Counted(p *admin.OperationPreview, o admin.OperationSpec) (fact, button, text string) {
	word, err := wordOf(o.Action)
	if err != nil {
		panic(err)
	}
	f := &form.Form{}
	countMatches(f, p, o, word)
	return f.Facts[0].Value, f.Button, f.Text
}
