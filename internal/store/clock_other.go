//go:build !linux

package store

import "time"

var processStart = time.Now()

// sinceBoot is Go's monotonic time, which counts suspension or not as the system does.
func sinceBoot() time.Duration { return time.Since(processStart) }
