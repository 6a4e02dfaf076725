package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
)

// namespaceView is a namespace for programs.
type namespaceView struct {
	Name      string     `json:"name"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	CreatedBy string     `json:"created_by,omitempty"`
}

func newNamespace(a *app) *cobra.Command {
	return group("ns", "List, make and remove namespaces",
		`A namespace has queues, schedules and tasks of its own, and sees nothing of another. A token is good
for one of them or for all; with one of the latter, --namespace chooses.`,
		newNamespaceLs(a),
		newNamespaceDo(a, "add", "Make a namespace", "is there", pawl.Admin.AddNamespace),
		newNamespaceDo(a, "rm", "Remove a namespace without queues, schedules and tokens", "is removed", pawl.Admin.RemoveNamespace))
}

func newNamespaceLs(a *app) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{Use: "ls", Short: "List the namespaces that you may go to", Args: noArgs, Example: "  pawl ns ls"}
	list.add(cmd)
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		if err := list.check(); err != nil {
			return err
		}
		all, next, err := collect(list, func(p pawl.PageRequest) (pawl.Page[*pawl.NamespaceInfo], error) {
			return client.Admin().NamespacesPage(ctx, p)
		})
		if err != nil {
			return err
		}
		views := make([]namespaceView, len(all))
		for i, n := range all {
			views[i] = namespaceView{n.Name, whenSet(n.CreatedAt), n.CreatedBy}
		}
		return a.print(listView[namespaceView]{views, next}, func(w io.Writer) {
			now := time.Now()
			rows := make([][]string, len(all))
			for i, n := range all {
				rows[i] = []string{n.Name, ago(n.CreatedAt, now), n.CreatedBy}
			}
			columns(w, "NAME|CREATED|BY", rows)
		})
	})
	return cmd
}

func newNamespaceDo(a *app, verb, short, done string, do func(pawl.Admin, context.Context, string) ([]string, error)) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1), Example: "  pawl ns " + verb + " team-a"}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		behind, err := do(client.Admin(), cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a.warnUnconfirmed(behind)
		return a.print(struct {
			Name        string   `json:"name"`
			Unconfirmed []string `json:"unconfirmed_nodes,omitempty"`
		}{args[0], behind}, func(w io.Writer) { fmt.Fprintf(w, "namespace %q %s\n", args[0], done) })
	})
	return cmd
}
