package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/demo"
	"github.com/pawlq/pawl/cmd/pawl/internal/program"
	"github.com/pawlq/pawl/cmd/pawl/internal/serve"
	"github.com/pawlq/pawl/cmd/pawl/internal/top"
)

// app is cli.App with what several commands of this package share.
type app struct{ *cli.App }

// addReason shows the root's --reason in the help of a command that often needs one.
func (a *app) addReason(flags *pflag.FlagSet) {
	flags.StringVar(&a.Reason, "reason", "", "reason, for the audit log")
}

// newRoot builds the tree of commands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "A distributed task queue in one binary",
		Long: `Pawl is a distributed task queue. An accepted task is on disk, and it is retried until it
succeeds or ends in a state that says why it did not.

  pawl demo                                  see it work, in a temporary directory
  pawl serve                                 start a server
  pawl enqueue mail.welcome '{"to":"a@b"}'   enqueue a task
  pawl work --type mail.welcome --exec ./send-mail.sh
  pawl queue ls                              see what waits

Exit status: 0 success; 1 refused or failed, nothing matched, or a part is missing in what is shown; 2 wrong usage.`,
	}
	for _, of := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run it", []*cobra.Command{demo.New(a.App), serve.New(a.App), program.New(a.App)}},
		{"Tasks", []*cobra.Command{newEnqueue(a), newTask(a), newQueue(a), newDLQ(a), newSchedule(a), newGroup(a), newOperation(a)}},
		{"Watch", []*cobra.Command{newPing(a), newStats(a), top.New(a.App), newType(a), newWorker(a), newEvents(a),
			newMarker(a), newAudit(a)}},
		{"Access", []*cobra.Command{newContext(a), newToken(a), newNamespace(a), newWebhook(a), newCert(a), newPayloadKey(a)}},
		{"Cluster", []*cobra.Command{newCluster(a), newVerify(a), newBackup(a), newRestore(a), newRecover(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: of.title, Title: of.title + ":"})
		for _, cmd := range of.commands {
			cmd.GroupID = of.title
		}
		root.AddCommand(of.commands...)
	}
	root.AddCommand(newVersion(a))
	for name, also := range map[string]string{"dlq": "dead", "ns": "namespace", "operation": "op", "schedule": "cron"} {
		cmd, _, _ := root.Find([]string{name})
		cmd.Aliases = append(cmd.Aliases, also)
	}
	status, _, _ := root.Find([]string{"cluster"})
	status.SuggestFor = []string{"status"}
	return a.Program(root)
}
