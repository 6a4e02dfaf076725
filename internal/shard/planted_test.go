//go:build planted

package shard

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// plantedBugs maps each bug to the test that must catch it, within the seeds that the test runs by default.
var plantedBugs = []struct{ bug, by string }{
	{"raftlog-no-fsync", "TestPowerLoss"},
	{"store-position-apart", "TestPowerLoss"},
	{"shard-cut-applied", "TestPowerLoss"},
	{"shard-early-answer", "TestPowerLoss"},
	{"shard-unknown-as-not-run", "TestThreeReplicas"},
	{"shard-no-confirm", "TestPausedLeaderAnswersNothingStale"},
	{"shard-no-guard", "TestGuard"},
	{"raftlog-error-ignored", "TestPowerLoss"},
	{"raftlog-no-watchdog", "TestPowerLoss"},
	{"shard-early-messages", "TestFiveReplicas"},
	{"shard-slow-stays", "TestSlowDisk"},
	{"store-clock-wall", "TestThreeReplicas"},
	{"store-clock-forgets", "TestThreeReplicas"},
	{"store-stage-unflushed", "TestMembership"},
	{"store-image-short", "TestMembership"},
	{"shard-empty-votes", "TestMembership"},
}

// A test that can't fail proves nothing: each of these bugs, planted in the code, must be caught within the seeds that
// the tests run by default.
func TestPlantedBugsAreCaught(t *testing.T) {
	if os.Getenv("PAWL_PLANTED") != "" {
		t.Skip("this process is one of the test's own runs")
	}
	seed := regexp.MustCompile(`seed (\d+)`)
	for _, p := range plantedBugs {
		t.Run(p.bug, func(t *testing.T) {
			out, caught := runPlanted(p.bug, p.by, "2m")
			if at := seed.FindSubmatch(out); !caught {
				t.Errorf("%s did not catch the bug", p.by)
			} else if at != nil {
				t.Logf("caught by %s in seed %s", p.by, at[1])
			} else {
				t.Logf("caught by %s:\n%.600s", p.by, out)
			}
		})
	}
}

// runPlanted runs a test with a bug and reports whether it failed, or hung for the time given.
func runPlanted(bug, by, hung string, env ...string) (out []byte, caught bool) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+by+"$", "-test.timeout="+hung)
	cmd.Env = append(append(os.Environ(), "PAWL_PLANTED="+bug), env...)
	out, err := cmd.CombinedOutput()
	return out, err != nil
}

// TestPlantedBugsBySeed produces the table of docs/guarantees.md: every bug, and none, with every seed of every simulation separately.
// It takes a quarter of an hour, so it runs only if PAWL_PLANTED_TABLE is set.
func TestPlantedBugsBySeed(t *testing.T) {
	if os.Getenv("PAWL_PLANTED_TABLE") == "" {
		t.Skip("PAWL_PLANTED_TABLE is not set")
	}
	sims := []struct {
		test  string
		seeds int
	}{
		{"TestPowerLoss", powerSeeds}, {"TestThreeReplicas", threeSeeds}, {"TestFiveReplicas", fiveSeeds},
		{"TestMembership", memberSeeds}, {"TestPausedLeaderAnswersNothingStale", 10},
	}
	for _, bug := range append([]string{"none"}, bugNames()...) {
		t.Run(bug, func(t *testing.T) {
			row := "| `" + bug + "` |"
			for _, sim := range sims {
				caught := 0
				for seed := range sim.seeds {
					if _, failed := runPlanted(bug, sim.test, "20s", "PAWL_SEED="+strconv.Itoa(seed+1)); failed {
						caught++
					}
				}
				row += fmt.Sprintf(" %d of %d |", caught, sim.seeds)
			}
			t.Log(row)
		})
	}
}

func bugNames() (names []string) {
	for _, p := range plantedBugs {
		names = append(names, p.bug)
	}
	return names
}
