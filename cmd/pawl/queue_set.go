package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/pawltype"
)

// settingsFlags are a queue's settings.
type settingsFlags struct {
	order          string
	keyOrder       string
	retry          retryFlags
	maxAttempts    int
	lease, timeout time.Duration
	maxWait        time.Duration
	keep           admin.Retention
	maxLength      int64
	limits         limitFlags
	breaker        breakerFlags
	defaults       bool
}

func (s *settingsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.order, "order", "", "order of priorities: strict, or weights of high, normal and low such as 70,20,10")
	flags.StringVar(&s.keyOrder, "key-order", "", "strict: tasks of a key run one at a time, in the order they were enqueued; or none "+
		"(default none)")
	s.retry.add(flags)
	cli.PositiveVar(flags, &s.maxAttempts, "max-attempts", 0, "failures after which a task is a dead letter (default 5)")
	cli.PeriodVar(flags, &s.lease, "lease", 0, "lease of a claim (default 30s)")
	cli.PeriodVar(flags, &s.timeout, "timeout", 0, "time limit of one run; 0 for none")
	cli.PeriodVar(flags, &s.keep.Succeeded, "keep-succeeded", 0, "how long tasks are kept after success (default 1d)")
	cli.PeriodVar(flags, &s.keep.Discarded, "keep-discarded", 0, "how long discarded tasks are kept (default 1d)")
	cli.PeriodVar(flags, &s.keep.Cancelled, "keep-cancelled", 0, "how long cancelled tasks are kept (default 1d)")
	cli.PeriodVar(flags, &s.keep.Dead, "keep-dead", 0, "how long dead letters are kept (default 14d)")
	cli.PeriodVar(flags, &s.keep.Poisoned, "keep-poisoned", 0, "how long poisoned tasks are kept (default 14d)")
	cli.PeriodVar(flags, &s.maxWait, "max-wait", 0, "how long a task may be ready before the queue needs attention (default 5m)")
	flags.Int64Var(&s.maxLength, "max-length", 0, "maximum number of waiting tasks; 0 for no limit")
	s.limits.add(flags)
	s.breaker.add(flags)
	flags.BoolVar(&s.defaults, "defaults", false, "start from the defaults instead of the queue's settings")
}

// over applies the given flags to a queue's settings.
func (s *settingsFlags) over(flags *pflag.FlagSet, q admin.QueueSettings) (admin.QueueSettings, error) {
	if flags.Changed("order") {
		w, err := readOrder(s.order)
		if err != nil {
			return q, err
		}
		q.Weights = w
	}
	if flags.Changed("key-order") {
		switch s.keyOrder {
		case "none":
			q.KeyOrder = admin.KeyOrderNone
		case string(admin.KeyOrderStrict):
			q.KeyOrder = admin.KeyOrderStrict
		default:
			return q, cli.Usage("--key-order %q is neither none nor strict", s.keyOrder)
		}
	}
	var err error
	if q.Retry, _, err = s.retry.over(q.Retry); err != nil {
		return q, err
	}
	for _, f := range []struct {
		name     string
		from, to *time.Duration
		none     bool // 0 is a valid value
	}{
		{"lease", &s.lease, &q.Lease, false},
		{"timeout", &s.timeout, &q.Timeout, true},
		{"max-wait", &s.maxWait, &q.MaxWait, false},
		{"keep-succeeded", &s.keep.Succeeded, &q.Retention.Succeeded, false},
		{"keep-discarded", &s.keep.Discarded, &q.Retention.Discarded, false},
		{"keep-cancelled", &s.keep.Cancelled, &q.Retention.Cancelled, false},
		{"keep-dead", &s.keep.Dead, &q.Retention.Dead, false},
		{"keep-poisoned", &s.keep.Poisoned, &q.Retention.Poisoned, false},
	} {
		if !flags.Changed(f.name) {
			continue
		}
		if *f.from < 0 || *f.from == 0 && !f.none {
			return q, cli.Usage("--%s %s is not positive", f.name, *f.from)
		}
		*f.to = *f.from
	}
	if flags.Changed("max-attempts") {
		q.MaxAttempts = s.maxAttempts
	}
	if flags.Changed("max-length") {
		q.MaxLength = s.maxLength
	}
	if q, err = s.limits.over(flags, q); err != nil {
		return q, err
	}
	return s.breaker.over(flags, q)
}

// readOrder parses "strict" as nil, and three weights otherwise.
func readOrder(s string) (*admin.PriorityWeights, error) {
	if s == "strict" {
		return nil, nil
	}
	var w [3]int
	parts := strings.Split(s, ",")
	for i := range w {
		if len(parts) != len(w) {
			return nil, cli.Usage("--order %q is neither strict nor three weights such as 70,20,10", s)
		}
		n, err := strconv.Atoi(strings.TrimSpace(parts[i]))
		if err != nil {
			return nil, cli.Usage("--order %q: %q is not a number", s, parts[i])
		}
		w[i] = n
	}
	return &admin.PriorityWeights{High: w[0], Normal: w[1], Low: w[2]}, nil
}

func newQueueSet(a *app) *cobra.Command {
	var settings settingsFlags
	cmd := &cobra.Command{
		Use: "set QUEUE", Short: "Change the settings of a queue", Args: cobra.ExactArgs(1),
		Long: `Change the settings of a queue, creating it if necessary. Settings that you don't give keep their values; with
--defaults they return to their defaults.`,
		Example: `  pawl queue set mail --max-attempts 10 --retry-initial 5s --keep-dead 30d
  pawl queue set mail --order 70,20,10 --max-length 100000
  pawl queue set mail --max-running 50 --rate 100/1s
  pawl queue set accounts --key-order strict
  pawl queue set mail --for-each-key --max-running 2
  pawl queue set mail --breaker on --breaker-failure-rate 80
  pawl queue set mail --breaker off --for-type welcome
  pawl queue set mail --for-key big-customer --max-running 10 --weight 5
  pawl queue set mail --defaults`,
	}
	settings.add(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if !anyLocal(cmd) {
			return cli.Usage("give a setting to change")
		}
		if _, err := settings.over(cmd.Flags(), admin.QueueSettings{}); err != nil {
			return err
		}
		q, err := settings.put(cmd.Context(), cmd.Flags(), a.Admin(client), args[0])
		if err != nil {
			return err
		}
		return a.printQueue(q)
	})
	return cmd
}

// put changes the settings on the condition that they are still those that were read, so that no concurrent change is lost.
func (s *settingsFlags) put(ctx context.Context, flags *pflag.FlagSet, operator admin.Client, name string) (*admin.Queue, error) {
	old, err := operator.Queues().Get(ctx, name)
	if errors.Is(err, pawltype.ErrNotFound) {
		settings, err := s.over(flags, admin.QueueSettings{})
		if err != nil {
			return nil, err
		}
		return operator.Queues().Put(ctx, name, settings)
	}
	if err != nil {
		return nil, err
	}
	base := old.Settings
	if s.defaults {
		base = admin.QueueSettings{}
	}
	settings, err := s.over(flags, base)
	if err != nil {
		return nil, err
	}
	return operator.Queues().PutIfVersion(ctx, name, old.Version, settings)
}

// anyLocal reports whether any of the command's own flags was given.
func anyLocal(cmd *cobra.Command) bool {
	given := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	return given
}
