package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// enough is how many of 100 mutants that are not equivalent must be killed.
const enough = 95

// report prints the mutants that survived, and the package's row of the table in docs/guarantees.md.
func report(p *pkg, mutants []*mutant, last string, all bool) (passed bool, err error) {
	var alive []string
	count := map[outcome]int{}
	equivalent := 0
	for _, m := range mutants {
		switch {
		case m.skip:
		case m.equivalent:
			equivalent++
		default:
			if count[m.outcome]++; m.outcome == survived || m.outcome == notCovered {
				alive = append(alive, m.name)
				fmt.Printf("%s:%d: %s: %s\n", filepath.Join(p.Name, filepath.Base(m.file.path)), m.line, m.outcome, m.name)
			}
		}
	}
	dead := count[killed] + count[timedOut]
	counted := dead + len(alive)
	score := 100.0
	if counted > 0 {
		score = 100 * float64(dead) / float64(counted)
	}
	fmt.Printf("\n| package | mutants | killed | equivalent | survived | of 100 killed |\n|---|---|---|---|---|---|\n| `%s` | "+
		"%d | %d | %d | %d | %.1f |\n",
		p.Name, counted+equivalent, dead, equivalent, len(alive), score)
	if count[timedOut] > 0 {
		fmt.Printf("%d of the killed ran out of time.\n", count[timedOut])
	}
	if count[refused] > 0 {
		fmt.Printf("%d more don't compile.\n", count[refused])
	}
	if all {
		if err := os.MkdirAll(filepath.Dir(last), 0o755); err != nil {
			return false, err
		}
		if err := os.WriteFile(last, []byte(strings.Join(alive, "\n")), 0o600); err != nil {
			return false, err
		}
	}
	return score >= enough, nil
}

func readSurvivors(path string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("which mutants survived the last run is not known: %w", err)
	}
	all := map[string]bool{}
	for _, name := range strings.Split(string(b), "\n") {
		all[name] = true
	}
	return all, nil
}

// judged are the mutants of a package that no test can detect, with the reasons.
type judged map[string]string

// readEquivalents reads the list of equivalent mutants, by package. A package starts with a line with its directory,
// followed by the mutants' names, each followed by the reason on a line that starts with a tab.
func readEquivalents(path string) (map[string]judged, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, of := map[string]judged{}, judged(nil)
	var names []string // without a reason yet
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			if of == nil || len(names) == 0 {
				return nil, fmt.Errorf("%s:%d: a reason without a mutant", path, n)
			}
			for _, name := range names {
				of[name] = strings.TrimSpace(line)
			}
			names = nil
		case !strings.Contains(line, ": "):
			if all[line] != nil {
				return nil, fmt.Errorf("%s:%d: %s was listed before", path, n, line)
			}
			of = judged{}
			all[line] = of
		default:
			names = append(names, line)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("%s: %q has no reason", path, names[0])
	}
	return all, s.Err()
}

// mark marks the equivalent ones. Mutants that no longer exist must be removed from the list.
func (j judged) mark(mutants []*mutant) error {
	var gone []error
	for name := range j {
		i := slices.IndexFunc(mutants, func(m *mutant) bool { return m.name == name })
		if i < 0 {
			gone = append(gone, fmt.Errorf("%s: no mutant is called %q", equivalents, name))
			continue
		}
		mutants[i].equivalent = true
	}
	return errors.Join(gone...)
}
