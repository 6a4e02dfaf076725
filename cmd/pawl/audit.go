package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

func newAudit(a *app) *cobra.Command {
	var list cli.ListFlags
	var f admin.AuditFilter
	var since, until string
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what, when and why", Args: cli.NoArgs,
		Long: `Show what operators did, newest first: to queues, tasks, dead letters, schedules and the cluster. Entries are
kept for 90 days, or as long as "pawl cluster audit-retention" says. An actor is the name of a token, prefixed with
*/ if it is valid in all namespaces. On a server without tokens it is the name given with --actor.

-o json shows whole entries, with the values before and after each change.`,
		Example: "  pawl audit --since 2h\n  pawl audit --action 'queue.*' --queue mail\n  pawl audit --by lena@ops1 -o json",
	}
	list.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "since this time: RFC 3339, or an age such as 2h")
	flags.StringVar(&until, "until", "", "before this time: RFC 3339, or an age such as 7d")
	flags.StringVar(&f.Actor, "by", "", "only this actor, such as ci, or */oncall for a token valid in all namespaces")
	flags.StringVar(&f.Action, "action", "", "only this action, such as queue.pause or 'queue.*'")
	flags.StringVar(&f.TargetKind, "target-kind", "", "only this kind of target: queue, task, group, operation, schedule, node, "+
		"shard or cluster")
	flags.StringVar(&f.Target, "target", "", "only targets with this name, or the task with this id")
	flags.StringVar(&f.Queue, "queue", "", "only this queue and its tasks")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		now := time.Now()
		var err error
		if f.Since, err = cli.ReadMoment("--since", since, now); err != nil {
			return err
		}
		if f.Until, err = cli.ReadMoment("--until", until, now); err != nil {
			return err
		}
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.AuditEntry], error) {
			return a.Admin(client).Audit().ListPage(ctx, f, p)
		}, writeAudit)
	})
	return cmd
}

func writeAudit(w io.Writer, items []*admin.AuditEntry) {
	rows := make([][]string, len(items))
	for i, e := range items {
		target := strings.TrimSpace(e.TargetKind + " " + e.Target)
		if e.Queue != "" && e.TargetKind != "queue" { // an operation says what it does, but not where
			target += " in queue " + e.Queue
		}
		rows[i] = []string{e.At.Local().Format("2006-01-02 15:04:05"), actorText(e), e.Action, target, text.Short(changeText(e), 80),
			text.Short(e.Reason, 40)}
	}
	text.Columns(w, "TIME|ACTOR|ACTION|TARGET|CHANGE|REASON", rows)
}

// actorText returns the actor's name, or at least the address that the call came from.
func actorText(e *admin.AuditEntry) string {
	if e.Actor != "" {
		return e.Actor
	}
	return "(" + e.Address + ")"
}

// changeText summarizes a change.
func changeText(e *admin.AuditEntry) string {
	if e.Tasks > 0 {
		return text.Count(e.Tasks, "task")
	}
	side := func(b json.RawMessage) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(`{}"`, r) {
				return -1
			}
			return r
		}, strings.NewReplacer(", ", ", ", ",", ", ").Replace(string(b)))
	}
	before, after := side(e.Before), side(e.After)
	switch {
	case before == "":
		return after
	case after == "":
		return before + " → nothing"
	}
	return before + " → " + after
}

// byWhom returns " by NAME"; "" if the name is not known.
func byWhom(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}
