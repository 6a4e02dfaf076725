package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func newGroup(a *app) *cobra.Command {
	return cli.Group("group", "Manage groups of tasks that finish together", "",
		newGroupAdd(a), newGroupLs(a), newGroupShow(a), newGroupMembers(a), newGroupClose(a), newGroupCancel(a))
}

// groupFile is a group as in the REST API.
type groupFile struct {
	Name       string               `json:"name"`
	Tasks      []view.ScheduledTask `json:"tasks"`
	OnComplete *view.ScheduledTask  `json:"on_complete"`
	OnSuccess  *view.ScheduledTask  `json:"on_success"`
	OnDeath    *view.ScheduledTask  `json:"on_death"`
	Open       bool                 `json:"open"`
	Retention  string               `json:"retention"`
	RequestID  string               `json:"request_id"`
}

func (f *groupFile) spec() (g pawl.GroupSpec, err error) {
	g = pawl.GroupSpec{Name: f.Name, Open: f.Open, RequestID: f.RequestID}
	if f.Retention != "" {
		if g.Retention, err = humanize.Duration(f.Retention); err != nil {
			return g, fmt.Errorf("retention: %w", err)
		}
	}
	for i := range f.Tasks {
		item, err := f.Tasks[i].Item(fmt.Sprintf("tasks[%d]", i))
		if err != nil {
			return g, err
		}
		g.Tasks = append(g.Tasks, item)
	}
	for _, point := range []struct {
		field string
		task  *view.ScheduledTask
		to    **pawl.Item
	}{{"on_complete", f.OnComplete, &g.OnComplete}, {"on_success", f.OnSuccess, &g.OnSuccess}, {"on_death", f.OnDeath, &g.OnDeath}} {
		if point.task == nil {
			continue
		}
		item, err := point.task.Item(point.field)
		if err != nil {
			return g, err
		}
		*point.to = &item
	}
	return g, nil
}

func newGroupAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add OBJECT | @FILE", Short: "Create a group with its members, all or nothing", Args: cobra.ExactArgs(1),
		Long: `Create a group with its members, all or nothing, and print its id. The group is a JSON object as in the
REST API, or a file that contains one.`,
		Example: `  pawl group add '{"tasks":[{"type":"a"},{"type":"b"}],"on_complete":{"type":"done"}}'
  pawl group add @import.json`,
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var file groupFile
		if err := view.ReadObject("OBJECT", args[0], &file); err != nil {
			return err
		}
		spec, err := file.spec()
		if err != nil {
			return cli.AsUsage(err)
		}
		made, err := client.EnqueueGroup(cmd.Context(), spec)
		if err != nil {
			return err
		}
		for i, t := range made.Tasks {
			if t.Err != nil {
				fmt.Fprintf(a.Err, "tasks[%d]: %s\n", i, cli.OneLine(t.Err))
			}
		}
		return a.Print(view.NewGroup(made.Group), func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newGroupLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List groups, newest first", Args: cli.NoArgs,
		Example: "  pawl group ls --watch",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Group], error) {
			return a.Admin(client).Groups().ListPage(ctx, p)
		}, view.NewGroup, writeGroups)
	})
	return cmd
}

func writeGroups(w io.Writer, groups []*pawltype.Group) {
	now, rows := time.Now(), make([][]string, len(groups))
	for i, g := range groups {
		c := g.Counts
		failed := c.Dead + c.Poisoned + c.Discarded + c.Cancelled + c.Refused
		rows[i] = []string{g.ID, g.Name, groupStateText(g), number(c.Members), number(c.Pending), number(c.Succeeded), number(failed), text.Ago(g.CreatedAt, now)}
	}
	text.Columns(w, "ID|NAME|STATE|MEMBERS|PENDING|SUCCEEDED|OTHER ENDS|CREATED", rows)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func groupStateText(g *pawltype.Group) string {
	if g.Open {
		return string(g.State) + ", open"
	}
	return string(g.State)
}

func newGroupShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the progress of a group", Args: cobra.ExactArgs(1),
		Example: "  pawl group show 0199f3c2-…",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := client.Group(cmd.Context(), args[0])
		return a.printGroup(g, err)
	})
	return cmd
}

func (a *app) printGroup(g *pawltype.Group, err error) error {
	if err != nil {
		return err
	}
	return a.Print(view.NewGroup(g), func(w io.Writer) {
		now, c := time.Now(), g.Counts
		ends := ""
		for _, end := range []struct {
			word string
			n    int64
		}{{"pending", c.Pending}, {"succeeded", c.Succeeded}, {"dead", c.Dead}, {"poisoned", c.Poisoned}, {"discarded", c.Discarded},
			{"cancelled", c.Cancelled}, {"refused", c.Refused}} {
			if end.n > 0 {
				ends += fmt.Sprintf(", %d %s", end.n, end.word)
			}
		}
		text.Fields(w, "ID", g.ID, "Name", g.Name, "State", groupStateText(g), "Members", number(c.Members)+ends, "Created", text.Clock(g.CreatedAt, now),
			"Ended", text.Clock(g.EndedAt, now), "Kept until", text.Clock(g.KeptUntil, now), "On complete", followerText(g.OnComplete),
			"On success", followerText(g.OnSuccess), "On death", followerText(g.OnDeath))
	})
}

func newGroupMembers(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "members ID", Short: "List the members of a group with their results", Args: cobra.ExactArgs(1),
		Example: "  pawl group members 0199f3c2-… -o json",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*pawltype.GroupMember], error) {
			return a.Admin(client).Groups().MembersPage(ctx, args[0], p)
		}, view.NewGroupMember, writeMembers)
	})
	return cmd
}

func writeMembers(w io.Writer, members []*pawltype.GroupMember) {
	rows := make([][]string, len(members))
	for i, m := range members {
		end, result := string(m.State), text.Preview(m.Result)
		switch {
		case m.Refused != "":
			end = "refused (" + m.Refused + ")"
		case m.TaskID == "":
			end = "on its way"
		case m.State == "":
			end = "pending"
		}
		if m.ResultOmitted {
			result = "(see the task)"
		}
		rows[i] = []string{m.TaskID, m.Type, m.Queue, end, text.Short(result, 60)}
	}
	text.Columns(w, "TASK|TYPE|QUEUE|END|RESULT", rows)
}

func newGroupClose(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "close ID", Short: "Close an open group, so that it completes when its members have ended", Args: cobra.ExactArgs(1),
		Example: "  pawl group close 0199f3c2-…",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := client.CloseGroup(cmd.Context(), args[0])
		return a.printGroup(g, err)
	})
	return cmd
}

func newGroupCancel(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a group with all its members", Args: cobra.ExactArgs(1),
		Example: "  pawl group cancel 0199f3c2-… --reason 'wrong file'",
	}
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := a.Admin(client).Groups().Cancel(cmd.Context(), args[0], a.Reason)
		return a.printGroup(g, err)
	})
	return cmd
}
