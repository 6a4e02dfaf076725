package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/internal/version"
)

// Execute runs a program with the arguments, and returns its exit status.
func (a *App) Execute(root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the first signal cancels ctx, the second ends the process
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	return a.Fail(cmd, err)
}

// Program makes a command with subcommands the root of a program: it gets the flags, checks, help texts and completion
// that all programs have.
func (a *App) Program(root *cobra.Command) *cobra.Command {
	root.Args = Commands
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = a.Prepare
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.AddFlags(root.PersistentFlags())
	root.SetUsageTemplate(usage(root.UsageTemplate()))
	root.Version = version.Version
	root.SetVersionTemplate(root.Name() + " {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 { // a flag of a command that does not exist
			return Commands(cmd, args)
		}
		return err
	})
	NameArgs(root)
	HideIdle(root)
	a.Complete(root)
	return root
}

// usage returns cobra's template without the flags that all commands share: they would fill half a screen in every help text.
func usage(template string) string {
	const flags = "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	cobra.AddTemplateFunc("sharedFlags", SharedFlags)
	return strings.Replace(template, flags, "{{sharedFlags .}}", 1)
}
