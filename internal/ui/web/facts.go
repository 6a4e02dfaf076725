package web

import "github.com/pawlq/pawl/internal/ui/form"

// LinkedFact is a fact whose value may have a page.
type LinkedFact struct {
	form.Fact
	URL string // "": none
}

// WithLinks adds pages to the values of facts, by the facts' names.
func WithLinks(facts []form.Fact, pages map[string]string) []LinkedFact {
	out := make([]LinkedFact, len(facts))
	for i, f := range facts {
		out[i] = LinkedFact{f, pages[f.Name]}
	}
	return out
}
