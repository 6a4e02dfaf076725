package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func newNamespace(a *app) *cobra.Command {
	return cli.Group("ns", "Manage namespaces and their quotas",
		`A namespace has its own queues, schedules and tasks, isolated from those of other namespaces. A token is
valid in one namespace or in all; in the latter case --namespace selects one.`,
		newNamespaceLs(a), newNamespaceShow(a), newNamespaceAdd(a), newNamespaceSet(a), newNamespaceRm(a))
}

func newNamespaceLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{Use: "ls [PATTERN]", Short: "List the namespaces that you may use", Args: cobra.MaximumNArgs(1),
		Long:    "List the namespaces that you may use: all, or those whose names match a pattern, in which * stands for\nany characters.",
		Example: "  pawl ns ls\n  pawl ns ls 'team-*'"}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		filter := admin.NamespaceFilter{Pattern: cli.PatternArg(args)}
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Namespace], error) {
			page, err := a.Admin(client).Namespaces().ListPage(ctx, filter, p)
			for _, n := range page.Items {
				page.Missing = cli.JoinMissing(page.Missing, n.Missing)
			}
			return page, err
		}, writeNamespaces)
	})
	return cmd
}

func writeNamespaces(w io.Writer, all []*admin.Namespace) {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, n := range all {
		u := usageOf(n)
		rows[i] = []string{n.Name, ofQuota(u.Backlog, n.Quotas.MaxBacklog, number),
			ofQuota(u.BacklogBytes, n.Quotas.MaxBacklogBytes, humanize.Bytes), ofQuota(u.Running, n.Quotas.MaxRunning, number),
			ofQuota(u.Queues, n.Quotas.MaxQueues, number), ofQuota(u.Schedules, n.Quotas.MaxSchedules, number),
			text.Ago(n.CreatedAt, now), n.CreatedBy}
	}
	text.Columns(w, "NAME|BACKLOG|BYTES|RUNNING|QUEUES|SCHEDULES|CREATED|BY", rows)
}

// usageOf returns a namespace's usage; values below 0 are unknown.
func usageOf(n *admin.Namespace) admin.NamespaceUsage {
	if n.Usage == nil {
		return admin.NamespaceUsage{Backlog: -1, BacklogBytes: -1, Running: -1, Queues: -1, Schedules: -1}
	}
	return *n.Usage
}

// ofQuota formats usage and quota. Usage below 0 is unknown; a quota of 0 is none.
func ofQuota(used, limit int64, text func(int64) string) string {
	out := "?"
	if used >= 0 {
		out = text(used)
	}
	if limit > 0 {
		out += " of " + text(limit)
	}
	return out
}

func newNamespaceShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Show a namespace, its quotas and usage", Args: cobra.ExactArgs(1),
		Example: "  pawl ns show team-a"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		n, err := a.Admin(client).Namespaces().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return partial(a.printNamespace(n), n.Missing)
	})
	return cmd
}

func (a *app) printNamespace(n *admin.Namespace) error {
	a.noteMissing(n.Missing)
	return a.PrintAnswer(func(w io.Writer) { writeNamespace(w, n) })
}

func writeNamespace(w io.Writer, n *admin.Namespace) {
	u := usageOf(n)
	rate := func(limit int64, text func(int64) string) string {
		if limit == 0 {
			return "no limit"
		}
		return text(limit) + "/s on each node"
	}
	q := n.Quotas
	text.Fields(w, "namespace", n.Name, "created", text.Clock(n.CreatedAt, time.Now()), "by", n.CreatedBy,
		"backlog", ofQuota(u.Backlog, q.MaxBacklog, number), "backlog bytes", ofQuota(u.BacklogBytes, q.MaxBacklogBytes, humanize.Bytes),
		"running", ofQuota(u.Running, q.MaxRunning, number), "queues", ofQuota(u.Queues, q.MaxQueues, number),
		"schedules", ofQuota(u.Schedules, q.MaxSchedules, number), "requests", rate(q.MaxRequestsPerSecond, number),
		"payload bytes", rate(q.MaxBytesPerSecond, humanize.Bytes))
}

// quotaFlags are the flags that set quotas.
type quotaFlags struct {
	backlog, running, queues, schedules, requests int64
	backlogBytes, bytes                           cli.SizeValue
}

