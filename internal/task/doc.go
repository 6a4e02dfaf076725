// Package task holds the words of Pawl: a task's id, states and their transitions, claim tokens, retry policies, queue
// settings, limits, and every refusal that a caller can meet.
//
// It knows no storage, no wire format and no clock: only the standard library.
package task
