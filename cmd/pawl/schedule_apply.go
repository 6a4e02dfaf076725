package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/config"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/pawltype"
)

// scheduleFile is the input of "schedule apply".
type scheduleFile struct {
	owner     string
	schedules []*pawlv1.ScheduleSpec
}

const maxScheduleFile = 16 << 20 // bytes

type applyFlags struct {
	file     string
	dryRun   bool
	prune    bool
	takeOver bool
}

func newScheduleApply(a *app) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Apply a file of schedules", Args: cli.NoArgs,
		Long: `Apply a file of schedules: YAML or JSON, with the fields of the REST API. Applying the same file
again changes nothing, and a schedule whose times don't change keeps its next tick. All schedules in the
file are checked before any is changed.

  owner: billing              # whose schedules these are; --prune removes those of the
  schedules:                  # same owner that are not in the file any more
    - name: nightly-report
      cron: "30 2 * * *"
      time_zone: Europe/Berlin
      missed: once
      task: {type: report, queue: reports, payload: {kind: day}}`,
		Example: "  pawl schedule apply -f schedules.yaml --dry-run\n  pawl schedule apply -f schedules.yaml --prune",
	}
	f := cmd.Flags()
	f.StringVarP(&flags.file, "file", "f", "", "the `file`; - for standard input")
	f.BoolVar(&flags.dryRun, "dry-run", false, "show what would change, but change nothing")
	f.BoolVar(&flags.prune, "prune", false, "remove schedules of the file's owner that are not in the file")
	f.BoolVar(&flags.takeOver, "take-over", false, "also change schedules of another owner")
	_ = cmd.MarkFlagRequired("file")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		file, err := a.readSchedules(flags.file)
		if err != nil {
			return err
		}
		return a.applySchedules(cmd.Context(), a.Admin(client), file, flags)
	})
	return cmd
}

// readSchedules reads a file of schedules. Unknown fields are rejected: a typo must not pass for a default.
func (a *app) readSchedules(name string) (file scheduleFile, err error) {
	var text []byte
	if name == "-" {
		text, err = cli.ReadAll(a.In, "standard input", maxScheduleFile)
	} else {
		text, err = cli.ReadFile(name, maxScheduleFile)
	}
	if err != nil {
		return file, err
	}
	plain, err := config.YAMLToJSON(text)
	if err != nil {
		return file, cli.Usage("%s: %v", name, err)
	}
	if file.owner, file.schedules, err = apijson.DecodeSchedules(plain); err != nil {
		return file, cli.Usage("%s: %w", name, err)
	}
	return file, nil
}

// appliedView is the outcome for a schedule in a file.
type appliedView struct {
	Name   string          `json:"name"`
	Change string          `json:"change"` // created, updated, unchanged, removed
	Next   time.Time       `json:"next_run_at,omitzero"`
	Before json.RawMessage `json:"before,omitempty"` // a schedule's spec, as in the REST API
	After  json.RawMessage `json:"after,omitempty"`
	etag   string          // of the existing schedule; "": none
}

// putIfUnchanged puts a schedule that was tried, unless it has been changed since.
func putIfUnchanged(ctx context.Context, operator admin.Client, s admin.ScheduleSpec, tried *appliedView) (*admin.ScheduleChange, error) {
	if tried.etag == "" {
		return operator.Schedules().Create(ctx, s)
	}
	return operator.Schedules().PutIfMatch(ctx, tried.etag, s)
}

func (a *app) applySchedules(ctx context.Context, operator admin.Client, file scheduleFile, flags applyFlags) error {
	schedules, views, err := a.trySchedules(ctx, operator, file, flags)
	if err != nil {
		return err
	}
	removed, err := a.pruned(ctx, operator, file, schedules, flags)
	if err != nil {
		return err
	}
	if !flags.dryRun {
		for i, s := range schedules {
			done, err := putIfUnchanged(ctx, operator, s, &views[i])
			if err != nil {
				return fmt.Errorf("%w; %d of %d schedules were applied: repeat the command", err, i, len(schedules))
			}
			views[i].Change, views[i].Next = done.Change, done.Schedule.NextRunAt
		}
		for _, v := range removed {
			if err := operator.Schedules().Delete(ctx, v.Name); err != nil && !errors.Is(err, pawltype.ErrNotFound) {
				return err
			}
		}
	}
	views = append(views, removed...)
	return a.Print(struct {
		Items []appliedView `json:"items"`
	}{views}, func(w io.Writer) { writeApplied(w, views, flags.dryRun) })
}

