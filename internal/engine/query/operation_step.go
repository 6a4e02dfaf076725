package query

import "reflect"

// onlyCounted reports whether the counters of queues suffice to count what the filter selects.
func (f *Filter) onlyCounted() bool {
	rest := *f
	rest.States, rest.Queue, rest.Not, rest.Within = nil, "", "", nil
	return f.StatesCounted() && reflect.ValueOf(rest).IsZero()
}
