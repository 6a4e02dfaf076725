package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
)

// taskVerb is a verb for one task that also works for all that a filter matches.
type taskVerb struct {
	use, done, short, long string
	reason                 bool
	states                 []pawl.State // that it applies to
	do                     func(ctx context.Context, client *pawl.Client, id, reason string) error
}

func newTaskBulk(a *app, v taskVerb) *cobra.Command {
	var filter filterFlags
	var bulk bulkFlags
	var reason string
	var limit int
	cmd := &cobra.Command{
		Use: v.use + " [ID...]", Short: v.short, Long: v.long,
		Example: fmt.Sprintf("  pawl task %s 0199f3c2-…\n  pawl task %s --queue mail --type mail.welcome --dry-run", v.use, v.use),
	}
	filter.add(cmd.Flags(), true)
	bulk.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "max", 0, "with a filter: at most so many (default: all that match)")
	if v.reason {
		cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx := cmd.Context()
		switch {
		case len(args) > 0 && filter.given():
			return usage("name either ids or a filter")
		case len(args) == 0 && !filter.given():
			return usage("name ids, or a filter such as --queue")
		case limit < 0:
			return usage("--max %d is negative", limit)
		}
		ids := args
		if len(args) == 0 {
			f, err := filter.read(time.Now())
			if err != nil {
				return err
			}
			if ids, err = matching(ctx, client, f, v.states, limit); err != nil {
				return err
			}
		}
		return a.eachTask(ctx, client, v, ids, reason, &bulk, len(args) == 0)
	})
	return cmd
}

// matching gives the ids of all tasks that match and are in one of the states.
func matching(ctx context.Context, client *pawl.Client, f pawl.Filter, states []pawl.State, limit int) ([]string, error) {
	if len(f.States) == 0 {
		f.States = states
	}
	var ids []string
	for t, err := range client.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(states, t.State) {
			ids = append(ids, t.ID)
		}
		if limit > 0 && len(ids) == limit {
			break
		}
	}
	return ids, nil
}

// eachTask applies the verb to each id. A task chosen by a filter that has moved on meanwhile is passed over; any other
// refusal is told, and the others go on.
func (a *app) eachTask(ctx context.Context, client *pawl.Client, v taskVerb, ids []string, reason string, bulk *bulkFlags, filtered bool) error {
	result := countView{Matched: int64(len(ids)), DryRun: bulk.dryRun}
	if filtered && !bulk.dryRun && len(ids) > 0 {
		if err := a.confirm(ctx, bulk, fmt.Sprintf("%s will be %s", count(result.Matched, "task"), v.done)); err != nil {
			return err
		}
	}
	var refused error
	bar := a.progress(v.done, len(ids))
	for i, id := range ids {
		if bulk.dryRun {
			break
		}
		err := v.do(ctx, client, id, reason)
		switch {
		case err == nil:
			result.Done++
		case filtered && (errors.Is(err, pawl.ErrWrongState) || errors.Is(err, pawl.ErrNotFound)):
		case errors.Is(err, pawl.ErrUnavailable) || ctx.Err() != nil:
			bar.done()
			return fmt.Errorf("%d of %d %s: %w", result.Done, len(ids), v.done, err)
		default:
			refused = errors.Join(refused, err)
		}
		bar.set(i + 1)
	}
	bar.done()
	return errors.Join(a.printCount(result, "task", v.done), refused)
}

// printCount writes what a bulk command did, or would do.
func (a *app) printCount(c countView, noun, done string) error {
	return a.print(c, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "%s would be %s\n", count(c.Matched, noun), done)
			return
		}
		fmt.Fprintf(w, "%s %s\n", count(c.Done, noun), done)
	})
}

// readJSON reads a payload that must be JSON.
func (a *app) readJSON(arg string) (json.RawMessage, error) {
	data, err := a.readPayload(arg)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, usage("payload %q is not a JSON value", short(string(data), 60))
	}
	return data, nil
}

// pairs writes a map as NAME=VALUE, sorted.
func pairs(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name+"="+m[name])
	}
	return strings.Join(out, ", ")
}
