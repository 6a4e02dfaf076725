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
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// taskVerb is a verb that applies to a task by id, or to all tasks that match a filter: then it is an operation.
type taskVerb struct {
	use, done, short, long string
	action                 admin.Action
	states                 []pawltype.State // the default of a filter without states; nil: those of the action
	// do applies the verb to one task; nil: the verb takes only a filter.
	do func(ctx context.Context, client *pawl.Client, id string) error
	// flags adds the verb's own flags, with which set fills in the operation.
	flags func(*pflag.FlagSet)
	with  string
	set   func(*admin.OperationSpec)
}

func newTaskBulk(a *app, v taskVerb) *cobra.Command {
	var filter cli.FilterFlags
	var flags operateFlags
	cmd := &cobra.Command{
		Use: v.use + " [ID... | FILTER...]", Short: v.short, Long: v.long + `
With a filter this starts an operation, which continues in the background even if this command is
interrupted: see "pawl operation". ` + cli.FilterHelp,
		Example: fmt.Sprintf("  pawl task %s%s --queue mail --type mail.welcome --dry-run", v.use, v.with),
	}
	if v.do != nil {
		cmd.Example = fmt.Sprintf("  pawl task %s%s 0199f3c2-…\n", v.use, v.with) + cmd.Example
	} else {
		cmd.Use = v.use + " [FILTER...]"
	}
	filter.Add(cmd.Flags(), true)
	flags.add(a, cmd.Flags())
	if v.flags != nil {
		v.flags(cmd.Flags())
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if v.do == nil || cli.AreFilter(args) {
			if err := filter.Take(args); err != nil {
				return err
			}
			args = nil
		}
		switch {
		case len(args) > 0 && filter.Given():
			return cli.Usage("give either ids or a filter")
		case len(args) > 0 && flags.given():
			return cli.Usage("--detach, --rate, --max and --canary are for filters, not for ids")
		case len(args) == 0 && !filter.Given():
			return cli.Usage("give ids, or a filter such as --queue")
		case len(args) > 0:
			return a.eachTask(cmd.Context(), client, v, args, &flags)
		}
		f, err := filter.Read(time.Now())
		if err != nil {
			return err
		}
		if len(f.States) == 0 {
			f.States = v.states
		}
		o := admin.OperationSpec{Action: v.action, Filter: &f}
		if v.set != nil {
			v.set(&o)
		}
		return a.operate(cmd.Context(), client, o, &flags, v.done)
	})
	return cmd
}

// eachTask applies the verb to each id. It prints refusals and continues.
func (a *app) eachTask(ctx context.Context, client *pawl.Client, v taskVerb, ids []string, flags *operateFlags) error {
	result := cli.CountView{Matched: int64(len(ids)), DryRun: flags.DryRun}
	var refused []error
	bar := a.Progress(v.done, len(ids))
	for i, id := range ids {
		if flags.DryRun {
			break
		}
		id, err := a.TaskID(ctx, client, id)
		if err == nil {
			err = v.do(ctx, client, id)
		}
		switch {
		case err == nil:
			result.Done++
		case errors.Is(err, pawltype.ErrUnavailable) || ctx.Err() != nil:
			bar.Done()
			return errors.Join(errors.Join(refused...), fmt.Errorf("%d of %d %s: %w", result.Done, len(ids), v.done, err))
		default:
			refused = append(refused, err)
		}
		bar.Set(i + 1)
	}
	bar.Done()
	return errors.Join(a.printCount(result, "task", v.done), errors.Join(refused...))
}

// printCount prints what a bulk command did, or would do.
func (a *app) printCount(c cli.CountView, noun, done string) error {
	return a.Print(c, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "%s would be %s\n", text.Count(c.Matched, noun), done)
			return
		}
		fmt.Fprintf(w, "%s %s\n", text.Count(c.Done, noun), done)
	})
}

// readJSON reads a payload that must be JSON.
func (a *app) readJSON(arg string) (json.RawMessage, error) {
	data, err := a.readPayload(arg)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, cli.Usage("payload %q is not a JSON value", text.Short(string(data), 60))
	}
	return data, nil
}

// pairs formats a map as NAME=VALUE, sorted.
func pairs(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name+"="+m[name])
	}
	return strings.Join(out, ", ")
}
