//go:build !planted

package serve

import "log/slog"

// checkFaults does nothing: only builds with the tag planted contain planted faults.
func checkFaults(*slog.Logger) error { return nil }
