package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// breakerFlags are the rule of a queue's circuit breakers, or of the breaker of one type.
type breakerFlags struct {
	mode    string
	rule    admin.Breaker
	forType string
}

func (b *breakerFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.mode, "breaker", "", "circuit breaker of each type: on, off, or with --for-type inherit (the queue's)")
	cli.PositiveVar(flags, &b.rule.FailureRate, "breaker-failure-rate", 0, "`percent` of failed attempts at which it opens (default 50)")
	cli.PeriodVar(flags, &b.rule.Window, "breaker-window", 0, "window in which attempts are counted (default 1m)")
	cli.PositiveVar(flags, &b.rule.MinAttempts, "breaker-min-attempts", 0,
		"attempts in the window below which the breaker stays closed (default 20)")
	cli.PeriodVar(flags, &b.rule.Hold, "breaker-hold", 0, "how long it stays open before a probe (default 30s)")
	cli.PeriodVar(flags, &b.rule.MaxHold, "breaker-max-hold", 0, "maximum time it stays open when probes keep failing (default 10m)")
	cli.PositiveVar(flags, &b.rule.Probes, "breaker-probes", 0, "successful probes in a row that close it (default 3)")
	flags.StringVar(&b.forType, "for-type", "", "apply the breaker settings to this `type`")
}

// breakerNumbers are the flags that set a field of the rule.
var breakerNumbers = []string{"breaker-failure-rate", "breaker-window", "breaker-min-attempts", "breaker-hold", "breaker-max-hold",
	"breaker-probes"}

// over applies the given flags to a queue's settings.
func (b *breakerFlags) over(flags *pflag.FlagSet, q admin.QueueSettings) (admin.QueueSettings, error) {
	numbers, ofType := slices.ContainsFunc(breakerNumbers, flags.Changed), flags.Changed("for-type")
	switch {
	case !numbers && !flags.Changed("breaker") && ofType:
		return q, cli.Usage("--for-type %s: give a breaker setting to change", b.forType)
	case !numbers && !flags.Changed("breaker"):
		return q, nil
	case flags.Changed("breaker") && b.mode != "on" && b.mode != "off" && (b.mode != "inherit" || !ofType):
		return q, cli.Usage("--breaker %q is neither on nor off, nor inherit with --for-type", b.mode)
	case numbers && (b.mode == "off" || b.mode == "inherit"):
		return q, cli.Usage("--breaker %s and a rule exclude each other", b.mode)
	}
	rule, own := q.Breakers[b.forType]
	if !own && q.Breaker != nil { // the rule that applies so far
		rule = *q.Breaker
	}
	rule, err := b.named(flags, rule)
	if err != nil {
		return q, err
	}
	if !ofType {
		if q.Breaker = &rule; b.mode == "off" {
			q.Breaker = nil
		}
		return q, nil
	}
	if q.Breakers = maps.Clone(q.Breakers); q.Breakers == nil {
		q.Breakers = map[string]admin.Breaker{}
	}
	switch b.mode {
	case "off":
		q.Breakers[b.forType] = admin.Breaker{Off: true}
	case "inherit":
		delete(q.Breakers, b.forType)
	default:
		q.Breakers[b.forType] = rule
	}
	return q, nil
}

// named applies the given flags to a rule. It rejects 0, which the server would take as unset.
func (b *breakerFlags) named(flags *pflag.FlagSet, rule admin.Breaker) (admin.Breaker, error) {
	rule.Off = false
	if flags.Changed("breaker-hold") && rule.MaxHold < b.rule.Hold {
		rule.MaxHold = 0 // the default, which is never less
	}
	for _, f := range []struct {
		name     string
		from, to *int
	}{
		{"breaker-failure-rate", &b.rule.FailureRate, &rule.FailureRate},
		{"breaker-min-attempts", &b.rule.MinAttempts, &rule.MinAttempts},
		{"breaker-probes", &b.rule.Probes, &rule.Probes},
	} {
		if flags.Changed(f.name) {
			*f.to = *f.from
		}
	}
	for _, f := range []struct {
		name     string
		from, to *time.Duration
	}{
		{"breaker-window", &b.rule.Window, &rule.Window},
		{"breaker-hold", &b.rule.Hold, &rule.Hold},
		{"breaker-max-hold", &b.rule.MaxHold, &rule.MaxHold},
	} {
		switch {
		case !flags.Changed(f.name):
		case *f.from <= 0:
			return rule, cli.Usage("--%s %s is not positive", f.name, *f.from)
		default:
			*f.to = *f.from
		}
	}
	return rule, nil
}

func breakerText(b *admin.Breaker) string {
	if b == nil || b.Off {
		return "none"
	}
	return fmt.Sprintf("opens at %d %% failures of %d or more in %s; held for %s to %s, %s", b.FailureRate, b.MinAttempts,
		text.Period(b.Window), text.Period(b.Hold), text.Period(b.MaxHold), text.Count(int64(b.Probes), "probe"))
}

// writeBreakers lists the rules of single types and the open breakers.
func writeBreakers(w io.Writer, q *admin.Queue, now time.Time) {
	if len(q.Settings.Breakers) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, typ := range slices.Sorted(maps.Keys(q.Settings.Breakers)) {
			rule := q.Settings.Breakers[typ]
			rows = append(rows, []string{typ, breakerText(&rule)})
		}
		text.Columns(w, "TYPE|BREAKER", rows)
	}
	if q.BreakersOpen == 0 {
		return
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, b := range q.Breakers {
		until := "-"
		if !b.Until.IsZero() {
			until = text.Clock(b.Until, now)
		}
		probes := strconv.Itoa(b.Passed) + "/" + strconv.Itoa(b.Probes)
		rows = append(rows, []string{b.Type, string(b.State), text.Clock(b.Since, now), until, probes, b.Reason})
	}
	text.Columns(w, "BREAKER|STATE|SINCE|TRIES|PROBES|REASON", rows)
	if more := q.BreakersOpen - len(q.Breakers); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

func newQueueCloseBreaker(a *app) *cobra.Command {
	var typ string
	cmd := &cobra.Command{
		Use: "close-breaker QUEUE", Short: "Close the circuit breakers of a queue", Args: cobra.ExactArgs(1),
		Long: `Close the circuit breaker of a type, or all breakers of a queue: the tasks run again, and counting restarts.
No command opens a breaker: pause the type instead.`,
		Example: "  pawl queue close-breaker mail --type welcome --reason 'provider is back'",
	}
	cmd.Flags().StringVar(&typ, "type", "", "only that of this `type`")
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		q, err := a.Admin(client).Queues().CloseBreaker(cmd.Context(), args[0], typ)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) { writeQueues(w, []*admin.Queue{q}) })
	})
	return cmd
}
