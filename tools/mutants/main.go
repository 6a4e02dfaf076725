// Package main tests the tests: it plants small faults, called mutants, in a package one at a time and reports which of
// them the package's tests do not detect. It knows the syntax and the types of Go, and nothing of the package's
// purpose.
//
// Usage: mutants [-match REGEXP] [-again] [-sample N [-seed N]] [-by ./internal/engine [-skip REGEXP]] ./internal/engine/limit
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
)

// equivalents lists the mutants that no test can detect, and why, relative to the module's root.
const equivalents = "tools/mutants/equivalent.txt"

func main() {
	match := flag.String("match", "", "only mutants whose names match this regular `expression`")
	again := flag.Bool("again", false, "only those that survived the last run")
	list := flag.Bool("list", false, "print the mutants and end")
	sample := flag.Int("sample", 0, "only so many, chosen at random; 0: all")
	seed := flag.Uint64("seed", rand.Uint64N(1_000_000), "of the choice of a sample")
	atOnce := flag.Int("p", max(runtime.NumCPU()/2, 1), "test processes at a time")
	by := flag.String("by", "", "the `package` whose tests run, if not its own")
	without := flag.String("skip", "^$", "no tests whose names match this regular `expression`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: mutants [-match regexp] [-again] [-sample n [-seed n]] [-list] [-p n] [-by package] [-skip "+
			"regexp] package")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, err := test(ctx, options{pkg: flag.Arg(0), by: *by, without: *without, match: *match, again: *again,
		list: *list, sample: *sample, seed: *seed, atOnce: *atOnce})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}

type options struct {
	pkg, match  string
	without     string // tests that don't run
	by          string // whose tests run; "": the package's own
	again, list bool
	sample      int // how many to try; 0: all
	seed        uint64
	atOnce      int
}

// test runs the mutants of a package and prints their outcomes. It passes if at least 95 of 100 that are not equivalent are killed.
func test(ctx context.Context, o options) (passed bool, err error) {
	p, err := loadOne(ctx, ".", o.pkg)
	if err != nil {
		return false, err
	}
	if o.by != "" {
		if p.Tests, err = directory(ctx, o.by); err != nil {
			return false, err
		}
	}
	if p.without, err = regexp.Compile(o.without); err != nil {
		return false, err
	}
	wanted, err := regexp.Compile(o.match)
	if err != nil {
		return false, err
	}
	mutants, err := find(p)
	if err != nil {
		return false, err
	}
	known, err := readEquivalents(filepath.Join(p.Root, equivalents))
	if err != nil {
		return false, err
	}
	if err := known[p.Name].mark(mutants); err != nil {
		return false, err
	}
	last := filepath.Join(p.Root, ".cache", "mutants", filepath.FromSlash(p.Name)+".survivors")
	var before map[string]bool
	if o.again {
		if before, err = readSurvivors(last); err != nil {
			return false, err
		}
	}
	for _, m := range mutants {
		m.skip = !wanted.MatchString(m.name) || before != nil && !before[m.name]
	}
	if o.sample > 0 {
		fmt.Printf("%s: a sample of %d, -seed %d\n", p.Name, o.sample, o.seed)
		choose(mutants, o.sample, o.seed)
	}
	if o.list {
		for _, m := range mutants {
			if !m.skip {
				fmt.Println(m.name)
			}
		}
		return true, nil
	}
	if err := run(ctx, p, mutants, o.atOnce); err != nil {
		return false, err
	}
	return report(p, mutants, last, o.match == "")
}

// choose skips all mutants but a sample of those that are not equivalent.
func choose(mutants []*mutant, sample int, seed uint64) {
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants)) {
		switch m := mutants[i]; {
		case m.skip:
		case m.equivalent || sample == 0:
			m.skip = true
		default:
			sample--
		}
	}
}