func (q *quotaFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Int64Var(&q.backlog, "max-backlog", 0, "tasks that have not ended; 0: no limit")
	f.Var(&q.backlogBytes, "max-backlog-bytes", "payload bytes of tasks that have not ended, such as 1GiB; 0: no limit")
	f.Int64Var(&q.running, "max-running", 0, "tasks that run at the same time; 0: no limit")
	f.Int64Var(&q.queues, "max-queues", 0, "number of queues; 0: no limit")
	f.Int64Var(&q.schedules, "max-schedules", 0, "number of schedules; 0: no limit")
	f.Int64Var(&q.requests, "max-requests", 0, "calls per second on each node, where a batch counts once per task; 0: no limit")
	f.Var(&q.bytes, "max-bytes", "payload bytes per second on each node, such as 10MiB; 0: no limit")
}

// change returns the quotas that were given, and whether any was.
func (q *quotaFlags) change(cmd *cobra.Command) (c admin.QuotaChange, given bool) {
	for _, f := range []struct {
		name string
		v    *int64
		to   **int64
	}{{"max-backlog", &q.backlog, &c.MaxBacklog}, {"max-backlog-bytes", (*int64)(&q.backlogBytes), &c.MaxBacklogBytes},
		{"max-running", &q.running, &c.MaxRunning}, {"max-queues", &q.queues, &c.MaxQueues},
		{"max-schedules", &q.schedules, &c.MaxSchedules}, {"max-requests", &q.requests, &c.MaxRequestsPerSecond},
		{"max-bytes", (*int64)(&q.bytes), &c.MaxBytesPerSecond}} {
		if cmd.Flags().Changed(f.name) {
			*f.to, given = f.v, true
		}
	}
	return c, given
}

func newNamespaceAdd(a *app) *cobra.Command {
	var quotas quotaFlags
	cmd := &cobra.Command{Use: "add NAME", Short: "Create a namespace", Args: cobra.ExactArgs(1),
		Long: "Create a namespace. The default quotas are 1000000 tasks that have not ended, 1GiB of their payloads, 1000 queues and\n" +
			"100000 schedules; the others are unlimited.",
		Example: "  pawl ns add team-a\n  pawl ns add team-b --max-backlog 50000 --max-running 100"}
	quotas.add(cmd)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		change, _ := quotas.change(cmd)
		unconfirmed, err := a.Admin(client).Namespaces().Create(cmd.Context(), args[0], change)
		return a.namespaceDone(args[0], "is there", unconfirmed, err)
	})
	return cmd
}

func newNamespaceSet(a *app) *cobra.Command {
	var quotas quotaFlags
	cmd := &cobra.Command{Use: "set NAME", Short: "Change the quotas of a namespace", Args: cobra.ExactArgs(1),
		Long: "Change the quotas of a namespace; those not given are unchanged. Existing tasks, queues and schedules stay even if they " +
			"exceed a quota.",
		Example: "  pawl ns set team-a --max-backlog 200000\n  pawl ns set team-a --max-running 0"}
	quotas.add(cmd)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		change, given := quotas.change(cmd)
		if !given {
			return cli.Usage("give the quotas to change")
		}
		n, err := a.Admin(client).Namespaces().SetQuotas(cmd.Context(), args[0], change)
		if err != nil {
			return err
		}
		a.warnUnconfirmed(n.Unconfirmed)
		return a.printNamespace(&n.Namespace)
	})
	return cmd
}

func newNamespaceRm(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm NAME", Short: "Remove an empty namespace", Args: cobra.ExactArgs(1),
		Long:    "Remove a namespace that has no queues, schedules or tokens. Its ended tasks are removed with it.",
		Example: "  pawl ns rm team-a"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		unconfirmed, err := a.Admin(client).Namespaces().Delete(cmd.Context(), args[0])
		return a.namespaceDone(args[0], "is removed", unconfirmed, err)
	})
	return cmd
}

// namespaceDone prints what was done to a namespace.
func (a *app) namespaceDone(name, done string, unconfirmed []string, err error) error {
	if err != nil {
		return err
	}
	a.warnUnconfirmed(unconfirmed)
	return a.Print(struct {
		Name        string   `json:"name"`
		Unconfirmed []string `json:"unconfirmed_nodes,omitempty"`
	}{name, unconfirmed}, func(w io.Writer) { fmt.Fprintf(w, "namespace %q %s\n", name, done) })
}
