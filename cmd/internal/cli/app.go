// Package cli has what every command needs: the streams, the root's flags, the connection to the server, and errors
// with their exit statuses. It also parses flags and arguments that several commands share.
package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/pawltype"
)

// explain returns an error's message, with the likely remedy where one is known.
func (a *App) explain(err error) string {
	msg := Plain(err)
	if strings.Contains(msg, "is not on this machine: add https://") { // the SDK names its options
		return fmt.Sprintf("--server %q is on another machine, and plaintext is not allowed there: write https:// before the "+
			"address, or give the server's CA with --tls-ca; --plaintext allows it in a network that you trust", a.Server)
	}
	what, cure := a.diagnose(err, msg)
	switch {
	case what == "" && cure == "":
		return msg
	case what == "":
		return msg + ": " + cure
	case cure == "":
		return fmt.Sprintf("%s (%s)", what, msg)
	}
	return fmt.Sprintf("%s: %s (%s)", what, cure, msg)
}

// diagnose returns what is wrong with the server and how to fix it, as far as either is known.
func (a *App) diagnose(err error, msg string) (what, cure string) {
	has := func(part string) bool { return strings.Contains(msg, part) }
	if errors.Is(err, pawltype.ErrUnauthenticated) && has("a token is required") {
		return "the server at " + a.Server + " requires a token", "give one with --token-file or in PAWL_TOKEN"
	}
	if !errors.Is(err, pawltype.ErrUnavailable) {
		return "", ""
	}
	switch {
	case has("not speak HTTP/2 in plaintext"):
		return "the server at " + a.Server + " does not speak plaintext",
			"if it requires TLS, write https:// before its address, or give its CA with --tls-ca"
	case has("first record does not look like a TLS handshake"):
		return "the server at " + a.Server + " does not speak TLS", "omit https:// and --tls-ca, or start it with --tls-cert"
	case has("signed by unknown authority"):
		return "the server at " + a.Server + " has a certificate from an unknown CA", "give the CA with --tls-ca"
	case has("authentication handshake failed"):
		return "no TLS connection with the server at " + a.Server, ""
	case has("name resolver error"):
		return "can't resolve the address of " + a.Server, "give another server with --server"
	case has("connection error: "):
		return "no server at " + a.Server, "start one with 'pawl serve', or give another with --server"
	case has("no leader"):
		return "", "see pawl cluster status"
	}
	return "", ""
}

// App is what all commands share: the streams, the root's flags, and the connection to the server.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	started  bool // the command line was valid

	context      string // set by --context
	noTokenOfEnv bool   // PAWL_TOKEN is for another server
	Server       string
	TLSCA        string
	cert, key    string // of the client certificate
	plaintext    bool
	token        string
	tokenFile    string
	Namespace    string
	keys         string // file with payload keys
	actor        string
	Reason       string
	Format       string
	Listed       string // what the command lists; "": it is not a list

	Tracers trace.TracerProvider // nil: none

	responses responses
}

// Local returns an App for a server that this process has started: the context, the environment and the credentials are for others.
func (a *App) Local(server string) *App {
	return &App{In: a.In, Out: a.Out, Err: a.Err, started: a.started, Server: server, noTokenOfEnv: true, actor: a.actor,
		Tracers: a.Tracers}
}

// Group returns a command that only holds subcommands.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.Args = Commands
	g.AddCommand(commands...)
	return g
}

// Commands is the Args of a command that only holds subcommands: an argument is an unknown command.
func Commands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		for i := range near {
			near[i] = strconv.Quote(near[i])
		}
		hint = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// NameArgs has all commands below one say what they take if the number of arguments is wrong.
func NameArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		NameArgs(c)
		if check := c.Args; check != nil && !c.HasSubCommands() && strings.ContainsRune(c.Use, ' ') {
			c.Args = func(cmd *cobra.Command, args []string) error {
				if check(cmd, args) == nil {
					return nil
				}
				given := "no argument"
				if len(args) > 0 {
					given = fmt.Sprintf("%q", args)
				}
				return fmt.Errorf("%s is given, want %s", given, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
		}
	}
}

// NoArgs is the Args of a command that takes only flags: cobra's own NoArgs would report an unknown command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// Run returns the RunE of a command: errors returned by run are not usage errors unless they are marked as such.
func (a *App) Run(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd, args)
	}
}

// Call returns the RunE of a command that talks to the server.
func (a *App) Call(run func(cmd *cobra.Command, client *pawl.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.Run(func(cmd *cobra.Command, args []string) error {
		dialed, err := a.Dial(pawl.DialOptions{NoRouting: true}) // for one call or a few, learning the cluster's map is not worth it
		if err != nil {
			return err
		}
		defer dialed.Close()
		a.record(dialed)
		return run(cmd, dialed, args)
	})
}

// Admin returns a client's operator calls, made in the name of the person who runs the command.
func (a *App) Admin(client *pawl.Client) admin.Client {
	return admin.New(client).WithActor(a.Actor()).WithReason(a.Reason)
}

// transport sets how connections are made: over TLS, with or without a client certificate, or in plaintext.
func (a *App) transport(opts *pawl.DialOptions) error {
	encrypted := a.TLSCA != "" || strings.Contains(a.Server, "https://")
	switch {
	case encrypted && strings.Contains(a.Server, "http://"):
		return Usage("--server %q says http://, which is not encrypted: write https://", a.Server)
	case a.plaintext && encrypted:
		return Usage("--plaintext goes neither with --tls-ca nor with https:// in --server (%q)", a.Server)
	case (a.cert == "") != (a.key == ""):
		return Usage("--client-cert %q and --client-key %q go together: give both or neither", a.cert, a.key)
	case a.cert != "" && !encrypted:
		return Usage("--client-cert %q requires TLS: write https:// before the server's address, or give its CA with --tls-ca", a.cert)
	case a.plaintext:
		opts.Plaintext = true
		return nil
	case a.TLSCA == "" && a.cert == "":
		return nil // https:// alone is enough
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.TLSCA != "" {
		roots, err := ReadRoots(a.TLSCA)
		if err != nil {
			return fmt.Errorf("--tls-ca %q: %w", a.TLSCA, err)
		}
		config.RootCAs = roots
	}
	if a.cert != "" {
		pair, err := certs.OpenClient(a.cert, a.key, slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			return fmt.Errorf("--client-cert: %w", err)
		}
		config.GetClientCertificate = pair.GetClientCertificate
	}
	opts.TLS = config
	return nil
}

// credential sets the token from the flags, or else from the environment. The environment is not used as a flag's
// default, which help would print.
func (a *App) credential(opts *pawl.DialOptions) error {
	token, file := a.token, a.tokenFile
	if token != "" && file != "" {
		return Usage("--token and --token-file exclude each other")
	}
	if token == "" && file == "" && !a.noTokenOfEnv {
		if token = os.Getenv("PAWL_TOKEN"); token == "" {
			file = os.Getenv("PAWL_TOKEN_FILE")
		}
	}
	if file == "" {
		opts.Token = token
		return nil
	}
	opened, err := OpenTokenFile(file, nil)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	opts.TokenSource = opened.Now
	return nil
}

// HasCredential reports whether calls carry a token or a client certificate.
func (a *App) HasCredential() bool {
	var opts pawl.DialOptions
	return a.cert != "" || a.credential(&opts) == nil && (opts.Token != "" || opts.TokenSource != nil)
}
