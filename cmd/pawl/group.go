package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

func newGroup(a *app) *cobra.Command {
	return cli.Group("group", "Manage groups of tasks that finish together", "",
		newGroupAdd(a), newGroupLs(a), newGroupShow(a), newGroupMembers(a), newGroupClose(a), newGroupCancel(a))
}

// groupOf returns a decoded group as the SDK takes it.
func groupOf(r *pawlv1.CreateGroupRequest) (g pawl.GroupSpec, err error) {
	if r.GetRetention() != nil && r.GetRetention().AsDuration() == 0 {
		return g, errors.New("retention: 0s is not positive: leave it out to use the default") // the SDK would use it as well
	}
	g = pawl.GroupSpec{Name: r.GetName(), Open: r.GetOpen(), Retention: r.GetRetention().AsDuration(), RequestID: r.GetRequestId()}
	for _, s := range r.GetTasks() {
		g.Tasks = append(g.Tasks, view.Item(s))
	}
	point := func(s *pawlv1.TaskSpec) *pawl.Item {
		if s == nil {
			return nil
		}
		item := view.Item(s)
		return &item
	}
	g.OnComplete, g.OnSuccess, g.OnDeath = point(r.GetOnComplete()), point(r.GetOnSuccess()), point(r.GetOnDeath())
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
		var group pawlv1.CreateGroupRequest
		if err := view.ReadObject("OBJECT", args[0], &group); err != nil {
			return err
		}
		spec, err := groupOf(&group)
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
		return a.PrintAnswer(func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newGroupLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List groups, newest first", Args: cli.NoArgs,
		Long: `List groups, newest first by the time in their ids. If a group was created with a request id, its id
takes the time from there: one that is not a UUIDv7 has none, so such a group may be anywhere in the list.`,
		Example: "  pawl group ls --watch",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Group], error) {
			return a.Admin(client).Groups().ListPage(ctx, p)
		}, writeGroups)
	})
	return cmd
}

func writeGroups(w io.Writer, groups []*pawltype.Group) {
	now, rows := time.Now(), make([][]string, len(groups))
	for i, g := range groups {
		c := g.Counts
		failed := c.Dead + c.Poisoned + c.Discarded + c.Cancelled + c.Refused
		rows[i] = []string{g.ID, g.Name, groupStateText(g), number(c.Members), number(c.Pending), number(c.Succeeded), number(failed),
			text.Ago(g.CreatedAt, now)}
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
	return a.PrintAnswer(func(w io.Writer) {
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
		text.Fields(w, "ID", g.ID, "Name", g.Name, "State", groupStateText(g), "Members", number(c.Members)+ends,
			"Created", text.Clock(g.CreatedAt, now), "Ended", text.Clock(g.EndedAt, now), "Kept until", text.Clock(g.KeptUntil, now),
			"On complete", followerText(g.OnComplete), "On success", followerText(g.OnSuccess), "On death", followerText(g.OnDeath))
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
			return client.GroupMembersPage(ctx, args[0], p)
		}, writeMembers)
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
		g, err := a.Admin(client).Groups().Cancel(cmd.Context(), args[0])
		return a.printGroup(g, err)
	})
	return cmd
}
