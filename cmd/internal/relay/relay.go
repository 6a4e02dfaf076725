package relay

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/tracing"
	"github.com/pawlq/pawl/outbox"
	"github.com/spf13/cobra"
)

func newRelay(a *cli.App) *cobra.Command {
	var file, metrics, logFormat, logLevel string
	var cfg outbox.RelayConfig
	cmd := &cobra.Command{
		Use: "relay --dsn-file FILE", Short: "Enqueue the committed rows of an outbox", Args: cli.NoArgs,
		Long: `Enqueue the committed rows of an outbox on the server, until SIGTERM or SIGINT. Several relays can run
for one database: one is active, and another takes over when it stops or dies. While the server or the
database is unavailable, the relay waits. Rows that the server refuses are kept in pawl_outbox_dead.`,
		Example: `  (umask 077 && echo 'postgres://relay:secret@db/shop' > shop.dsn)
  pawl-outbox relay --dsn-file shop.dsn`,
		RunE: a.Run(func(cmd *cobra.Command, _ []string) error {
			log, err := cli.NewLogger(a.Err, logFormat, logLevel)
			if err != nil {
				return err
			}
			db, err := open(file)
			if err != nil {
				return err
			}
			defer db.Close()
			stop, err := tracing.Start(a, cmd, "pawl-relay", log)
			if err != nil {
				return err
			}
			defer stop()
			client, err := a.Dial(pawl.DialOptions{Logger: log})
			if err != nil {
				return err
			}
			defer client.Close()
			cfg.Listen, cfg.Logger = db.listen, log
			return relay(cmd, db, client, cfg, metrics)
		}),
	}
	dsnFlag(cmd.Flags(), &file)
	cmd.Flags().DurationVar(&cfg.Poll, "poll", 0, "longest pause between two reads of the table (default 5s with PostgreSQL, which "+
		"notifies; otherwise 1s)")
	cmd.Flags().DurationVar(&cfg.Lease, "lease", 10*time.Second, "how long after the active relay dies another takes over")
	cmd.Flags().IntVar(&cfg.Batch, "batch", 2000, "maximum number of rows to read at a time")
	cmd.Flags().StringVar(&metrics, "metrics-listen", "",
		"address that serves GET /metrics for Prometheus, without access control; none by default")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "format of the log on standard error: text or json")
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "lowest level to log: debug, info, warn or error")
	return cmd
}

func relay(cmd *cobra.Command, db *database, client *pawl.Client, cfg outbox.RelayConfig, metrics string) error {
	box, err := outbox.New(db.DB, db.dialect)
	if err != nil {
		return err
	}
	r, err := outbox.NewRelay(box, client, cfg)
	if err != nil {
		return cli.AsUsage(err)
	}
	if metrics != "" {
		stop, err := serveMetrics(cmd.Context(), metrics, &figures{box, r}, cfg.Logger)
		if err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
		defer stop()
	}
	err = r.Run(cmd.Context())
	s := r.Stats()
	cfg.Logger.Info("stopped", "enqueued", s.Enqueued, "repeated", s.Repeated, "dead", s.Dead)
	return err
}
