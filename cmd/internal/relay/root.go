// Package relay implements the program pawl-outbox: the outbox's tables, the relay as a process of its own, and the
// outbox's status. It imports the database drivers, a choice that the SDK's package outbox leaves to its users.
package relay

import (
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/spf13/cobra"
)

// New returns the root command of pawl-outbox.
func New(a *cli.App) *cobra.Command {
	return a.Program(cli.Group("pawl-outbox", "Enqueue tasks in transactions of your own database",
		`Programs write tasks to a table in their own database, in the same transaction as their other rows;
a relay enqueues the committed rows in Pawl. For a guide see docs/outbox.md.`,
		newSchema(a), newRelay(a), newStatus(a), newRetry(a)))
}
