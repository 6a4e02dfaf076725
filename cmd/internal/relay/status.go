package relay

import (
	"fmt"
	"io"
	"strconv"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/outbox"
	"github.com/spf13/cobra"
)

type statusView struct {
	Waiting int64     `json:"waiting"`
	Oldest  float64   `json:"oldest_seconds"`
	Dead    int64     `json:"dead"`
	Newest  []deadRow `json:"newest_dead"`
	Relay   relayView `json:"relay"`
}

type relayView struct {
	Holder string `json:"holder"`
	Active bool   `json:"active"`
}

type deadRow struct {
	Seq   int64   `json:"seq"`
	ID    string  `json:"id"`
	Queue string  `json:"queue"`
	Since float64 `json:"since_seconds"`
	Error string  `json:"error"`
}

func newStatus(a *cli.App) *cobra.Command {
	var file string
	var dead int
	cmd := &cobra.Command{
		Use: "status --dsn-file FILE", Short: "Show the state of an outbox", Args: cli.NoArgs,
		Long: `Show the state of an outbox: how many rows wait, which ones the server has refused for good and why,
and which relay is active. This reads the database, not the server.`,
		Example: `  pawl-outbox status --dsn-file shop.dsn
  pawl-outbox status --dsn-file shop.dsn -o json | jq .dead`,
		RunE: a.Run(func(cmd *cobra.Command, _ []string) error {
			box, db, err := openBox(cmd.Context(), file)
			if err != nil {
				return err
			}
			defer db.Close()
			s, err := box.Status(cmd.Context(), dead)
			if err != nil {
				return cli.AsUsage(err)
			}
			return a.Print(viewOf(s), func(w io.Writer) { writeStatus(w, s) })
		}),
	}
	dsnFlag(cmd.Flags(), &file)
	cmd.Flags().IntVar(&dead, "dead", 10, "how many dead rows to show, newest first: 0 to 1000")
	return cmd
}

func viewOf(s *outbox.Status) statusView {
	v := statusView{Waiting: s.Waiting, Oldest: s.Oldest.Seconds(), Dead: s.Dead, Newest: []deadRow{}, Relay: relayView{s.Holder, s.Active}}
	for _, r := range s.Newest {
		v.Newest = append(v.Newest, deadRow{r.Seq, r.ID, r.Queue, r.Since.Seconds(), r.Error})
	}
	return v
}

func writeStatus(w io.Writer, s *outbox.Status) {
	waiting, relay := text.Grouped(s.Waiting), "none is active"
	if s.Waiting > 0 {
		waiting += ", the first for " + text.Span(s.Oldest)
	}
	if s.Active {
		relay = s.Holder
	}
	text.Fields(w, "Waiting", waiting, "Dead", text.Grouped(s.Dead), "Relay", relay)
	if len(s.Newest) == 0 {
		return
	}
	rows := make([][]string, len(s.Newest))
	for i, r := range s.Newest {
		rows[i] = []string{strconv.FormatInt(r.Seq, 10), r.Queue, text.Span(r.Since) + " ago", r.Error}
	}
	fmt.Fprintln(w)
	text.Columns(w, "SEQ|QUEUE|DIED|ERROR", rows)
}
