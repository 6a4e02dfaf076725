// Package human reads durations, rates and times as people write them: on the command line, in the forms of the web UI and in filters.
// What both the command line and the pages write, it writes: lists of numbers, sizes, series for a row of a table, what figures call by a word of their own.
//
// It knows nothing of tasks. What programs send is read elsewhere, and to the letter: internal/rest.
package humanize
