// Package cache holds what a leader keeps in memory to save reads: rows of tasks that it wrote lately and will need
// soon, and which ids can't have been used. It knows neither queues nor verbs: the engine decides what to keep.
package cache
