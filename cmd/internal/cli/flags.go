package cli

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The root's flags are accepted anywhere on the line, also before the command. A command rejects those that would have
// no effect on it: a user who passes --payload-keys to a server would believe that it encrypts payloads.

// clientFlags are the flags for connecting to a server, and for the calls made there.
var clientFlags = []string{"server", "tls-ca", "client-cert", "client-key", "plaintext", "context", "token", "token-file", "namespace",
	"payload-keys", "actor", "reason"}

// IdleFlags are the root's flags that have no effect, by command: a command of pawl, or another program with its
// command. An entry also applies to subcommands that have none of their own.
var IdleFlags = map[string][]string{
	"serve":       slices.Concat(clientFlags, []string{"output"}),
	"demo":        clientFlags,
	"payload-key": slices.Concat(clientFlags, []string{"output"}),
	"cert":        clientFlags,
	"restore":     clientFlags,
	"recover":     clientFlags,
	"completion":  slices.Concat(clientFlags, []string{"output"}),
	"version":     clientFlags,
	"work":        {"output"},

	"dlq archive ls":      clientFlags,
	"dlq archive restore": {"payload-keys"},

	"token generate": clientFlags,

	"pawl-bench":             {"output"},
	"pawl-bench completion":  slices.Concat(clientFlags, []string{"output"}),
	"pawl-outbox completion": slices.Concat(clientFlags, []string{"output"}),
	"pawl-outbox relay":      {"output"},
	"pawl-outbox retry":      clientFlags,
	"pawl-outbox schema":     clientFlags,
	"pawl-outbox status":     clientFlags,
}

// RefuseIdle rejects flags that have no effect on cmd.
func RefuseIdle(cmd *cobra.Command) error {
	for _, name := range idleFlagsOf(cmd) {
		if f := cmd.Root().PersistentFlags().Lookup(name); f.Changed {
			return Usage("%s takes no --%s: it would have no effect", cmd.CommandPath(), name)
		}
	}
	return nil
}

func idleFlagsOf(cmd *cobra.Command) []string {
	for ; cmd != nil; cmd = cmd.Parent() {
		if flags, ok := IdleFlags[strings.TrimPrefix(cmd.CommandPath(), "pawl ")]; ok {
			return flags
		}
	}
	return nil
}

// SharedFlags returns the help text about the flags that a command shares with others.
func SharedFlags(cmd *cobra.Command) string {
	if slices.Contains(idleFlagsOf(cmd), "server") {
		return "It also takes -o, --output: table, json or yaml."
	}
	if slices.Contains(idleFlagsOf(cmd), "output") {
		return "It also takes the flags of all commands, such as --server and --namespace: see '" + cmd.Root().Name() + " --help'."
	}
	return "It also takes the flags of all commands, such as --server, --namespace and --output: see '" + cmd.Root().Name() + " --help'."
}

// HideIdle hides those flags from the help. It modifies the flags themselves, so the process must exit after printing it.
func HideIdle(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range idleFlagsOf(cmd) {
			root.PersistentFlags().Lookup(name).Hidden = true
		}
		help(cmd, args)
	})
}

// AddFlags adds the flags that every command accepts.
func (a *App) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&a.context, "context", "", "context to use: see pawl context (env PAWL_CONTEXT)")
	f.StringVar(&a.Server, "server", cmp.Or(os.Getenv("PAWL_SERVER"), DefaultServer),
		"address of the server, HOST:PORT or https://HOST:PORT; of a cluster also several, separated by commas (env PAWL_SERVER)")
	f.StringVar(&a.TLSCA, "tls-ca", os.Getenv("PAWL_TLS_CA"),
		"use TLS, and trust only servers that this file's authority has certified (env PAWL_TLS_CA)")
	f.StringVar(&a.cert, "client-cert", os.Getenv("PAWL_CLIENT_CERT"),
		"client certificate, shown over TLS instead of a token; reread when it changes (env PAWL_CLIENT_CERT)")
	f.StringVar(&a.key, "client-key", os.Getenv("PAWL_CLIENT_KEY"), "private key of that certificate (env PAWL_CLIENT_KEY)")
	f.BoolVar(&a.plaintext, "plaintext", false, "connect without TLS to a server on another machine")
	f.StringVar(&a.token, "token", "", "token; other users of the machine may see it here, so prefer env PAWL_TOKEN or --token-file")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the token, readable by its owner only; reread when it changes (env "+
		"PAWL_TOKEN_FILE)")
	f.StringVar(&a.Namespace, "namespace", os.Getenv("PAWL_NAMESPACE"),
		"namespace, for tokens that are valid in all of them (env PAWL_NAMESPACE)")
	f.StringVar(&a.keys, "payload-keys", os.Getenv("PAWL_PAYLOAD_KEYS"),
		"file with payload keys, readable by its owner only: see pawl payload-key (env PAWL_PAYLOAD_KEYS)")
	f.StringVar(&a.actor, "actor", os.Getenv("PAWL_ACTOR"), "your name in the audit log (env PAWL_ACTOR; default USER@HOST)")
	f.StringVar(&a.Reason, "reason", "", "reason, for the audit log")
	f.StringVarP(&a.Format, "output", "o", "table", "output format: table, json or yaml; of lists also wide, with more columns, or name")
}
