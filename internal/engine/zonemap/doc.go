// Package zonemap divides the ids of a namespace into zones and keeps, for each, which types and end states its tasks have or had, so
// that a search skips the zones that can't have what it looks for. Databases call that a zone map.
//
// It knows the rows of tasks and nothing of what becomes of them.
package zonemap
