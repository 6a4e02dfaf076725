// Package task defines the vocabulary of Pawl: a task's id, states and their transitions, claim tokens, retry policies, queue
// settings, limits, and every refusal that a caller can get.
//
// It knows no storage, no wire format and no clock, and imports only the standard library.
package task
