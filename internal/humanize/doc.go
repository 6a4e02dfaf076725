// Package humanize parses durations, rates and times as people write them: on the command line, in the forms of the web UI and in
// filters. It also formats what both the command line and the pages show: lists of numbers, sizes, sparklines for table rows, and
// names of aggregated figures, and command lines of pawl.
//
// It knows nothing of tasks. What programs send is parsed strictly, in internal/apijson.
package humanize
