// Package cli is what every command needs: the streams, the flags of the root, the way to the server, and errors with their exit
// status. Flags and arguments that several commands take are read here.
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

// explain adds the likely cure where it is known.
func (a *App) explain(err error) string {
	msg := Plain(err)
	if strings.Contains(msg, "is not on this machine: add https://") { // the SDK names its options
		return fmt.Sprintf("--server %q is on another machine, which plaintext must not reach: write https:// before the address, or name the server's "+
			"authority with --tls-ca; --plaintext is for a network that you trust", a.Server)
	}
	what, cure := a.plight(err, msg)
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

// plight says what is wrong with the server and what may cure it, as far as either is known.
func (a *App) plight(err error, msg string) (what, cure string) {
	has := func(part string) bool { return strings.Contains(msg, part) }
	if errors.Is(err, pawltype.ErrUnauthenticated) && has("a token is needed") {
		return "the server at " + a.Server + " wants a token", "give one with --token-file or in PAWL_TOKEN"
	}
	if !errors.Is(err, pawltype.ErrUnavailable) {
		return "", ""
	}
	switch {
	case has("not speak HTTP/2 in plaintext"):
		return "the server at " + a.Server + " does not speak plaintext", "if it wants TLS, write https:// before its address, or name its authority with --tls-ca"
	case has("first record does not look like a TLS handshake"):
		return "the server at " + a.Server + " does not speak TLS", "leave out https:// and --tls-ca, or have it serve with --tls-cert"
	case has("signed by unknown authority"):
		return "the server at " + a.Server + " is not certified by an authority that is trusted here", "name its authority with --tls-ca"
	case has("authentication handshake failed"):
		return "no TLS connection with the server at " + a.Server, ""
	case has("name resolver error"):
		return "nobody knows the address of " + a.Server, "name another server with --server"
	case has("connection error: "):
		return "no server at " + a.Server, "start one with 'pawl serve', or name another with --server"
	case has("no leader"):
		return "", "pawl cluster status says how the cluster stands"
	}
	return "", ""
}

// App is what all commands share: the streams, the flags of the root, and the way to the server.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	started  bool // the command line was understood

	context      string // named by --context
	noTokenOfEnv bool   // it is another server's
	Server       string
	TLSCA        string
	cert, key    string // that it shows
	plaintext    bool
	token        string
	tokenFile    string
	Namespace    string
	keys         string // file with payload keys
	actor        string
	Reason       string
	Format       string

	Tracers trace.TracerProvider // nil: none
}

// Group makes a command that only holds others.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.Args = Commands
	g.AddCommand(commands...)
	return g
}

// Commands is for commands that only hold others: an argument is a command that there isn't.
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

// NoArgs is for commands that take flags only: cobra's own NoArgs would tell of an unknown command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// Run is the RunE of a command: from here on an error is no longer wrong use, unless it says so.
func (a *App) Run(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd, args)
	}
}

// Call is the RunE of a command that talks to the server.
func (a *App) Call(run func(cmd *cobra.Command, client *pawl.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.Run(func(cmd *cobra.Command, args []string) error {
		client, err := a.Dial(pawl.DialOptions{NoRouting: true}) // one call, or a few: not worth a map
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args)
	})
}

// Admin gives the operator's calls of a client, in the name of who runs the command.
func (a *App) Admin(client *pawl.Client) admin.Client {
	return admin.New(client).WithActor(a.Actor()).WithReason(a.Reason)
}

// transport says how connections are made: over TLS, showing a certificate or none, or in plaintext.
func (a *App) transport(opts *pawl.DialOptions) error {
	encrypted := a.TLSCA != "" || strings.Contains(a.Server, "https://")
	switch {
	case a.plaintext && encrypted:
		return Usage("--plaintext goes neither with --tls-ca nor with https:// in --server (%q)", a.Server)
	case (a.cert == "") != (a.key == ""):
		return Usage("--client-cert %q and --client-key %q go together: give both, or neither", a.cert, a.key)
	case a.cert != "" && !encrypted:
		return Usage("--client-cert %q is shown over TLS only: write https:// before the server's address, or name its authority with --tls-ca", a.cert)
	case a.plaintext:
		opts.Plaintext = true
		return nil
	case a.TLSCA == "" && a.cert == "":
		return nil // https:// alone says the rest
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

// credential is the token of the flags, or else of the environment. It is no flag's default, which the help would show.
func (a *App) credential(opts *pawl.DialOptions) error {
	token, file := a.token, a.tokenFile
	if token != "" && file != "" {
		return Usage("--token and --token-file are given: only one of them is allowed")
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
