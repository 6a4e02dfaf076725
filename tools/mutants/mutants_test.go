package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// weakly is the outcome of each mutant of testdata/weak.
const weakly = `
weak.go -: most = 3: 3 plus 1: survived
weak.go Both: a && b: never: killed
weak.go Both: a && b: always: killed
weak.go Both: a: && without: killed
weak.go Both: b: && without: survived
weak.go Both: return 1: 1 plus 1: killed
weak.go Both: return 1: 1 minus 1: killed
weak.go Both: return 2: 2 plus 1: killed
weak.go Both: return 2: 2 minus 1: killed
weak.go Fits: n < most: < becomes <=: survived
weak.go Fits: n < most: < becomes !=: killed
weak.go Least: min(a, b): min and max swapped: killed
weak.go Kind: "a": case forgotten: killed
weak.go Kind: "b": case forgotten: survived
weak.go Kind: return true: true negated: killed
weak.go Kind: return false: false negated: killed
weak.go Disk.Sync: d.Fails: never: killed
weak.go Disk.Sync: d.Fails: always: killed
weak.go Disk.Sync: d.Synced++: becomes --: survived
weak.go Save: err != nil: never: killed
weak.go Save: err != nil: always: survived
weak.go Save: d.Sync(): not called: killed
weak.go Range: a, b := 1, 2: 1 plus 1: killed
weak.go Range: a, b := 1, 2: 1 minus 1: killed
weak.go Range: a, b := 1, 2: 2 plus 1: killed
weak.go Range: a, b := 1, 2: 2 minus 1: killed
weak.go Range: return a, b: results swapped: survived
weak.go Sign: n < 0: never: survived
weak.go Sign: n < 0: always: killed
weak.go Sign: n < 0: < becomes <=: killed
weak.go Sign: n < 0: < becomes !=: survived
weak.go Sign: n < 0: 0 plus 1: killed
weak.go Any: slices.ContainsFunc(ns, func(n int) bool { return n == 1 }): && without: survived
weak.go Any: n == 1: negated: killed
weak.go Any: n == 1: 1 plus 1: killed
weak.go Any: n == 1: 1 minus 1: killed
weak.go Any: b: && without: killed
weak.go Alone: delete(m, "a"): not called: not covered
weak.go Put: p.X = 3: not assigned: killed
weak.go Put: p.X = 3: 3 plus 1: killed
weak.go Put: p.X = 3: 3 minus 1: killed
weak.go Put: p.Y += 3: not assigned: survived
weak.go Put: p.Y += 3: 3 plus 1: survived
weak.go Put: p.Y += 3: 3 minus 1: survived
weak.go Put: X: p.X: not set: survived
weak.go Put: Y: 4: not set: killed
`

func TestOutcomes(t *testing.T) {
	p, err := loadOne(t.Context(), ".", "./testdata/weak")
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := find(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), p, mutants, 2); err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(weakly), "\n")
	var got []string
	for _, m := range mutants {
		got = append(got, m.name+": "+string(m.outcome))
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("unexpected outcome %q", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing outcome %q", line)
		}
	}
	last := filepath.Join(t.TempDir(), "last", "weak.survivors")
	if passed, err := report(p, mutants, last, true); err != nil || passed {
		t.Errorf("the report of weak tests: passed %t, %v", passed, err)
	}
	if again, err := readSurvivors(last); err != nil || len(again) != 15 || !again["weak.go Both: b: && without"] {
		t.Errorf("survivors of the last run: %v, %v", again, err)
	}
}

func TestEquivalents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	read := func(text string) (map[string]judged, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readEquivalents(path)
	}
	all, err := read("# Comment\n\ninternal/b\nx.go F: a: never\n\treason\ninternal/a\nx.go G: b: never\nx.go G: b: always\n\tneither " +
		"can be seen\n")
	j := all["internal/a"]
	if err != nil || len(all) != 2 || len(all["internal/b"]) != 1 || len(j) != 2 || j["x.go G: b: always"] != "neither can be seen" {
		t.Errorf("got %v, %v", all, err)
	}
	mutants := []*mutant{{name: "x.go G: b: never"}, {name: "x.go G: c: never"}}
	if err := j.mark(mutants); err == nil || !strings.Contains(err.Error(), `"x.go G: b: always"`) || !mutants[0].equivalent ||
		mutants[1].equivalent {
		t.Errorf("the mutants were marked %t and %t, %v", mutants[0].equivalent, mutants[1].equivalent, err)
	}
	for _, bad := range []string{"internal/a\nx.go G: b: never\n", "internal/a\n\treason\n", "x.go G: b: never\n\treason\n",
		"internal/a\ninternal/b\ninternal/a\n"} {
		if all, err := read(bad); err == nil {
			t.Errorf("%q was parsed as %v, want an error", bad, all)
		}
	}
}

// Every entry of the list names an existing mutant. None is run.
func TestNoEquivalentIsStale(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the list has mutants of files that only Linux builds")
	}
	all, err := readEquivalents("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for name := range all {
		patterns = append(patterns, "./"+name)
	}
	packages, err := load(t.Context(), "../..", patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != len(all) {
		t.Errorf("%d packages were loaded, want the %d of the list", len(packages), len(all))
	}
	for _, p := range packages {
		mutants, err := find(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := all[p.Name].mark(mutants); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestHangIsTimedOut(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		r      runner
	}{
		"a loop":  {"while :; do :; done", runner{limit: time.Millisecond, wait: time.Minute}},
		"a sleep": {"sleep 60", runner{wait: time.Millisecond}},
		"a wait":  {"sleep 60", runner{wait: time.Minute, idle: time.Second / 2}},
	} {
		program := filepath.Join(t.TempDir(), "tests")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if end, err := c.r.tests(t.Context(), program, 1); end.passed || !end.timedOut || c.r.limit > 0 && end.used < time.Second/2 ||
			err != nil {
			t.Errorf("%s: passed %t, timed out %t after %v of processor time, %v", name, end.passed, end.timedOut, end.used, err)
		}
	}
}

func TestSample(t *testing.T) {
	chosen := func(sample int, seed uint64) string {
		all := []*mutant{{name: "a"}, {name: "b", equivalent: true}, {name: "c", skip: true}, {name: "d"}, {name: "e"},
			{name: "f"}, {name: "g"}}
		choose(all, sample, seed)
		names := ""
		for _, m := range all {
			if !m.skip {
				names += m.name
			}
		}
		return names
	}
	if got := chosen(9, 1); got != "adefg" {
		t.Errorf("a sample of 9 of the 5 possible mutants is %q", got)
	}
	different := map[string]bool{}
	for seed := range uint64(50) {
		got := chosen(2, seed)
		if len(got) != 2 || got != chosen(2, seed) {
			t.Errorf("a sample of 2 with seed %d is %q, and then %q", seed, got, chosen(2, seed))
		}
		different[got] = true
	}
	if len(different) != 10 {
		t.Errorf("50 seeds chose only %d of the 10 pairs", len(different))
	}
}
