// Package outbox is "pawl outbox": the tables of an outbox, a relay as a process of its own, and how an outbox stands. It has the drivers of
// the databases, which package outbox of the SDK leaves to its users.
package outbox

import (
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/spf13/cobra"
)

// New makes the command "pawl outbox".
func New(a *cli.App) *cobra.Command {
	return cli.Group("outbox", "Enqueue tasks in transactions of your own database",
		`Programs write tasks into a table of their own database, in the transaction that writes their other
rows; a relay brings committed rows to Pawl. docs/outbox.md has the guide.`,
		newSchema(a), newRelay(a), newStatus(a), newRetry(a))
}
