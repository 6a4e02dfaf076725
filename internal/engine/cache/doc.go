// Package cache has what a leader keeps in memory to save reads: rows of tasks that it wrote lately and will want soon, and
// which ids can't have been used. It knows neither queues nor verbs: the engine says what to keep.
package cache
