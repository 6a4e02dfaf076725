package tasks

import (
	"errors"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// term is one condition of a filter in the filter language.
type term = admin.FilterTerm

// maxFilterText is the maximum length of a filter in the filter language, in bytes.
const maxFilterText = 4 << 10

var allStates = []pawltype.State{
	pawltype.StateScheduled, pawltype.StateReady, pawltype.StateClaimed, pawltype.StateRetrying,
	pawltype.StateSucceeded, pawltype.StateDead, pawltype.StatePoisoned, pawltype.StateDiscarded, pawltype.StateCancelled,
}

// parseFilter parses the filter language. Ages are relative to now. Its errors are shown next to the filter, so they do not name it.
func parseFilter(text string, now time.Time) (admin.Filter, []term, error) {
	terms, err := admin.ParseFilterTerms(text)
	if err != nil {
		return admin.Filter{}, nil, ofFilter(err)
	}
	f, err := terms.Filter(now)
	return f, terms, ofFilter(err)
}

func ofFilter(err error) error {
	e := (*pawltype.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	return &pawltype.Error{Code: e.Code, Field: "q", Message: strings.TrimPrefix(e.Message, "filter: ")}
}

func termsText(terms []term) string { return admin.FilterTerms(terms).String() }

// filterText returns a filter in the filter language, with absolute times.
func filterText(f admin.Filter) string { return f.String() }

// with returns terms with a field set to value; "" removes the field.
func with(terms []term, field, value string) []term {
	return admin.FilterTerms(terms).With(field, value)
}

// filterWords describes in words what a filter selects.
func filterWords(f admin.Filter) string {
	if text := filterText(f); text != "" {
		return text
	}
	return "every task"
}
