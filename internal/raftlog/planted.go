//go:build planted

package raftlog

import "os"

// planted reports whether the bug named in the environment is this one.
func planted(bug string) bool { return os.Getenv("PAWL_PLANTED") == bug }
