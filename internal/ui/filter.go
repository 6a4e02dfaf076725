package ui

import (
	"errors"
	"strings"
	"time"

	"github.com/pawlq/pawl"
)

// term is one condition of a filter in the filter language.
type term = pawl.FilterTerm

// maxFilterText is more than all fields of a filter take at their limits, in bytes.
const maxFilterText = 4 << 10

var allStates = []pawl.State{
	pawl.StateScheduled, pawl.StateReady, pawl.StateClaimed, pawl.StateRetrying,
	pawl.StateSucceeded, pawl.StateDead, pawl.StatePoisoned, pawl.StateDiscarded, pawl.StateCancelled,
}

// parseFilter reads the filter language. now is what ages count from. Its errors stand by the filter, so they do not name it.
func parseFilter(text string, now time.Time) (pawl.Filter, []term, error) {
	terms, err := pawl.ParseFilterTerms(text)
	if err != nil {
		return pawl.Filter{}, nil, ofFilter(err)
	}
	f, err := terms.Filter(now)
	return f, terms, ofFilter(err)
}

func ofFilter(err error) error {
	e := (*pawl.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	return &pawl.Error{Code: e.Code, Field: "q", Message: strings.TrimPrefix(e.Message, "filter: ")}
}

func termsText(terms []term) string { return pawl.FilterTerms(terms).String() }

// filterText is a filter in its language, with exact times.
func filterText(f pawl.Filter) string { return f.String() }

// with are the terms with a field set anew; "" takes it away.
func with(terms []term, field, value string) []term {
	return pawl.FilterTerms(terms).With(field, value)
}

// filterWords says in words what a filter selects.
func filterWords(f pawl.Filter) string {
	if text := filterText(f); text != "" {
		return text
	}
	return "every task"
}
