package cli

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The root's flags are taken anywhere on the line, also before the command. Some commands have no use for some of them, and refuse them: who
// gives --payload-keys to a server believes that it encrypts payloads.

// clientFlags say how a server is called, and what for.
var clientFlags = []string{"server", "tls-ca", "client-cert", "client-key", "plaintext", "context", "token", "token-file", "namespace", "payload-keys", "actor", "reason"}

// IdleFlags are those of the root that do nothing, by the command below the root. What is said of a command is said of those below it, unless
// they say something themselves.
var IdleFlags = map[string][]string{
	"serve":       slices.Concat(clientFlags, []string{"output"}),
	"demo":        clientFlags,
	"payload-key": slices.Concat(clientFlags, []string{"output"}),
	"cert":        clientFlags,
	"restore":     clientFlags,
	"recover":     clientFlags,
	"work":        {"output"},
	"bench":       {"output"},

	"outbox schema": clientFlags,
	"outbox status": clientFlags,
	"outbox relay":  {"output"},
}

// RefuseIdle refuses flags that do nothing in cmd.
func RefuseIdle(cmd *cobra.Command) error {
	for _, name := range idleFlagsOf(cmd) {
		if f := cmd.Root().PersistentFlags().Lookup(name); f.Changed {
			return Usage("%s takes no --%s: it would do nothing here", cmd.CommandPath(), name)
		}
	}
	return nil
}

func idleFlagsOf(cmd *cobra.Command) []string {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		if flags, ok := IdleFlags[path]; ok {
			return flags
		}
	}
	return nil
}

// SharedFlags is what the help of a command says of the flags that it shares with others.
func SharedFlags(cmd *cobra.Command) string {
	if slices.Contains(idleFlagsOf(cmd), "server") {
		return "It also takes -o, --output: table, json or yaml."
	}
	if slices.Contains(idleFlagsOf(cmd), "output") {
		return "It also takes the flags of all commands, such as --server and --namespace: see 'pawl --help'."
	}
	return "It also takes the flags of all commands, such as --server, --namespace and --output: see 'pawl --help'."
}

// HideIdle leaves those flags out of the help, after which the process ends.
func HideIdle(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range idleFlagsOf(cmd) {
			root.PersistentFlags().Lookup(name).Hidden = true
		}
		help(cmd, args)
	})
}

// AddFlags adds the flags that every command takes.
func (a *App) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&a.context, "context", "", "context to use: see pawl context (env PAWL_CONTEXT)")
	f.StringVar(&a.Server, "server", cmp.Or(os.Getenv("PAWL_SERVER"), DefaultServer), "address of the server, HOST:PORT or https://HOST:PORT (env PAWL_SERVER)")
	f.StringVar(&a.TLSCA, "tls-ca", os.Getenv("PAWL_TLS_CA"), "use TLS, and trust only servers that this file's authority has certified (env PAWL_TLS_CA)")
	f.StringVar(&a.cert, "client-cert", os.Getenv("PAWL_CLIENT_CERT"), "client certificate, shown over TLS instead of a token; reread when it changes (env PAWL_CLIENT_CERT)")
	f.StringVar(&a.key, "client-key", os.Getenv("PAWL_CLIENT_KEY"), "private key of that certificate (env PAWL_CLIENT_KEY)")
	f.BoolVar(&a.plaintext, "plaintext", false, "connect without TLS to a server on another machine")
	f.StringVar(&a.token, "token", "", "token; other users of the machine may see it here, so prefer env PAWL_TOKEN or --token-file")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the token, readable by its owner only; reread when it changes (env PAWL_TOKEN_FILE)")
	f.StringVar(&a.Namespace, "namespace", os.Getenv("PAWL_NAMESPACE"), "namespace, for tokens that are valid in all of them (env PAWL_NAMESPACE)")
	f.StringVar(&a.keys, "payload-keys", os.Getenv("PAWL_PAYLOAD_KEYS"), "file with payload keys, readable by its owner only: see pawl payload-key (env PAWL_PAYLOAD_KEYS)")
	f.StringVar(&a.actor, "actor", os.Getenv("PAWL_ACTOR"), "your name in the audit log (env PAWL_ACTOR; default USER@HOST)")
	f.StringVar(&a.Reason, "reason", "", "reason, for the audit log")
	f.StringVarP(&a.Format, "output", "o", "table", "output format: table, json or yaml")
}
