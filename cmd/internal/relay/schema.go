package relay

import (
	"fmt"
	"io"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/outbox"
	"github.com/spf13/cobra"
)

type schemaView struct {
	Dialect    outbox.Dialect `json:"dialect"`
	From       int            `json:"from"`
	Version    int            `json:"version"`
	Statements string         `json:"statements"`
}

func newSchema(a *cli.App) *cobra.Command {
	var dialect string
	var from int
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the SQL that creates or upgrades the tables of an outbox", Args: cli.NoArgs,
		Long: `Print the SQL that creates the tables of an outbox. It doesn't connect to a database: run the statements with
your own migrations, or pipe them into the database's client. With --from it prints the statements that upgrade
tables of an earlier version.`,
		Example: `  pawl-outbox schema --dialect postgres | psql -1 -v ON_ERROR_STOP=1 shop
  pawl-outbox schema --dialect mysql | mariadb shop
  pawl-outbox schema --dialect sqlite | sqlite3 shop.db`,
		RunE: a.Run(func(*cobra.Command, []string) error {
			d, err := outbox.ParseDialect(dialect)
			if err != nil {
				return cli.AsUsage(err)
			}
			statements, err := outbox.Upgrade(d, from)
			if err != nil {
				return cli.AsUsage(err)
			}
			v := schemaView{Dialect: d, From: from, Version: outbox.SchemaVersion, Statements: statements}
			return a.Print(v, func(w io.Writer) { fmt.Fprint(w, statements) })
		}),
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "postgres, mysql (also for MariaDB) or sqlite")
	_ = cmd.MarkFlagRequired("dialect")
	cmd.Flags().IntVar(&from, "from", 0, "version of the existing tables; 0: there are none")
	return cmd
}
