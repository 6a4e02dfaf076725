//go:build !linux

package serve

// relaxTimers does nothing on systems without a settable timer slack.
func relaxTimers() {}
