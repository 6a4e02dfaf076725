// Package planted plants bugs in the storage and around Raft, one at a time, and checks that the tests catch each of them: a
// test that can't fail proves nothing. A bug is a change of source files that exists only in the build of its test.
package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// bug is a fault, and the test that must catch it within the seeds that the test runs by default.
type bug struct {
	name  string
	edits []edit
	pkg   string
	by    string
}

// edit replaces the one place of a file that reads so.
type edit struct{ file, old, new string }

var bugs = []bug{
	{"raftlog-no-fsync", []edit{
		{"raftlog/log.go", "l.wal.Append(n, sync, fill)", "l.wal.Append(n, false, fill)"},
	}, "shard", "TestPowerLoss"},
	{"raftlog-error-ignored", ignoredError, "shard", "TestPowerLoss"},
	{"raftlog-error-ignored", ignoredError, "raftlog", "TestFailedSyncIsFinal"},
	{"raftlog-no-watchdog", noWatchdog, "shard", "TestPowerLoss"},
	{"raftlog-no-watchdog", noWatchdog, "raftlog", "TestHangingDisk"},
	{"raftlog-vote-unsaved", []edit{
		{"raftlog/shardlog.go", "if len(entries) == 0 && !newTerm {", "if len(entries) == 0 && (!newTerm || true) {"},
	}, "raftlog", "TestLostVoteIsRefused"},
	{"raftlog-mark-not-lowered", []edit{
		{"raftlog/shardlog.go", "if k.index <= end {", "if k.index <= end || true {"},
	}, "raftlog", "TestTruncationAtEveryCrash"},
	{"raftlog-keeps-tail", []edit{
		{"raftlog/index.go", "x.start.index < index && index <= last {", "x.start.index < index && index <= last && false {"},
	}, "raftlog", "TestConflictReplacesSuffix"},
	{"store-position-apart", []edit{
		{"store/store.go", "return b.Set(positionKey, encodePosition(pos), nil)",
			"return s.db.Set(positionKey, encodePosition(pos), pebble.NoSync)"},
	}, "shard", "TestPowerLoss"},
	{"store-stage-unflushed", []edit{
		{"store/staging.go", "return errors.Join(r.db.Apply(b, pebble.NoSync), r.db.Flush())", "return r.db.Apply(b, pebble.NoSync)"},
	}, "shard", "TestMembership"},
	{"store-image-short", []edit{
		{"store/image.go", "iw.row(key, value)", "if key[len(key)-1]%2 == 0 { iw.row(key, value) }"},
	}, "shard", "TestMembership"},
	{"store-clock-wall", []edit{
		{"store/clock.go", "elapsed := c.src.Elapsed()\n",
			"if c.last = max(c.last, TimeOf(c.src.Wall())); true { return c.last }\nelapsed := c.src.Elapsed()\n"},
	}, "shard", "TestMembership"},
	{"store-clock-forgets", []edit{
		{"store/clock.go", "max(TimeOf(src.Wall()), last), src", "max(TimeOf(src.Wall()), 0*last), src"},
	}, "shard", "TestMembership"},
	{"shard-cut-applied", []edit{
		{"shard/upkeep.go", "if durable.Index > u.from {", "durable = u.l.cfg.State.Applied()\nif durable.Index > u.from {"},
	}, "shard", "TestPowerLoss"},
	{"shard-early-answer", []edit{
		{"shard/round.go", "\t\tl.abandon(r)\n\t\treturn nil\n\t}\n\treturn err\n",
			"\t\tl.abandon(r)\n\t\treturn nil\n\t}\nr.answer(Stamp{l.cfg.ID, r.base + 1, r.term, r.time})\n\treturn err\n"},
	}, "shard", "TestPowerLoss"},
	{"shard-early-messages", []edit{
		{"shard/loop.go", "if leads {\n\t\tl.paceSends(", "if leads || true {\n\t\tl.paceSends("},
		{"shard/loop.go", "if !leads {\n\t\tl.send(rd.Messages)", "if !leads && false {\n\t\tl.send(rd.Messages)"},
	}, "shard", "TestMembership"},
	{"shard-unknown-as-not-run", []edit{
		{"shard/round.go", "if c.wrote {\n\t\t\tc.answer(Stamp{}, ErrUnknown)", "if c.wrote && false {\n\t\tc.answer(Stamp{}, ErrUnknown)"},
	}, "shard", "TestThreeReplicas"},
	{"shard-no-confirm", []edit{
		{"shard/reads.go", "rs.last++\n", "if true { r.answer(rs.l); return }\nrs.last++\n"},
	}, "shard", "TestPausedLeaderAnswersNothingStale"},
	{"shard-no-guard", []edit{{"shard/entry.go", "return h.term == term && h.base+1 == index", "return true"}}, "shard", "TestGuard"},
	{"shard-slow-stays", []edit{
		{"shard/transfer.go", "ts.l.alone || ts.current != nil {", "ts.l.alone || ts.current != nil || true {"},
	}, "shard", "TestSlowDisk"},
	{"shard-empty-votes", []edit{{"shard/members_test.go", "n.id += 1 << 32", ""}}, "shard", "TestMembership"},
}

