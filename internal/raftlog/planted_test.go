//go:build planted

package raftlog

import (
	"os"
	"os/exec"
	"testing"
)

// A test that can't fail proves nothing: each of these bugs, planted in the code, must be caught by its test.
func TestPlantedBugsAreCaught(t *testing.T) {
	if os.Getenv("PAWL_PLANTED") != "" {
		t.Skip("this process is one of the test's own runs")
	}
	for _, p := range []struct{ bug, by string }{
		{"raftlog-error-ignored", "TestFailedSyncIsFinal"},
		{"raftlog-no-watchdog", "TestHangingDisk"},
		{"raftlog-vote-unsaved", "TestLostVoteIsRefused"},
		{"raftlog-mark-not-lowered", "TestTruncationAtEveryCrash"},
		{"raftlog-keeps-tail", "TestConflictReplacesSuffix"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+p.by+"$", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), "PAWL_PLANTED="+p.bug)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s did not catch %s:\n%s", p.by, p.bug, out)
		}
	}
}
