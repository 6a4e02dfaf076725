package main

import (
	"github.com/pawlq/pawl/cmd/pawl/internal/bench"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/demo"
	"github.com/pawlq/pawl/cmd/pawl/internal/outbox"
	"github.com/pawlq/pawl/cmd/pawl/internal/serve"
	"github.com/pawlq/pawl/cmd/pawl/internal/top"
	"github.com/pawlq/pawl/cmd/pawl/internal/work"
	"github.com/spf13/cobra"
)

// app is the App with what several commands of this package share.
type app struct{ *cli.App }

// newRoot makes the tree of commands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "A distributed task queue in one binary",
		Long: `Pawl keeps background work from slipping: once a task is accepted, it is on disk, and
it runs until it has succeeded or somebody knows why it did not.

  pawl demo                                  see it work, in a temporary directory
  pawl serve                                 start a server
  pawl enqueue mail.welcome '{"to":"a@b"}'   give it a task
  pawl work --type mail.welcome --exec ./send-mail.sh
  pawl queue ls                              see what waits

Exit status: 0 done, 1 refused, 2 wrong use.`,
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.RefuseIdle(cmd); err != nil {
				return err
			}
			return a.CheckFormat()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.AddFlags(root.PersistentFlags())
	root.AddCommand(
		serve.New(a.App), newEnqueue(a), newTask(a), newQueue(a), newDLQ(a), newOperation(a), newSchedule(a), newGroup(a), outbox.New(a.App), newAudit(a), newToken(a), newNamespace(a), newWebhook(a), newStats(a), top.New(a.App), newWorker(a), newEvents(a), work.New(a.App), newCluster(a), newVerify(a),
		newBackup(a), newRestore(a), newRecover(a), newCert(a), newPayloadKey(a), bench.New(a.App), demo.New(a.App), newVersion(a),
	)
	cli.HideIdle(root)
	return root
}
