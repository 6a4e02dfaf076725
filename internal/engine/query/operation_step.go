package query

import "reflect"

// onlyCounted says whether the counters of queues tell how many tasks the filter selects.
func (f *Filter) onlyCounted() bool {
	rest := *f
	rest.States, rest.Queue, rest.Not, rest.Within = nil, "", "", nil
	return f.StatesCounted() && reflect.ValueOf(rest).IsZero()
}
