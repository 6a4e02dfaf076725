package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

func newMarker(a *app) *cobra.Command {
	return cli.Group("marker", "Mark deploys, incidents and notes on the charts",
		`A marker is a titled point or span of time. The web UI draws it on its charts, so that you can see
what caused a change. It belongs to a namespace, which keeps its newest 1,000 markers of the last 90
days.`,
		newMarkerAdd(a), newMarkerLs(a), newMarkerEnd(a), newMarkerRm(a))
}

var markerKinds = []string{string(admin.MarkerDeploy), string(admin.MarkerIncident), string(admin.MarkerNote)}

// markerAbout adds the flags for the scope of a marker.
func markerAbout(flags *pflag.FlagSet, m *admin.MarkerSpec) {
	flags.StringVar(&m.Version, "version", "", "what was deployed, such as 1.4.2")
	flags.StringVar(&m.URL, "url", "", "http or https link to details, such as the pipeline run")
	flags.StringSliceVar(&m.Queues, "queue", nil, "only these queues, where * stands for any characters; repeatable (default all)")
	flags.StringSliceVar(&m.Types, "type", nil, "only these task types, where * stands for any characters; repeatable (default all)")
	flags.StringVar(&m.RequestID, "request-id", "", "UUID of this call: repeating it sets no second marker")
}

func newMarkerAdd(a *app) *cobra.Command {
	var m admin.MarkerSpec
	var at, ended string
	cmd := &cobra.Command{
		Use: "add deploy|incident|note TITLE", Short: "Set a marker, and print its id", Args: cobra.ExactArgs(2),
		Long: `Set a marker, and print its id. An incident without --ended is open until "pawl marker end" ends it.
The role produce is enough, so that a pipeline can mark its deploys.`,
		Example: `  pawl marker add deploy "web 1.4.2" --version 1.4.2 --url https://ci.example.com/runs/42
  id=$(pawl marker add incident "mail provider is down" --queue 'mail*')
  pawl marker add note "prices imported by hand" --at 2h`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return markerKinds, cobra.ShellCompDirectiveNoFileComp
		},
	}
	markerAbout(cmd.Flags(), &m)
	cmd.Flags().StringVar(&at, "at", "", "when it happened or began: RFC 3339, or an age such as 10m (default now)")
	cmd.Flags().StringVar(&ended, "ended", "", "when it ended: RFC 3339, or an age such as 10m")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) (err error) {
		if m.Kind, m.Title = admin.MarkerKind(args[0]), args[1]; !slices.Contains(markerKinds, args[0]) {
			return cli.Usage("%q is not a kind of marker: want %s", args[0], strings.Join(markerKinds, ", "))
		}
		now := time.Now()
		if m.At, err = cli.ReadMoment("--at", at, now); err != nil {
			return err
		}
		if m.EndedAt, err = cli.ReadMoment("--ended", ended, now); err != nil {
			return err
		}
		made, err := a.Admin(client).Markers().Add(cmd.Context(), m)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
	return cmd
}

func newMarkerLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var f admin.MarkerFilter
	var kind, since, until string
	cmd := &cobra.Command{Use: "ls", Short: "List markers, newest first", Args: cli.NoArgs,
		Example: "  pawl marker ls --kind deploy --since 7d\n  pawl marker ls --queue mail"}
	list.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "", "only this kind: deploy, incident or note")
	flags.StringVar(&f.Queue, "queue", "", "only markers for this queue")
	flags.StringVar(&f.Type, "type", "", "only markers for this task type")
	flags.StringVar(&since, "since", "", "since this time: RFC 3339, or an age such as 7d")
	flags.StringVar(&until, "until", "", "before this time: RFC 3339, or an age such as 2h")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) (err error) {
		f.Kind = admin.MarkerKind(kind)
		now := time.Now()
		if f.Since, err = cli.ReadMoment("--since", since, now); err != nil {
			return err
		}
		if f.Until, err = cli.ReadMoment("--until", until, now); err != nil {
			return err
		}
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Marker], error) {
			return a.Admin(client).Markers().ListPage(ctx, f, p)
		}, writeMarkers)
	})
	return cmd
}

func writeMarkers(w io.Writer, markers []*admin.Marker) {
	now := time.Now()
	rows := make([][]string, len(markers))
	for i, m := range markers {
		end := text.Clock(m.EndedAt, now)
		if m.Open() {
			end = "open"
		}
		rows[i] = []string{text.Clock(m.At, now), end, string(m.Kind), text.Short(m.Title, 60), m.Version, markerScope(m), m.CreatedBy,
			m.ID}
	}
	text.Columns(w, "AT|ENDED|KIND|TITLE|VERSION|ABOUT|BY|ID", rows)
}

// markerScope describes the scope of a marker.
func markerScope(m *admin.Marker) string {
	about := patternWords(m.Queues)
	if len(m.Types) > 0 {
		about += ", types " + strings.Join(m.Types, ", ")
	}
	return text.Short(about, 40)
}

func newMarkerEnd(a *app) *cobra.Command {
	var at string
	cmd := &cobra.Command{Use: "end MARKER", Short: "End an incident or another open marker", Args: cobra.ExactArgs(1),
		Long:    "End a marker. If it has ended already, its end changes only with --at.",
		Example: "  pawl marker end 0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77\n  pawl marker end 0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77 --at 10m"}
	cmd.Flags().StringVar(&at, "at", "", "when it ended: RFC 3339, or an age such as 10m (default now)")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		end, err := cli.ReadMoment("--at", at, time.Now())
		if err != nil {
			return err
		}
		m, err := a.Admin(client).Markers().End(cmd.Context(), args[0], end)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) {
			fmt.Fprintf(w, "%s %q ended at %s, after %s\n", m.Kind, m.Title, text.Clock(m.EndedAt, time.Now()),
				text.Span(m.EndedAt.Sub(m.At)))
		})
	})
	return cmd
}

func newMarkerRm(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm MARKER", Short: "Remove a marker", Args: cobra.ExactArgs(1),
		Example: "  pawl marker rm 0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if err := a.Admin(client).Markers().Delete(cmd.Context(), args[0]); err != nil {
			return err
		}
		shown := struct {
			ID      string `json:"id"`
			Removed bool   `json:"removed"`
		}{args[0], true}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "marker %s removed\n", args[0]) })
	})
	return cmd
}
