package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
)

// limitFlags are the limits of a queue, of each of its keys, or of a single key.
type limitFlags struct {
	forKey     string
	forEachKey bool
	running    int
	rate       string
	burst      int
	weight     int
	none       bool
}

func (l *limitFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&l.running, "max-running", 0, "maximum number of running tasks; 0 for no limit")
	flags.StringVar(&l.rate, "rate", "", "maximum rate at which tasks start: "+cli.RateForms+"; none for no limit")
	cli.PositiveVar(flags, &l.burst, "burst", 0, "number of tasks that may start together after an idle time (default: as many as "+
		"in one period)")
	cli.PositiveVar(flags, &l.weight, "weight", 0, "with --for-key: its share relative to other keys (default 1)")
	flags.BoolVar(&l.none, "no-limits", false, "drop the limits; with --for-key, the key's own")
	flags.StringVar(&l.forKey, "for-key", "", "set the limits of this `key`")
	flags.BoolVar(&l.forEachKey, "for-each-key", false, "set the limits of each key that has none of its own")
}

// over applies the given limits to a queue's settings.
func (l *limitFlags) over(flags *pflag.FlagSet, q admin.QueueSettings) (admin.QueueSettings, error) {
	limited := flags.Changed("max-running") || flags.Changed("rate") || flags.Changed("burst") || flags.Changed("weight")
	switch {
	case limited && l.none:
		return q, cli.Usage("--no-limits excludes --max-running, --rate, --burst and --weight")
	case flags.Changed("for-key") && l.forEachKey:
		return q, cli.Usage("--for-key and --for-each-key exclude each other")
	case (flags.Changed("for-key") || l.forEachKey) && !limited && !l.none:
		return q, cli.Usage("give a limit: --max-running, --rate, --weight or --no-limits")
	case flags.Changed("weight") && !flags.Changed("for-key"):
		return q, cli.Usage("--weight is for a single key: give it with --for-key")
	case flags.Changed("for-key"):
		q.Keys = maps.Clone(q.Keys)
		if l.none {
			delete(q.Keys, l.forKey)
			return q, nil
		}
		rules, had := q.Keys[l.forKey]
		if !had { // the limits that apply so far
			rules.QueueLimits = q.PerKey
		}
		var err error
		if rules.QueueLimits, err = l.limits(flags, rules.QueueLimits); err != nil {
			return q, err
		}
		if flags.Changed("weight") {
			rules.Weight = l.weight
		}
		if q.Keys == nil {
			q.Keys = map[string]admin.KeyLimits{}
		}
		q.Keys[l.forKey] = rules
		return q, nil
	case l.forEachKey:
		var err error
		q.PerKey, err = l.limits(flags, q.PerKey)
		return q, err
	}
	var err error
	q.QueueLimits, err = l.limits(flags, q.QueueLimits)
	return q, err
}

func (l *limitFlags) limits(flags *pflag.FlagSet, was admin.QueueLimits) (admin.QueueLimits, error) {
	if l.none {
		return admin.QueueLimits{}, nil
	}
	if flags.Changed("max-running") {
		was.MaxRunning = l.running
	}
	if flags.Changed("rate") {
		rate, err := cli.ReadRate(l.rate)
		if err != nil {
			return was, err
		}
		was.Rate = rate
	}
	if flags.Changed("burst") {
		if was.Rate == (admin.RateLimit{}) {
			return was, cli.Usage("--burst %d needs a --rate", l.burst)
		}
		was.Rate.Burst = l.burst
	}
	return was, nil
}

func limitsText(l admin.QueueLimits) string {
	var parts []string
	if l.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("%d running", l.MaxRunning))
	}
	if r := l.Rate; r != (admin.RateLimit{}) {
		parts = append(parts, fmt.Sprintf("%d in %s, %d at once", r.Limit, text.Period(r.Period), r.Burst))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// writeRules lists the rules of single keys and the paused parts.
func writeRules(w io.Writer, q *admin.Queue, now time.Time) {
	if len(q.Settings.Keys) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, key := range slices.Sorted(maps.Keys(q.Settings.Keys)) {
			rules := q.Settings.Keys[key]
			rows = append(rows, []string{key, limitsText(rules.QueueLimits), strconv.Itoa(rules.Weight)})
		}
		text.Columns(w, "KEY|LIMITS|WEIGHT", rows)
	}
	if len(q.PausedSubsets) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, h := range q.PausedSubsets {
			rows = append(rows, []string{view.PauseText(h), text.Clock(h.At, now), h.By, h.Reason})
		}
		text.Columns(w, "PAUSED|SINCE|BY|REASON", rows)
	}
}
