package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

// auditView is an entry of the audit for programs.
type auditView struct {
	Shard      uint32          `json:"shard"`
	Seq        uint64          `json:"seq"`
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor"`
	Address    string          `json:"address,omitempty"`
	Face       string          `json:"face"`
	Reason     string          `json:"reason,omitempty"`
	Action     string          `json:"action"`
	TargetKind string          `json:"target_kind"`
	Target     string          `json:"target,omitempty"`
	Queue      string          `json:"queue,omitempty"`
	Tasks      int64           `json:"tasks,omitempty"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
	Hash       string          `json:"hash"`
	Previous   string          `json:"previous_hash"`
}

func newAudit(a *app) *cobra.Command {
	var list listFlags
	var f admin.AuditFilter
	var since, until string
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what, when and why", Args: noArgs,
		Long: `Show what operators did, newest first: to queues, tasks, dead letters, schedules and the cluster. Entries are
kept for 90 days. Who acts is the name of their token, after */ if it is one of all namespaces; on a server without
tokens, what they called themselves (--actor).

-o json shows all of an entry, with what was changed before and after.`,
		Example: "  pawl audit --since 2h\n  pawl audit --action 'queue.*' --queue mail\n  pawl audit --by lena@ops1 -o json",
	}
	list.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only since this time: RFC 3339, or an age such as 2h")
	flags.StringVar(&until, "until", "", "only before this time: RFC 3339, or an age such as 7d")
	flags.StringVar(&f.Actor, "by", "", "only of this actor, such as ci, or */oncall for a token of all namespaces")
	flags.StringVar(&f.Action, "action", "", "only this action, such as queue.pause, or all of a kind: 'queue.*'")
	flags.StringVar(&f.TargetKind, "target-kind", "", "only on a queue, task, group, operation, schedule, node, shard or the cluster")
	flags.StringVar(&f.Target, "target", "", "only on what has this name, or the task of this id")
	flags.StringVar(&f.Queue, "queue", "", "only on this queue, or what is in it")
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		if err := list.check(); err != nil {
			return err
		}
		now := time.Now()
		var err error
		if f.Since, err = readMoment("--since", since, now); err != nil {
			return err
		}
		if f.Until, err = readMoment("--until", until, now); err != nil {
			return err
		}
		items, next, err := collect(list, func(p pawltype.PageRequest) (pawltype.Page[*admin.AuditEntry], error) {
			return a.admin(client).Audit().ListPage(ctx, f, p)
		})
		if err != nil {
			return err
		}
		view := listView[auditView]{Items: make([]auditView, len(items)), NextCursor: next}
		for i, e := range items {
			view.Items[i] = auditView(*e)
		}
		err = a.print(view, func(w io.Writer) { writeAudit(w, items) })
		if next != "" && a.format == "table" {
			fmt.Fprintf(a.err, "there are more: --limit, or --cursor %s\n", next)
		}
		return err
	})
	return cmd
}

func writeAudit(w io.Writer, items []*admin.AuditEntry) {
	rows := make([][]string, len(items))
	for i, e := range items {
		target := strings.TrimSpace(e.TargetKind + " " + e.Target)
		rows[i] = []string{e.At.Local().Format("2006-01-02 15:04:05"), actorText(e), e.Action, target, short(changeText(e), 80), short(e.Reason, 40)}
	}
	columns(w, "TIME|ACTOR|ACTION|TARGET|CHANGE|REASON", rows)
}

// actorText says who it was, or at least from where.
func actorText(e *admin.AuditEntry) string {
	if e.Actor != "" {
		return e.Actor
	}
	return "(" + e.Address + ")"
}

// changeText says in short what was changed.
func changeText(e *admin.AuditEntry) string {
	if e.Tasks > 0 {
		return count(e.Tasks, "task")
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

// byWhom names who did something, as far as it is known.
func byWhom(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}
