package main

import (
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/pawltype"
)

// uniqueFlags make a task unique: the queue holds one task of a key at a time.
type uniqueFlags struct {
	key, onConflict string
	content         bool
	states          []string
	flags           *pflag.FlagSet
}

func (u *uniqueFlags) add(flags *pflag.FlagSet) {
	u.flags = flags
	flags.StringVar(&u.key, "unique", "", "unique key: one task with it in the queue at a time")
	flags.BoolVar(&u.content, "unique-content", false, "one task with this type and payload in the queue at a time")
	flags.StringVar(&u.onConflict, "on-conflict", "",
		"what to do if another task holds the unique key: keep, replace, keep_last or reject "+
			"(default keep)")
	flags.StringSliceVar(&u.states, "unique-states", nil,
		"states in which it holds its key (default: all before the end, which are required)")
}

// read returns the option, and whether it was given.
func (u *uniqueFlags) read() (_ pawltype.UniqueOpts, given bool, err error) {
	keyed := u.flags.Changed("unique")
	switch {
	case keyed && u.content:
		return pawltype.UniqueOpts{}, false, cli.Usage("--unique %q and --unique-content exclude each other", u.key)
	case keyed && u.key == "":
		return pawltype.UniqueOpts{}, false, cli.Usage("--unique is empty: use --unique-content for a key made of type and payload")
	case !keyed && !u.content:
		for _, name := range []string{"on-conflict", "unique-states"} {
			if u.flags.Changed(name) {
				return pawltype.UniqueOpts{}, false, cli.Usage("--%s is for tasks with --unique or --unique-content", name)
			}
		}
		return pawltype.UniqueOpts{}, false, nil
	}
	out := pawltype.UniqueOpts{Key: u.key, OnConflict: pawltype.OnConflict(u.onConflict)}
	switch out.OnConflict {
	case "", pawltype.OnConflictKeep, pawltype.OnConflictReplace, pawltype.OnConflictKeepLast, pawltype.OnConflictReject:
	default:
		return out, false, cli.Usage("--on-conflict %q is not one of keep, replace, keep_last, reject", u.onConflict)
	}
	if len(u.states) == 0 {
		return out, true, nil
	}
	states, err := cli.ReadStates("--unique-states", u.states)
	out.States = states
	return out, err == nil, err
}

// uniqueText returns a unique key in one line: how conflicts are resolved, which ended states hold the key too, and the
// task that it waits for.
func uniqueText(t *pawltype.Task) string {
	if t.Unique == nil {
		return ""
	}
	s := t.Unique.Key + " (on conflict " + string(t.Unique.OnConflict)
	for _, state := range t.Unique.States {
		if state.Ended() {
			s += ", held when " + string(state)
		}
	}
	s += ")"
	if t.WaitsFor != "" {
		s += ", waits for " + t.WaitsFor
	}
	return s
}
