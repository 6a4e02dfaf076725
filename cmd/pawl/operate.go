package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/pawltype"
)

// operateFlags are the flags of every command that starts an operation.
type operateFlags struct {
	cli.BulkFlags
	detach      bool
	rate        string
	max, canary int64
}

func (o *operateFlags) add(a *app, flags *pflag.FlagSet) {
	o.BulkFlags.Add(flags)
	flags.BoolVar(&o.detach, "detach", false, `don't wait: print the operation's id, for "pawl operation"`)
	flags.StringVar(&o.rate, "rate", "", "maximum rate: "+cli.RateForms+" (default: as fast as possible without delaying other work)")
	cli.PositiveVar(flags, &o.max, "max", 0, "change at most this many tasks (default: all that match)")
	cli.PositiveVar(flags, &o.canary, "canary", 0, "pause after this many tasks, so that you can check their outcome")
	a.addReason(flags)
}

// given reports whether any flag that is only for operations is set.
func (o *operateFlags) given() bool {
	return o.detach || o.rate != "" || o.max != 0 || o.canary != 0
}

// fill sets an operation's fields from the flags.
func (o *operateFlags) fill(to *admin.OperationSpec) (err error) {
	to.Max, to.Canary = o.max, o.canary
	if o.rate != "" {
		to.Rate, err = cli.ReadPerSecond("--rate", o.rate)
	}
	return err
}

// operate previews an operation, asks for confirmation, starts it and waits until it is no longer running. done names
// what it does to a task, as a participle.
func (a *app) operate(ctx context.Context, client *pawl.Client, o admin.OperationSpec, flags *operateFlags, done string) error {
	if err := flags.fill(&o); err != nil {
		return err
	}
	p, err := a.Admin(client).Operations().Preview(ctx, o)
	if err != nil {
		return err
	}
	said := a.Response().(*pawlv1.StartOperationResponse).GetPreview()
	if name := o.Filter.Queue; p.Matched == 0 && name != "" {
		if _, err := a.Admin(client).Queues().Get(ctx, name); errors.Is(err, pawltype.ErrNotFound) {
			return err // it may be misspelt
		}
	}
	matched := p.Matched
	if o.Max > 0 {
		matched = min(matched, o.Max)
	}
	atLeast := ""
	if p.IsLowerBound && matched != o.Max {
		atLeast = "at least "
	}
	if flags.DryRun {
		if o.Max > 0 {
			said = proto.CloneOf(said)
			said.Matched, said.IsLowerBound = matched, atLeast != ""
		}
		return a.printPreview(said, matched, atLeast, p, true, done)
	}
	if matched == 0 && !p.IsLowerBound {
		return errors.Join(a.printPreview(said, 0, "", p, false, done), errNoMatch)
	}
	if !flags.Yes {
		a.showSample(p, matched)
	}
	what := fmt.Sprintf("%s%s will be %s", atLeast, text.Count(matched, "task"), done)
	if matched == 0 {
		what = "all tasks that match will be " + done + "; none was found in the time for a count"
	}
	if err := a.Confirm(ctx, &flags.BulkFlags, what); err != nil {
		return err
	}
	started, err := a.Admin(client).Operations().Start(ctx, o)
	if err != nil {
		return err
	}
	if flags.detach {
		said := a.Response().(*pawlv1.StartOperationResponse).GetOperation()
		return a.PrintMessage(said, func(w io.Writer) { fmt.Fprintln(w, started.ID) })
	}
	last, err := a.follow(ctx, client, started, done)
	if err != nil {
		return err
	}
	if err = a.printOutcome(last, done); err == nil && last.State == admin.OperationDone && last.Counts.Matched == 0 {
		return errNoMatch
	}
	if err != nil || last.State != admin.OperationPaused || last.StoppedBy != nil {
		return errors.Join(err, incomplete(last, done))
	}
	fmt.Fprintf(a.Err, "paused: %s. See 'pawl task ls --operation %s', then continue with 'pawl operation resume %[2]s'\n",
		last.StopReason, last.ID)
	return nil
}

