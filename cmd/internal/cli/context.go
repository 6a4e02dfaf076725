package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/contexts"
)

// useContext sets the connection flags from a context; flags on the command line take precedence. A context named by
// --context or PAWL_CONTEXT replaces the environment. The current context applies only if neither --server nor
// PAWL_SERVER names a server, so that what belongs to one server, such as its token, never goes to another.
func (a *App) useContext(cmd *cobra.Command) error {
	flags := cmd.Root().PersistentFlags()
	named := a.context
	if named == "" && !flags.Changed("server") {
		named = os.Getenv("PAWL_CONTEXT")
	}
	if named == "" && (flags.Changed("server") || os.Getenv("PAWL_SERVER") != "") {
		return nil
	}
	path, err := contexts.Path()
	if err != nil {
		if named == "" {
			return nil // without a home directory there is no file
		}
		return Usage("--context %q: %w", named, err)
	}
	all, err := contexts.Load(path)
	if err != nil {
		return Usage("contexts: %w", err)
	}
	name := named
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return nil
	}
	c, ok := all.Contexts[name]
	if !ok {
		return Usage("context %q: not found: 'pawl context ls' lists the existing ones", name)
	}
	set := func(flag, env string, to *string, value string) {
		if !flags.Changed(flag) && (named != "" || os.Getenv(env) == "") {
			*to = value
		}
	}
	set("server", "PAWL_SERVER", &a.Server, c.Server)
	set("tls-ca", "PAWL_TLS_CA", &a.TLSCA, c.TLSCA)
	set("client-cert", "PAWL_CLIENT_CERT", &a.cert, c.ClientCert)
	set("client-key", "PAWL_CLIENT_KEY", &a.key, c.ClientKey)
	set("namespace", "PAWL_NAMESPACE", &a.Namespace, c.Namespace)
	set("payload-keys", "PAWL_PAYLOAD_KEYS", &a.keys, c.PayloadKeys)
	if !flags.Changed("plaintext") && !flags.Changed("tls-ca") {
		a.plaintext = c.Plaintext
	}
	a.noTokenOfEnv = named != ""
	if a.token == "" && a.tokenFile == "" && (named != "" || os.Getenv("PAWL_TOKEN") == "" && os.Getenv("PAWL_TOKEN_FILE") == "") {
		a.tokenFile = c.TokenFile
	}
	return nil
}

// ContextOf returns the connection settings of the command line and the environment as a context.
func (a *App) ContextOf() contexts.Context {
	tokenFile := a.tokenFile
	if tokenFile == "" {
		tokenFile = os.Getenv("PAWL_TOKEN_FILE")
	}
	return contexts.Context{
		Server: a.Server, TLSCA: a.TLSCA, ClientCert: a.cert, ClientKey: a.key, Plaintext: a.plaintext,
		TokenFile: tokenFile, Namespace: a.Namespace, PayloadKeys: a.keys,
	}
}

// HasToken reports whether a token itself is given rather than a file that holds one.
func (a *App) HasToken() bool { return a.token != "" }

// callsServer reports whether a command takes the connection flags. Those that hold subcommands only print help.
func callsServer(cmd *cobra.Command) bool {
	if cmd.HasSubCommands() {
		return false
	}
	for _, idle := range idleFlagsOf(cmd) {
		if idle == "server" {
			return false
		}
	}
	return cmd.Name() != "help" && !strings.HasPrefix(cmd.CommandPath(), "pawl context")
}

// Prepare runs before every command: it rejects flags that would have no effect or are empty, and applies the context.
func (a *App) Prepare(cmd *cobra.Command, args []string) error {
	if err := RefuseIdle(cmd); err != nil {
		return err
	}
	if err := RefuseEmpty(cmd, args); err != nil {
		return err
	}
	if callsServer(cmd) {
		if err := a.useContext(cmd); err != nil {
			return err
		}
	}
	return a.CheckFormat(cmd)
}
