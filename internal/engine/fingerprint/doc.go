// Package fingerprint names what failures of one task type have in common.
//
// It knows no task: it is given a type and a message.
package fingerprint
