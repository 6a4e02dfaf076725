package relay

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/outbox"
	"github.com/spf13/cobra"
)

// retryStep is how many rows are put back in one transaction.
const retryStep = 500

type retryView struct {
	Rows int64 `json:"rows"`
}

func newRetry(a *cli.App) *cobra.Command {
	var file string
	var all bool
	cmd := &cobra.Command{
		Use: "retry --dsn-file FILE SEQ... | --all", Short: "Retry dead rows of an outbox",
		Long: `Retry dead rows of an outbox: all, or those whose numbers you give ("pawl-outbox status" shows them). They keep
their ids and are enqueued after the waiting rows. A row that is refused again is dead again, so first fix the
cause, on the server or in the column task of pawl_outbox_dead.`,
		Example: `  pawl-outbox retry --dsn-file shop.dsn 42 43
  pawl-outbox retry --dsn-file shop.dsn --all`,
		RunE: a.Run(func(cmd *cobra.Command, args []string) error {
			seqs, err := seqsOf(args)
			switch {
			case err != nil:
				return err
			case all == (len(seqs) > 0):
				return cli.Usage("give the numbers of rows, or --all")
			}
			box, db, err := openBox(cmd.Context(), file)
			if err != nil {
				return err
			}
			defer db.Close()
			v := retryView{}
			if all {
				v.Rows, err = retryAll(cmd.Context(), box)
			} else if err = box.RetryDead(cmd.Context(), seqs...); err == nil {
				v.Rows = int64(len(seqs))
			}
			if err != nil {
				return err
			}
			return a.Print(v, func(w io.Writer) { fmt.Fprintf(w, "%s put back\n", text.Count(v.Rows, "row")) })
		}),
	}
	dsnFlag(cmd.Flags(), &file)
	cmd.Flags().BoolVar(&all, "all", false, "all dead rows")
	return cmd
}

func seqsOf(args []string) (seqs []int64, err error) {
	for _, arg := range args {
		seq, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || seq < 1 {
			return nil, cli.Usage("%q is not the number of a row", arg)
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

// retryAll puts back the rows that are dead when it is called, retryStep at a time. It lists them first: a row that
// dies again meanwhile is dead under a new number, and would otherwise be put back for as long as it dies.
func retryAll(ctx context.Context, box *outbox.Outbox) (n int64, err error) {
	seqs, err := deadRows(ctx, box)
	if err != nil {
		return 0, err
	}
	for step := range slices.Chunk(seqs, retryStep) {
		if err := box.RetryDead(ctx, step...); err != nil {
			return n, err
		}
		n += int64(len(step))
	}
	return n, nil
}

// deadRows returns the numbers of all dead rows, in ascending order.
func deadRows(ctx context.Context, box *outbox.Outbox) (seqs []int64, err error) {
	for behind := int64(0); ; behind = seqs[len(seqs)-1] {
		rows, err := box.DeadRows(ctx, behind, retryStep)
		if err != nil || len(rows) == 0 {
			return seqs, err
		}
		for _, r := range rows {
			seqs = append(seqs, r.Seq)
		}
	}
}
