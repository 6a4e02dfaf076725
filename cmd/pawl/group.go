package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/human"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

func newGroup(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "Groups of tasks that are waited for together"}
	cmd.AddCommand(newGroupAdd(a), newGroupLs(a), newGroupShow(a), newGroupMembers(a), newGroupClose(a), newGroupCancel(a))
	return cmd
}

// groupFile is a group as in the REST API.
type groupFile struct {
	Name       string              `json:"name"`
	Tasks      []scheduledTaskView `json:"tasks"`
	OnComplete *scheduledTaskView  `json:"on_complete"`
	OnSuccess  *scheduledTaskView  `json:"on_success"`
	OnDeath    *scheduledTaskView  `json:"on_death"`
	Open       bool                `json:"open"`
	Retention  string              `json:"retention"`
	RequestID  string              `json:"request_id"`
}

func (f *groupFile) spec() (g pawl.GroupSpec, err error) {
	g = pawl.GroupSpec{Name: f.Name, Open: f.Open, RequestID: f.RequestID}
	if f.Retention != "" {
		if g.Retention, err = human.Span(f.Retention); err != nil {
			return g, fmt.Errorf("retention: %w", err)
		}
	}
	for i := range f.Tasks {
		item, err := f.Tasks[i].item(fmt.Sprintf("tasks[%d]", i))
		if err != nil {
			return g, err
		}
		g.Tasks = append(g.Tasks, item)
	}
	for _, point := range []struct {
		field string
		said  *scheduledTaskView
		to    **pawl.Item
	}{{"on_complete", f.OnComplete, &g.OnComplete}, {"on_success", f.OnSuccess, &g.OnSuccess}, {"on_death", f.OnDeath, &g.OnDeath}} {
		if point.said == nil {
			continue
		}
		item, err := point.said.item(point.field)
		if err != nil {
			return g, err
		}
		*point.to = &item
	}
	return g, nil
}

func newGroupAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add OBJECT | @FILE", Short: "Make a group and its members, all or nothing", Args: cobra.ExactArgs(1),
		Long: `Make a group and its members, all or nothing. The group is a JSON object as in the REST API, or in
a file; its id is on standard output.`,
		Example: `  pawl group add '{"tasks":[{"type":"a"},{"type":"b"}],"on_complete":{"type":"done"}}'
  pawl group add @import.json`,
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var file groupFile
		if err := readObject("OBJECT", args[0], &file); err != nil {
			return err
		}
		spec, err := file.spec()
		if err != nil {
			return usageError{err}
		}
		made, err := client.EnqueueGroup(cmd.Context(), spec)
		if err != nil {
			return err
		}
		for i, t := range made.Tasks {
			if t.Err != nil {
				fmt.Fprintf(a.err, "tasks[%d]: %s\n", i, oneLine(t.Err))
			}
		}
		return a.print(viewGroup(made.Group), func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newGroupLs(a *app) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List groups, newest first", Args: noArgs,
		Example: "  pawl group ls --watch",
	}
	list.add(cmd)
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		if err := list.check(); err != nil {
			return err
		}
		groups, next, err := collect(list, func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Group], error) {
			return a.admin(client).Groups().ListPage(ctx, p)
		})
		if err != nil {
			return err
		}
		views := make([]taskGroupView, len(groups))
		for i, g := range groups {
			views[i] = viewGroup(g)
		}
		err = a.print(listView[taskGroupView]{views, next}, func(w io.Writer) {
			now, rows := time.Now(), make([][]string, len(groups))
			for i, g := range groups {
				c := g.Counts
				failed := c.Dead + c.Poisoned + c.Discarded + c.Cancelled + c.Refused
				rows[i] = []string{g.ID, g.Name, groupStateText(g), number(c.Members), number(c.Pending), number(c.Succeeded), number(failed), ago(g.CreatedAt, now)}
			}
			columns(w, "ID|NAME|STATE|MEMBERS|PENDING|SUCCEEDED|OTHER ENDS|CREATED", rows)
		})
		if next != "" && a.format == "table" {
			fmt.Fprintf(a.err, "there are more: --limit, or --cursor %s\n", next)
		}
		return err
	})
	return cmd
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
		Use: "show ID", Short: "Show how a group stands", Args: cobra.ExactArgs(1),
		Example: "  pawl group show 0199f3c2-…",
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := client.Group(cmd.Context(), args[0])
		return a.printGroup(g, err)
	})
	return cmd
}

