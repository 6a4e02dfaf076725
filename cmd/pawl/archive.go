package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

func newArchive(a *app) *cobra.Command {
	return cli.Group("archive", "Manage the archive of dead letters",
		`A dead letter that is removed by retention, discard or purge is written to the dead-letter archive
first, with its payload, error and attempt log.`,
		newArchiveLs(a), newArchiveRestore(a))
}

func newArchiveLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var queue string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the archive, newest first", Args: cli.NoArgs,
		Example: "  pawl dlq archive ls --queue mail",
	}
	list.Add(cmd)
	cmd.Flags().StringVar(&queue, "queue", "", "in this queue")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		lacksNode := false
		err := printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[admin.ArchivedTask], error) {
			page, err := a.Admin(client).DeadLetters().ArchivePage(ctx, queue, p)
			lacksNode = lacksNode || len(page.Missing) > 0
			return page, err
		}, view.NewArchived, writeArchive)
		if err == nil && lacksNode { // and so the dead letters in its archive
			return cli.ErrSilent
		}
		return err
	})
	return cmd
}

func writeArchive(w io.Writer, items []admin.ArchivedTask) {
	now := time.Now()
	rows := make([][]string, len(items))
	for i, it := range items {
		message := ""
		if f := it.Task.LastFailure(); f != nil {
			message = text.Short(f.Message, 60)
		}
		rows[i] = []string{it.Place, it.Task.ID, it.Task.Type, it.Task.Queue, it.Cause, text.Ago(it.ArchivedAt, now), message}
	}
	text.Columns(w, "PLACE|ID|TYPE|QUEUE|CAUSE|ARCHIVED|ERROR", rows)
}

func newArchiveRestore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore PLACE...", Short: "Enqueue archived dead letters again, as new tasks", Args: cobra.MinimumNArgs(1),
		Long:    "Enqueue archived dead letters again, as new tasks. PLACE is the first column of \"pawl dlq archive ls\".\nA dead letter can be restored only once: if it was restored before, the command prints the id of that task.",
		Example: "  pawl dlq archive restore 'dead-20260131T120000.000000000Z.jsonl:1'",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		type restored struct {
			Place     string `json:"place"`
			TaskID    string `json:"task_id,omitempty"`
			Duplicate bool   `json:"duplicate"`
			Error     string `json:"error,omitempty"`
		}
		var views []restored
		var refused error
		for part := range slices.Chunk(args, 1000) {
			results, err := a.Admin(client).DeadLetters().Restore(cmd.Context(), part...)
			if err != nil {
				return err
			}
			for _, r := range results {
				v := restored{Place: r.Place, TaskID: r.TaskID, Duplicate: r.Duplicate}
				if r.Err != nil {
					v.Error = cli.OneLine(r.Err)
					refused = errors.Join(refused, fmt.Errorf("%s: %w", r.Place, r.Err))
				}
				views = append(views, v)
			}
		}
		err := a.Print(struct {
			Results []restored `json:"results"`
		}{views}, func(w io.Writer) {
			for _, v := range views {
				if v.Error == "" {
					fmt.Fprintln(w, v.TaskID)
				}
				if v.Duplicate {
					fmt.Fprintf(a.Err, "%s was restored before, as task %s\n", v.Place, v.TaskID)
				}
			}
		})
		return errors.Join(err, refused)
	})
	return cmd
}
