package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// The root's flags are taken anywhere on the line, also before the command. Some commands have no use for some of them, and refuse them: who
// gives --payload-keys to a server believes that it encrypts payloads.

// clientFlags say how a server is called, and what for.
var clientFlags = []string{"server", "tls-ca", "client-cert", "client-key", "plaintext", "token", "token-file", "namespace", "payload-keys", "actor", "reason"}

// idleFlags are those of the root that do nothing, by the command below the root.
var idleFlags = map[string][]string{
	"serve":       slices.Concat(clientFlags, []string{"output"}),
	"demo":        clientFlags,
	"payload-key": slices.Concat(clientFlags, []string{"output"}),
	"cert":        clientFlags,
	"restore":     clientFlags,
	"recover":     clientFlags,
	"work":        {"output"},
	"bench":       {"output"},
}

// refuseIdle refuses flags that do nothing in cmd.
func refuseIdle(cmd *cobra.Command) error {
	for _, name := range idleFlagsOf(cmd) {
		if f := cmd.Root().PersistentFlags().Lookup(name); f.Changed {
			return usage("%s takes no --%s: it would do nothing here", cmd.CommandPath(), name)
		}
	}
	return nil
}

func idleFlagsOf(cmd *cobra.Command) []string {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return idleFlags[cmd.Name()]
}

// hideIdle leaves those flags out of the help, after which the process ends.
func hideIdle(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range idleFlagsOf(cmd) {
			root.PersistentFlags().Lookup(name).Hidden = true
		}
		help(cmd, args)
	})
}
