//go:build planted

package store

import "os"

// planted says whether the bug that the environment names is this one.
func planted(bug string) bool { return os.Getenv("PAWL_PLANTED") == bug }
