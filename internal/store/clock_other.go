//go:build !linux

package store

import "time"

var processStart = time.Now()

// sinceBoot returns Go's monotonic time, which includes suspension or not, depending on the system.
func sinceBoot() time.Duration { return time.Since(processStart) }