// trySchedules asks what each schedule of a file would change, so that nothing is changed if any is invalid.
func (a *app) trySchedules(ctx context.Context, operator admin.Client, file scheduleFile, flags applyFlags) (schedules []admin.ScheduleSpec,
	views []appliedView, err error) {
	var errs []error
	seen := map[string]bool{}
	for i, v := range file.schedules {
		s, err := view.SpecOf(v, file.owner)
		if err == nil && seen[v.Name] {
			err = errors.New("the name occurs twice")
		}
		var tried *admin.ScheduleChange
		if err == nil {
			seen[v.Name] = true
			tried, err = operator.Schedules().Preview(ctx, s)
		}
		if err == nil && tried.Before != nil && tried.Before.Owner != s.Owner && !flags.takeOver {
			err = fmt.Errorf("its owner is %q, not %q: --take-over changes that", tried.Before.Owner, s.Owner)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %d, %q: %w", i+1, v.Name, err))
			continue
		}
		shown := appliedView{Name: s.Name, Change: tried.Change, Next: tried.Schedule.NextRunAt}
		said := a.Response().(*pawlv1.PutScheduleResponse)
		shown.After = apijson.Marshal(said.GetSchedule().GetSpec())
		if tried.Before != nil {
			shown.Before, shown.etag = apijson.Marshal(said.GetBefore().GetSpec()), tried.Before.ETag
		}
		schedules, views = append(schedules, s), append(views, shown)
	}
	return schedules, views, errors.Join(errs...)
}

// pruned returns the schedules of the file's owner that are not in the file.
func (a *app) pruned(ctx context.Context, operator admin.Client, file scheduleFile, schedules []admin.ScheduleSpec,
	flags applyFlags) (removed []appliedView, err error) {
	if !flags.prune {
		return nil, nil
	}
	if file.owner == "" {
		return nil, cli.Usage("--prune needs an owner in the file: it removes the owner's schedules that are not in the file")
	}
	for s, err := range operator.Schedules().List(ctx) {
		if err != nil {
			return nil, err
		}
		if s.Owner == file.owner && !slices.ContainsFunc(schedules, func(in admin.ScheduleSpec) bool { return in.Name == s.Name }) {
			before := specIn(a.Response().(*pawlv1.ListSchedulesResponse), s.Name)
			removed = append(removed, appliedView{Name: s.Name, Change: "removed", Before: before})
		}
	}
	return removed, nil
}

// specIn returns the spec of one of the listed schedules.
func specIn(page *pawlv1.ListSchedulesResponse, name string) json.RawMessage {
	for _, s := range page.GetItems() {
		if s.GetSpec().GetName() == name {
			return apijson.Marshal(s.GetSpec())
		}
	}
	return nil
}

func writeApplied(w io.Writer, views []appliedView, dryRun bool) {
	counts := map[string]int{}
	for _, v := range views {
		counts[v.Change]++
		if v.Change == "unchanged" {
			continue
		}
		fmt.Fprintf(w, "%s %s\n", v.Change, text.Printable(v.Name))
		if dryRun {
			for _, line := range diffOf(v.Before, v.After) {
				fmt.Fprintf(w, "  %s\n", text.Printable(line))
			}
		}
	}
	would := ""
	if dryRun {
		would = "would be "
	}
	fmt.Fprintf(w, "%s%d created, %d updated, %d removed, %d unchanged\n", would, counts["created"], counts["updated"], counts["removed"],
		counts["unchanged"])
}

// diffOf lists the fields that differ between two schedules.
func diffOf(before, after json.RawMessage) (lines []string) {
	old, now := flat(before), flat(after)
	names := make([]string, 0, len(old)+len(now))
	for name := range old {
		names = append(names, name)
	}
	for name := range now {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, wasThere := old[name]
		is, isThere := now[name]
		switch {
		case was == is:
		case !wasThere:
			lines = append(lines, fmt.Sprintf("+ %s: %s", name, is))
		case !isThere:
			lines = append(lines, fmt.Sprintf("- %s: %s", name, was))
		default:
			lines = append(lines, fmt.Sprintf("~ %s: %s → %s", name, was, is))
		}
	}
	return lines
}

// flat returns a schedule as names and values: objects are flattened, lists are not.
func flat(spec json.RawMessage) map[string]string {
	out := map[string]string{}
	if spec == nil {
		return out
	}
	var loose map[string]any
	d := json.NewDecoder(bytes.NewReader(spec))
	d.UseNumber() // otherwise two long ids might look the same
	if err := d.Decode(&loose); err != nil {
		panic(err) // it is an object
	}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for name, value := range m {
			if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
				walk(prefix+name+".", inner)
				continue
			}
			text, _ := json.Marshal(value)
			out[prefix+name] = string(text)
		}
	}
	walk("", loose)
	delete(out, "name")
	return out
}
