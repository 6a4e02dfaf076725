package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/apijson"
)

func newEvents(a *app) *cobra.Command {
	var f admin.EventFilter
	var kinds []string
	var limit int
	cmd := &cobra.Command{
		Use: "events", Short: "Follow events as they happen", Args: cli.NoArgs,
		Long: `Follow what happens to tasks, queues, breakers, schedules and operations, until interrupted.
A line "reset" means that events were missed: the server keeps them for a few minutes, and loses
them when a leader changes.

-o json prints one object per line, with a cursor: --cursor continues after it.`,
		Example: "  pawl events --queue mail --kind task.dead,task.lease_lost\n  pawl events --kind 'queue.*' -o json",
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Queue, "queue", "", "in this queue")
	flags.StringVar(&f.Type, "type", "", "only of this task type")
	flags.StringVar(&f.TaskID, "task", "", "only of the task with this id")
	flags.StringSliceVar(&kinds, "kind", nil, "only these kinds, such as task.dead or 'task.*'")
	flags.StringVar(&f.After, "cursor", "", "start after this cursor, from an earlier event")
	flags.DurationVar(&f.Digest, "digest", 0, "only show that something happened, at most once per interval, such as 1s")
	cli.PositiveVar(flags, &limit, "limit", 0, "stop after this many")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		if a.Format == "yaml" {
			return cli.AsUsage(errors.New("-o: events are shown as table or json"))
		}
		for _, k := range kinds {
			f.Kinds = append(f.Kinds, admin.EventKind(k))
		}
		shown := 0
		for e, err := range a.Admin(client).Events(cmd.Context(), f) {
			switch {
			case cmd.Context().Err() != nil:
				return nil
			case err != nil:
				return err
			}
			if err := a.printEvent(e); err != nil {
				return err
			}
			if shown++; shown == limit {
				return nil
			}
		}
		return nil
	})
	return cmd
}

func (a *app) printEvent(e *admin.Event) error {
	if a.Format == "json" {
		var line apijson.Writer
		line.Open('{')
		line.Fields(eventProto(e))
		line.Str("cursor", e.Cursor)
		line.Close('}')
		_, err := fmt.Fprintf(a.Out, "%s\n", line.B)
		return err
	}
	_, err := fmt.Fprintln(a.Out, eventLine(e))
	return err
}

// eventProto returns an event as the API sends it, without its cursor.
func eventProto(e *admin.Event) *pawlv1.Event {
	out := &pawlv1.Event{Kind: string(e.Kind), Queue: e.Queue, Type: e.Type, Key: e.Key, TaskId: e.TaskID,
		State: pawlv1.State(pawlv1.State_value["STATE_"+strings.ToUpper(string(e.State))]), Attempt: int32(e.Attempt), Worker: e.Worker,
		Reason: e.Reason, Error: e.Error, Name: e.Name, OperationId: e.OperationID, Count: e.Count, Shard: e.Shard, Index: e.Index}
	if !e.Time.IsZero() {
		out.Time = timestamppb.New(e.Time)
	}
	return out
}

// eventLine formats an event for people.
func eventLine(e *admin.Event) string {
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	words := []string{at.Local().Format("15:04:05.000"), fmt.Sprintf("%-15s", e.Kind)}
	for _, w := range []struct{ name, value string }{{"", e.Queue}, {"", e.Type}, {"", e.TaskID}, {"", e.Name}, {"", e.OperationID},
		{"key", e.Key}, {"worker", e.Worker}, {"reason", e.Reason}, {"error", e.Error}} {
		switch {
		case w.value == "":
		case w.name == "":
			words = append(words, text.Printable(w.value))
		default:
			words = append(words, fmt.Sprintf("%s=%q", w.name, text.Short(w.value, 120)))
		}
	}
	if e.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt=%d", e.Attempt))
	}
	if e.Count > 0 {
		words = append(words, fmt.Sprintf("ticks=%d", e.Count))
	}
	return strings.Join(words, "  ")
}
