package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

func newWorker(a *app) *cobra.Command {
	return cli.Group("worker", "List workers, and stop them from taking tasks",
		`Workers are connected ("pawl work", or a program with the SDK), or have claimed tasks with single calls within the
last 5 minutes. Workers that have disappeared without signing off are listed as lost for an hour.
Give a worker by its ID, or by its name if it is the only one of that name that is not lost.`,
		newWorkerLs(a), newWorkerShow(a),
		newWorkerQuietVerb(a, "quiet", "Stop workers from taking new tasks", `Stop workers from taking new tasks, for 24 hours from now (--for) or until "pawl worker resume". Running tasks continue, and
workers stay connected; a worker that is restarted takes tasks again.`,
			func(operator admin.Client, ctx context.Context, id string, span time.Duration) (*admin.Worker, error) {
				return operator.Workers().Quiet(ctx, id, span)
			}),
		newWorkerQuietVerb(a, "resume", "Let quiet workers take tasks again",
			`Let quiet workers take tasks again. A worker that is gone can only be given by its ID.`,
			func(operator admin.Client, ctx context.Context, id string, _ time.Duration) (*admin.Worker, error) {
				return operator.Workers().Resume(ctx, id)
			}))
}

func newWorkerLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var f admin.WorkerFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List workers by name", Args: cli.NoArgs,
		Example: "  pawl worker ls\n  pawl worker ls --queue mail --watch",
	}
	list.Add(cmd)
	cmd.Flags().StringVar(&f.Queue, "queue", "", "taking tasks from this queue")
	cmd.Flags().StringVar(&f.Type, "type", "", "taking tasks of this type")
	cmd.Flags().StringVar(&f.Node, "node", "", "connected to this node")
	lost := cmd.Flags().Bool("lost", false, "only lost workers; --lost=false: only the others (default both)")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		if err := list.Check(); err != nil {
			return err
		}
		if cmd.Flags().Changed("lost") {
			f.Lost = lost
		}
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Worker], error) {
			return a.Admin(client).Workers().ListPage(ctx, f, p)
		}, writeWorkers)
	})
	return cmd
}

func writeWorkers(w io.Writer, all []*admin.Worker) {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, x := range all {
		running := fmt.Sprintf("%d/%d", x.Running, x.Slots)
		if x.Lost() {
			running = fmt.Sprintf("held %d", x.Running)
		}
		rows[i] = []string{x.Name, workerState(x), running, text.Short(view.QueueWords(x.Queues), 40), x.Node, x.Version,
			text.Ago(x.SeenAt, now), text.Ago(x.ConnectedAt, now), x.ID}
	}
	text.Columns(w, "WORKER|STATE|RUNNING|QUEUES|NODE|VERSION|SEEN|SINCE|ID", rows)
}

// workerState returns a worker's state in one word.
func workerState(w *admin.Worker) string {
	switch {
	case w.Lost():
		return "lost"
	case w.Draining:
		return "draining"
	case w.Quiet != nil:
		return "quiet"
	case w.Running > 0:
		return "busy"
	}
	return "idle"
}

func newWorkerShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show WORKER", Short: "Show a worker and its tasks", Args: cobra.ExactArgs(1),
		Example: "  pawl worker show host-1/4711"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		id, err := workerID(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		w, err := a.Admin(client).Workers().Get(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.printWorker(w)
	})
	return cmd
}

func newWorkerQuietVerb(a *app, verb, what, long string,
	do func(admin.Client, context.Context, string, time.Duration) (*admin.Worker, error)) *cobra.Command {
	var span time.Duration // 0: 24 hours
	cmd := &cobra.Command{Use: verb + " WORKER...", Short: what, Long: long, Args: cobra.MinimumNArgs(1),
		Example: "  pawl worker " + verb + " host-1/4711 --reason deploy"}
	a.addReason(cmd.Flags())
	if verb == "quiet" {
		cli.PeriodVar(cmd.Flags(), &span, "for", 0, "how long, 1m to 30d (default 24h)")
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var refused []error
		for _, name := range args {
			id, err := workerID(cmd.Context(), client, name)
			var w *admin.Worker
			if err == nil {
				w, err = do(a.Admin(client), cmd.Context(), id, span)
			}
			if err == nil {
				err = a.printWorker(w)
			}
			refused = append(refused, err)
		}
		return errors.Join(refused...)
	})
	return cmd
}

// workerID finds a worker by its id or name. A word that is neither is taken as the id of a worker that has gone.
func workerID(ctx context.Context, client *pawl.Client, word string) (string, error) {
	var named, lost []string
	for w, err := range cli.Known(admin.New(client).Workers().List(ctx, admin.WorkerFilter{})) {
		switch {
		case err != nil:
			return "", err
		case w.ID == word:
			return word, nil
		case w.Name == word && w.Lost():
			lost = append(lost, w.ID)
		case w.Name == word:
			named = append(named, w.ID)
		}
	}
	if len(named) == 0 {
		named = lost
	}
	switch len(named) {
	case 0:
		if strings.ContainsFunc(word, func(c rune) bool { return c != '-' && c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }) {
			return "", fmt.Errorf("worker %q: no worker has this name", word)
		}
		return word, nil
	case 1:
		return named[0], nil
	}
	return "", fmt.Errorf("worker %q: %d workers have this name; give the ID of one: %s", word, len(named),
		strings.Join(named[:min(len(named), 10)], ", "))
}

func (a *app) printWorker(w *admin.Worker) error {
	return a.PrintAnswer(func(out io.Writer) {
		now := time.Now()
		pid, quiet := "", ""
		if w.PID != 0 {
			pid = strconv.Itoa(w.PID)
		}
		if q := w.Quiet; q != nil {
			quiet = fmt.Sprintf("since %s%s, until %s", text.Clock(q.At, now), byWhom(q.By), text.Clock(q.Until, now))
			if q.Reason != "" {
				quiet += ": " + q.Reason
			}
		}
		lost, runs := "", "Runs"
		if w.Lost() {
			lost, runs = fmt.Sprintf("at %s: %s", text.Clock(w.LostAt, now), lostWhy(w.LostReason)), "Held"
		}
		text.Fields(out, "ID", w.ID, "Worker", w.Name, "State", workerState(w), "Lost", lost, "Quiet", quiet, "Host",
			w.Host, "Process", pid, "Version", w.Version, "Address", w.Address, "Node", w.Node, "Queues", view.QueueWords(w.Queues),
			"Types", strings.Join(w.Types, ", "), runs, fmt.Sprintf("%d of %d", w.Running, w.Slots), "Connected",
			text.Clock(w.ConnectedAt, now), "Seen", text.Clock(w.SeenAt, now), "Claimed", text.Clock(w.ClaimedAt, now))
		if len(w.Tasks) == 0 {
			return
		}
		fmt.Fprintln(out)
		rows := make([][]string, len(w.Tasks))
		for i, t := range w.Tasks {
			rows[i] = []string{t.ID, t.Type, t.Queue, strconv.Itoa(t.Attempt), text.Ago(t.Since, now), text.Ago(t.LeaseExpiresAt, now)}
		}
		text.Columns(out, "TASK|TYPE|QUEUE|ATTEMPT|SINCE|LEASE ENDS", rows)
	})
}

// lostWhy explains why a worker counts as lost.
func lostWhy(reason string) string {
	switch reason {
	case "disconnected":
		return "its connection broke, and it did not come back"
	case "lease_lost":
		return "it let a lease end, and has made no call since"
	}
	return reason
}
