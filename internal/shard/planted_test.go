//go:build planted

package shard

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// A test that can't fail proves nothing: each of these bugs, planted in the code, must be caught within the seeds that
// the tests run by default.
func TestPlantedBugsAreCaught(t *testing.T) {
	if os.Getenv("PAWL_PLANTED") != "" {
		t.Skip("this is one of the runs that the test makes")
	}
	seed := regexp.MustCompile(`seed (\d+)`)
	for bug, by := range map[string]string{
		"raftlog-no-fsync":         "TestPowerLoss",
		"shard-early-answer":       "TestPowerLoss",
		"shard-cut-applied":        "TestPowerLoss",
		"shard-no-confirm":         "TestStoppedLeaderAnswersNothingOld",
		"shard-unknown-as-not-run": "TestThreeReplicas",
		"shard-no-guard":           "TestGuard",
	} {
		t.Run(bug, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^"+by+"$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), "PAWL_PLANTED="+bug)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("%s did not notice it", by)
			} else if at := seed.FindSubmatch(out); at != nil {
				t.Logf("caught by %s in seed %s", by, at[1])
			} else {
				t.Logf("caught by %s:\n%.600s", by, out)
			}
		})
	}
}
