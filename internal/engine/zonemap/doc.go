// Package zonemap divides the ids of a namespace into zones and records, for each, which types and end states its tasks
// have or had, so that a search skips the zones that can't match. Databases call that a zone map.
//
// It knows the rows of tasks and nothing of verbs.
package zonemap
