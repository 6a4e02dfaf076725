package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// suite is the set of tests under test, each with what it covers and how long it takes.
type suite struct {
	all    []*oneTest // fastest first
	whole  ran        // all of them
	slower float64    // slowdown by the mutants' switches
}

// oneTest is a test function.
type oneTest struct {
	name       string
	lines      coverage
	used, took time.Duration
}

// batch is a set of tests that run in one process.
type batch struct {
	tests      []*oneTest
	used, took time.Duration
}

func (b *batch) pattern() string {
	names := make([]string, len(b.tests))
	for i, t := range b.tests {
		names[i] = t.name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// of returns the tests that reach a mutant.
func (s *suite) of(m *mutant) []*oneTest {
	if m.inConst() {
		return s.all
	}
	return slices.DeleteFunc(slices.Clone(s.all), func(t *oneTest) bool { return !t.lines.has(m) })
}

// batchTime is the maximum duration of a batch of more than one test: a mutant that a fast test detects must not wait
// for a slow one, and starting a process for each test would take longer than most tests.
const batchTime = time.Second

func (s *suite) batches(m *mutant) (all []batch) {
	for _, t := range s.of(m) {
		if n := len(all); n == 0 || all[n-1].used+t.used > batchTime {
			all = append(all, batch{})
		}
		last := &all[len(all)-1]
		last.tests, last.used, last.took = append(last.tests, t), last.used+t.used, last.took+t.took
	}
	return all
}

// measure runs the unmodified tests: all together, and each alone.
func measure(ctx context.Context, b *builder) (*suite, error) {
	binary := filepath.Join(b.dir, "cover.test")
	if output, err := b.compile(ctx, binary, nil, "-coverpkg="+b.p.Path); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, output)
	}
	r := &runner{dir: b.p.Tests}
	s := &suite{}
	var err error
	if s.whole, err = r.tests(ctx, binary, 0, b.p.skips()...); err != nil {
		return nil, err
	}
	if !s.whole.passed {
		return nil, fmt.Errorf("the tests of %s fail:\n%s", b.p.Tests, s.whole.output)
	}
	list := exec.CommandContext(ctx, binary, "-test.list=.")
	list.Dir = b.p.Tests
	names, err := list.Output()
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(names)) {
		if strings.HasPrefix(name, "Benchmark") || b.p.without != nil && b.p.without.MatchString(name) {
			continue
		}
		profile := filepath.Join(b.dir, "cover.out")
		end, err := r.tests(ctx, binary, 0, "-test.run=^"+name+"$", "-test.coverprofile="+profile)
		if err != nil {
			return nil, err
		}
		if !end.passed {
			return nil, fmt.Errorf("%s fails alone:\n%s", name, end.output)
		}
		lines, err := readCoverage(profile)
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, &oneTest{name, lines, end.used, end.took})
	}
	slices.SortStableFunc(s.all, func(a, b *oneTest) int { return cmp.Compare(a.used, b.used) })
	return s, nil
}

// skips returns the flags with which a test program runs all tests.
func (p *pkg) skips() []string {
	if p.without == nil {
		return nil
	}
	return []string{"-test.skip=" + p.without.String()}
}

// coverage has the lines of files that tests reach.
type coverage map[string][][2]int

func (c coverage) has(m *mutant) bool {
	for _, lines := range c[filepath.Base(m.file.path)] {
		if lines[0] <= m.covered && m.covered <= lines[1] {
			return true
		}
	}
	return false
}

func readCoverage(profile string) (coverage, error) {
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := coverage{}
	// A line is: import/path/file.go:12.34,15.2 3 1
	s := bufio.NewScanner(f)
	for s.Scan() {
		at, counts, found := strings.Cut(s.Text(), " ")
		file, span, _ := strings.Cut(filepath.Base(at), ":")
		var lines [2]int
		var column, statements, times int
		if n, _ := fmt.Sscanf(span+" "+counts, "%d.%d,%d.%d %d %d", &lines[0], &column, &lines[1], &column, &statements, &times); found &&
			n == 6 && times > 0 {
			c[file] = append(c[file], lines)
		}
	}
	return c, s.Err()
}