func (a *app) printGroup(g *pawltype.Group, err error) error {
	if err != nil {
		return err
	}
	return a.print(viewGroup(g), func(w io.Writer) {
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
		fields(w, "ID", g.ID, "Name", g.Name, "State", groupStateText(g), "Members", number(c.Members)+ends, "Created", clock(g.CreatedAt, now),
			"Ended", clock(g.EndedAt, now), "Kept until", clock(g.KeptUntil, now), "On complete", followerText(g.OnComplete),
			"On success", followerText(g.OnSuccess), "On death", followerText(g.OnDeath))
	})
}

func newGroupMembers(a *app) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use: "members ID", Short: "List the members of a group with their results", Args: cobra.ExactArgs(1),
		Example: "  pawl group members 0199f3c2-… -o json",
	}
	list.add(cmd)
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		if err := list.check(); err != nil {
			return err
		}
		members, next, err := collect(list, func(p pawltype.PageRequest) (pawltype.Page[*pawltype.GroupMember], error) {
			return a.admin(client).Groups().MembersPage(ctx, args[0], p)
		})
		if err != nil {
			return err
		}
		views := make([]groupMemberView, len(members))
		for i, m := range members {
			views[i] = groupMemberView{m.TaskID, m.Type, m.Queue, m.State, m.Refused, viewBytes(m.Result, m.ResultContentType), m.ResultContentType, m.ResultOmitted}
		}
		err = a.print(listView[groupMemberView]{views, next}, func(w io.Writer) {
			rows := make([][]string, len(members))
			for i, m := range members {
				end, result := string(m.State), preview(m.Result)
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
				rows[i] = []string{m.TaskID, m.Type, m.Queue, end, short(result, 60)}
			}
			columns(w, "TASK|TYPE|QUEUE|END|RESULT", rows)
		})
		if next != "" && a.format == "table" {
			fmt.Fprintf(a.err, "there are more: --limit, or --cursor %s\n", next)
		}
		return err
	})
	return cmd
}

func newGroupClose(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "close ID", Short: "Let an open group be complete when all its members have ended", Args: cobra.ExactArgs(1),
		Example: "  pawl group close 0199f3c2-…",
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := client.CloseGroup(cmd.Context(), args[0])
		return a.printGroup(g, err)
	})
	return cmd
}

func newGroupCancel(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a group with all its members", Args: cobra.ExactArgs(1),
		Example: "  pawl group cancel 0199f3c2-… --reason 'wrong file'",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "for the server's log")
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		g, err := a.admin(client).Groups().Cancel(cmd.Context(), args[0], reason)
		return a.printGroup(g, err)
	})
	return cmd
}

// taskGroupView is a group as in the REST API.
type taskGroupView struct {
	GroupID    string               `json:"group_id"`
	Name       string               `json:"name,omitempty"`
	State      pawltype.GroupState  `json:"state"`
	Open       bool                 `json:"open"`
	Counts     pawltype.GroupCounts `json:"counts"`
	CreatedAt  time.Time            `json:"created_at,omitzero"`
	EndedAt    time.Time            `json:"ended_at,omitzero"`
	KeptUntil  time.Time            `json:"kept_until,omitzero"`
	OnComplete *followerView        `json:"on_complete,omitempty"`
	OnSuccess  *followerView        `json:"on_success,omitempty"`
	OnDeath    *followerView        `json:"on_death,omitempty"`
}

func viewGroup(g *pawltype.Group) taskGroupView {
	return taskGroupView{GroupID: g.ID, Name: g.Name, State: g.State, Open: g.Open, Counts: g.Counts, CreatedAt: g.CreatedAt, EndedAt: g.EndedAt,
		KeptUntil: g.KeptUntil, OnComplete: viewFollower(g.OnComplete), OnSuccess: viewFollower(g.OnSuccess), OnDeath: viewFollower(g.OnDeath)}
}

type groupMemberView struct {
	TaskID            string         `json:"task_id,omitempty"`
	Type              string         `json:"type"`
	Queue             string         `json:"queue"`
	State             pawltype.State `json:"state,omitempty"`
	Refused           string         `json:"refused,omitempty"`
	Result            any            `json:"result,omitempty"`
	ResultContentType string         `json:"result_content_type,omitempty"`
	ResultOmitted     bool           `json:"result_omitted,omitempty"`
}
