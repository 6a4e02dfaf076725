package ui

import (
	"github.com/pawlq/pawl/internal/ui/form"
)

// linkedFact is a fact whose value may have a page.
type linkedFact struct {
	form.Fact
	URL string // "": none
}

// linked adds pages to the values of facts, by the facts' names.
func linked(facts []form.Fact, pages map[string]string) []linkedFact {
	out := make([]linkedFact, len(facts))
	for i, f := range facts {
		out[i] = linkedFact{f, pages[f.Name]}
	}
	return out
}
