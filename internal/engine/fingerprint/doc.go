// Package fingerprint names what failures of one task type have in common.
//
// It knows no tasks, only types and messages.
package fingerprint