var (
	ignoredError = []edit{
		{"raftlog/log.go", "func (l *Log) fail(err error) {\n", "func (l *Log) fail(err error) {\nif true { return }\n"},
		{"raftlog/log.go", "if err == nil {\n\t\treturn nil\n\t}\n\tl.fail(err)\n\treturn *l.failed.Load()",
			"if true {\n\t\treturn nil\n\t}\n\tl.fail(err)\n\treturn *l.failed.Load()"},
	}
	noWatchdog = []edit{{"raftlog/log.go", "go l.watchdog.run(l.quit, l.fail)\n", ""}}
)

// TestBugsCanBePlanted: the code has the place of each bug, once. It is what is cheap enough for every run.
func TestBugsCanBePlanted(t *testing.T) {
	for _, b := range bugs {
		b.plant(t)
	}
}

// TestPlantedBugsAreCaught takes some minutes, most of it to compile, so it runs only if PAWL_PLANTED is set: make planted.
func TestPlantedBugsAreCaught(t *testing.T) {
	if os.Getenv("PAWL_PLANTED") == "" {
		t.Skip("PAWL_PLANTED is not set")
	}
	for _, b := range bugs {
		t.Run(b.name+"/"+b.pkg, func(t *testing.T) {
			if out, failed := b.run(b.build(t), b.by, "2m"); !failed {
				t.Errorf("%s did not catch the bug:\n%s", b.by, out)
			}
		})
	}
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
		{"TestPowerLoss", 30}, {"TestThreeReplicas", 12}, {"TestFiveReplicas", 8}, {"TestMembership", 8},
		{"TestPausedLeaderAnswersNothingStale", 10},
	}
	for _, b := range append([]bug{{name: "none", pkg: "shard"}}, bugs...) {
		if b.pkg != "shard" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			binary, row := b.build(t), "| `"+b.name+"` |"
			for _, sim := range sims {
				caught := 0
				for seed := range sim.seeds {
					if _, failed := b.run(binary, sim.test, "20s", fmt.Sprintf("PAWL_SEED=%d", seed+1)); failed {
						caught++
					}
				}
				row += fmt.Sprintf(" %d of %d |", caught, sim.seeds)
			}
			t.Log(row)
		})
	}
}

// plant writes the changed files, and returns the file that replaces the originals by them in a build.
func (b bug) plant(t *testing.T) (overlay string) {
	t.Helper()
	dir, replaced := t.TempDir(), map[string]string{}
	for _, e := range b.edits {
		original, err := filepath.Abs(filepath.Join(root, "internal", e.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(dir, filepath.Base(e.file))
		from := original
		if replaced[original] != "" {
			from = changed
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			t.Errorf("%s: %s contains %q %d times, want once", b.name, e.file, e.old, n)
		}
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[original] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// build compiles the tests of b's package with the bug.
func (b bug) build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "planted.test")
	build := exec.Command("go", "test", "-c", "-overlay", b.plant(t), "-o", binary, root+"/internal/"+b.pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// run runs a test with the bug, and reports whether it failed, or hung for the time given.
func (b bug) run(binary, test, hung string, env ...string) (out []byte, failed bool) {
	cmd := exec.Command(binary, "-test.run=^"+test+"$", "-test.timeout="+hung)
	cmd.Dir = filepath.Join(root, "internal", b.pkg)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return out, err != nil
}