// errNoMatch is the error of a bulk command that found nothing to do.
var errNoMatch = errors.New("no task matches: nothing was changed")

// printPreview prints what an operation would apply to: said is what the API answered.
func (a *app) printPreview(said *pawlv1.OperationPreview, matched int64, atLeast string, p *admin.OperationPreview, dryRun bool,
	done string) error {
	var shown apijson.Writer
	shown.Open('{')
	shown.Boolean("dry_run", dryRun)
	shown.Fields(said)
	shown.Close('}')
	return a.Print(json.RawMessage(shown.B), func(w io.Writer) {
		if !dryRun {
			fmt.Fprintf(w, "%s %s\n", text.Count(0, "task"), done)
			return
		}
		fmt.Fprintf(w, "%s%s would be %s\n", atLeast, text.Count(matched, "task"), done)
		writeSample(w, p.Sample)
	})
}

// showSample shows the user at a terminal some of the tasks that an operation applies to.
func (a *app) showSample(p *admin.OperationPreview, matched int64) {
	if !text.IsTerminal(a.In) {
		return
	}
	writeSample(a.Err, p.Sample)
	if more := matched - int64(len(p.Sample)); more > 0 {
		fmt.Fprintf(a.Err, "… and %d more\n", more)
	}
}

func writeSample(w io.Writer, tasks []*pawltype.Task) {
	now := time.Now()
	rows := make([][]string, len(tasks))
	for i, t := range tasks {
		rows[i] = []string{t.ID, t.Type, t.Queue, string(t.State), text.Ago(t.CreatedAt, now)}
	}
	if len(rows) > 0 {
		text.Columns(w, "ID|TYPE|QUEUE|STATE|CREATED", rows)
	}
}

// follow shows an operation's progress until it is no longer running. If interrupted, the operation goes on.
func (a *app) follow(ctx context.Context, client *pawl.Client, o *admin.Operation, done string) (*admin.Operation, error) {
	bar := a.Progress(done, int(max(o.Counts.Total, 1)))
	last, err := a.Admin(client).Operations().Wait(ctx, o.ID, func(now *admin.Operation) {
		bar.Tell(int(now.Counts.Matched), now.WaitsFor)
	})
	bar.Done()
	if err != nil {
		return nil, fmt.Errorf("%w; the operation continues: see pawl operation show %s", err, o.ID)
	}
	return last, nil
}

// printOutcome prints what an operation has done.
func (a *app) printOutcome(o *admin.Operation, done string) error {
	return a.PrintAnswer(func(w io.Writer) {
		fmt.Fprintf(w, "%s %s\n", text.Count(o.Counts.Done, "task"), done)
		writeRest(w, &o.Counts)
	})
}

// incomplete returns an error if an operation is not done, or not for all tasks that it met. Tasks that were as it
// wants them count as done.
func incomplete(o *admin.Operation, done string) error {
	if o.State != admin.OperationDone {
		return fmt.Errorf("operation %s is %s: %s", o.ID, o.State, o.StopReason)
	}
	if left := o.Counts.Matched - o.Counts.Done - o.Counts.Skipped["unchanged"]; left > 0 {
		return fmt.Errorf("%d of %s not %s: see 'pawl operation show %s'", left, text.Count(o.Counts.Matched, "task"), done, o.ID)
	}
	return nil
}

// writeRest prints the outcomes of the tasks that were not changed.
func writeRest(w io.Writer, c *admin.OperationCounts) {
	for _, reason := range slices.Sorted(maps.Keys(c.Skipped)) {
		fmt.Fprintf(w, "%s skipped: %s\n", text.Count(c.Skipped[reason], "task"), reason)
	}
	if c.Failed > 0 {
		fmt.Fprintf(w, "%s failed:\n", text.Count(c.Failed, "task"))
	}
	for _, e := range c.Errors {
		fmt.Fprintf(w, "  %s: %s\n", e.TaskID, text.Short(e.Message, 120))
	}
}
