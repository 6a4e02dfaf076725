package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
)

// filterFlags are the filter that REST, CLI and UI share, as flags.
type filterFlags struct {
	pawl.Filter
	states        []string
	after, before string
}

func (f *filterFlags) add(flags *pflag.FlagSet, withState bool) {
	flags.StringVar(&f.Queue, "queue", "", "only of this queue")
	flags.StringVar(&f.Type, "type", "", "only of this type")
	flags.StringVar(&f.Tag, "tag", "", "only with this tag")
	flags.StringVar(&f.Key, "key", "", "only with this key")
	flags.StringVar(&f.Worker, "worker", "", "only held last by this worker")
	flags.StringVar(&f.Error, "error", "", "only whose last error contains this text")
	flags.StringVar(&f.Fingerprint, "fingerprint", "", "only whose type and last error have this fingerprint, as pawl dlq groups shows it")
	flags.StringVar(&f.Operation, "operation", "", "only that this operation was the last to change")
	flags.StringVar(&f.after, "created-after", "", "only created after this time: RFC 3339, or an age such as 2h")
	flags.StringVar(&f.before, "created-before", "", "only created before this time: RFC 3339, or an age such as 7d")
	flags.StringVar(&f.Text, "q", "", "only whose payload contains this text")
	if withState {
		flags.StringSliceVar(&f.states, "state", nil, "only in these states: scheduled, ready, claimed, retrying, succeeded, discarded, dead, poisoned, cancelled")
	}
}

var allStates = []pawl.State{
	pawl.StateScheduled, pawl.StateReady, pawl.StateClaimed, pawl.StateRetrying,
	pawl.StateSucceeded, pawl.StateDiscarded, pawl.StateDead, pawl.StatePoisoned, pawl.StateCancelled,
}

// read checks the flags and gives the filter.
func (f *filterFlags) read(now time.Time) (pawl.Filter, error) {
	out := f.Filter
	for _, word := range f.states {
		s := pawl.State(word)
		if !slices.Contains(allStates, s) {
			return out, usage("--state %q is not a state", word)
		}
		out.States = append(out.States, s)
	}
	var err error
	if out.CreatedAfter, err = readMoment("--created-after", f.after, now); err != nil {
		return out, err
	}
	out.CreatedBefore, err = readMoment("--created-before", f.before, now)
	return out, err
}

// given reports whether any flag narrows the choice.
func (f *filterFlags) given() bool {
	return len(f.states) > 0 || strings.Join([]string{f.Queue, f.Type, f.Tag, f.Key, f.Worker, f.Error, f.Fingerprint, f.Operation, f.Text, f.after, f.before}, "") != ""
}

// readMoment reads a time, or an age that lies before now.
func readMoment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := parsePeriod(s); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, usage("%s %q is neither a time such as 2026-01-31T12:00:00Z nor an age such as 2h", flag, s)
}
