package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
)

const (
	defaultServer = "127.0.0.1:7295"
	// retryFor outlasts a hiccup, but not the patience of who sits at the terminal.
	retryFor = 2 * time.Second
)

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	started  bool // the command line was understood

	server    string
	tlsCA     string
	cert, key string // that it shows
	plaintext bool
	token     string
	tokenFile string
	namespace string
	keys      string // file with payload keys
	actor     string
	reason    string
	format    string

	tracers trace.TracerProvider // nil: none
}

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
			if err := refuseIdle(cmd); err != nil {
				return err
			}
			return a.checkFormat()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVar(&a.server, "server", cmp.Or(os.Getenv("PAWL_SERVER"), defaultServer), "address of the server, HOST:PORT or https://HOST:PORT (env PAWL_SERVER)")
	f.StringVar(&a.tlsCA, "tls-ca", os.Getenv("PAWL_TLS_CA"), "use TLS, and trust only servers that this file's authority has certified (env PAWL_TLS_CA)")
	f.StringVar(&a.cert, "client-cert", os.Getenv("PAWL_CLIENT_CERT"), "certificate to show the server, over TLS, in place of a token; read again when it changes (env PAWL_CLIENT_CERT)")
	f.StringVar(&a.key, "client-key", os.Getenv("PAWL_CLIENT_KEY"), "key of that certificate (env PAWL_CLIENT_KEY)")
	f.BoolVar(&a.plaintext, "plaintext", false, "allow a server on another machine, without encryption")
	f.StringVar(&a.token, "token", "", "token to call the server with; other users of the machine may see it here: better in env PAWL_TOKEN, or --token-file")
	f.StringVar(&a.tokenFile, "token-file", "", "file with that token, for its owner only; read again when it changes (env PAWL_TOKEN_FILE)")
	f.StringVar(&a.namespace, "namespace", os.Getenv("PAWL_NAMESPACE"), "namespace to work in, for tokens that are good for all (env PAWL_NAMESPACE)")
	f.StringVar(&a.keys, "payload-keys", os.Getenv("PAWL_PAYLOAD_KEYS"), "file with keys that encrypt payloads and decrypt them, for its owner only: see pawl payload-key (env PAWL_PAYLOAD_KEYS)")
	f.StringVar(&a.actor, "actor", os.Getenv("PAWL_ACTOR"), "who you are, for the record (env PAWL_ACTOR; default USER@HOST)")
	f.StringVar(&a.reason, "reason", "", "why you do it, for the record")
	f.StringVarP(&a.format, "output", "o", "table", "how answers are written: table, json or yaml")
	root.AddCommand(
		newServe(a), newEnqueue(a), newTask(a), newQueue(a), newDLQ(a), newOperation(a), newSchedule(a), newGroup(a), newAudit(a), newToken(a), newNamespace(a), newWebhook(a), newStats(a), newTop(a), newWorker(a), newEvents(a), newWork(a), newCluster(a), newVerify(a),
		newBackup(a), newRestore(a), newRecover(a), newCert(a), newPayloadKey(a), newBench(a), newDemo(a), newVersion(a),
	)
	hideIdle(root)
	return root
}

// group makes a command that only holds others.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.AddCommand(commands...)
	return g
}

// noArgs is for commands that take flags only: cobra's own NoArgs would tell of an unknown command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// does is the RunE of a command: from here on an error is no longer wrong use, unless it says so.
func (a *app) does(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd, args)
	}
}

// calls is the RunE of a command that talks to the server.
func (a *app) calls(run func(cmd *cobra.Command, client *pawl.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.does(func(cmd *cobra.Command, args []string) error {
		client, err := a.dial(pawl.DialOptions{NoRouting: true}) // one call, or a few: not worth a map
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args)
	})
}

// dial makes a client as the flags say, with some options more.
func (a *app) dial(more ...pawl.DialOptions) (*pawl.Client, error) {
	opts := pawl.DialOptions{RetryFor: retryFor, Namespace: a.namespace, Telemetry: pawl.Telemetry{TracerProvider: a.tracers},
		Logger: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err := a.transport(&opts); err != nil {
		return nil, err
	}
	if err := a.credential(&opts); err != nil {
		return nil, err
	}
	if a.keys != "" {
		ring, err := readKeys(a.keys)
		if err != nil {
			return nil, fmt.Errorf("--payload-keys: %w", err)
		}
		opts.Keyring = ring
	}
	return pawl.Dial(a.server, append([]pawl.DialOptions{opts}, more...)...)
}

// admin gives the operator's calls of a client, in the name of who runs the command.
func (a *app) admin(client *pawl.Client) admin.Client {
	return admin.New(client).WithActor(a.who()).WithReason(a.reason)
}

// transport says how connections are made: over TLS, showing a certificate or none, or in plaintext.
func (a *app) transport(opts *pawl.DialOptions) error {
	encrypted := a.tlsCA != "" || strings.Contains(a.server, "https://")
	switch {
	case a.plaintext && encrypted:
		return usage("--plaintext goes neither with --tls-ca nor with https:// in --server (%q)", a.server)
	case (a.cert == "") != (a.key == ""):
		return usage("--client-cert %q and --client-key %q go together: give both, or neither", a.cert, a.key)
	case a.cert != "" && !encrypted:
		return usage("--client-cert %q is shown over TLS only: write https:// before the server's address, or name its authority with --tls-ca", a.cert)
	case a.plaintext:
		opts.Plaintext = true
		return nil
	case a.tlsCA == "" && a.cert == "":
		return nil // https:// alone says the rest
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.tlsCA != "" {
		roots, err := readRoots(a.tlsCA)
		if err != nil {
			return fmt.Errorf("--tls-ca %q: %w", a.tlsCA, err)
		}
		config.RootCAs = roots
	}
	if a.cert != "" {
		pair, err := certs.OpenClient(a.cert, a.key, slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			return fmt.Errorf("--client-cert: %w", err)
		}
		config.GetClientCertificate = pair.Show
	}
	opts.TLS = config
	return nil
}

// credential is the token of the flags, or else of the environment. It is no flag's default, which the help would show.
func (a *app) credential(opts *pawl.DialOptions) error {
	token, file := a.token, a.tokenFile
	if token != "" && file != "" {
		return usage("--token and --token-file are given: only one of them is allowed")
	}
	if token == "" && file == "" {
		if token = os.Getenv("PAWL_TOKEN"); token == "" {
			file = os.Getenv("PAWL_TOKEN_FILE")
		}
	}
	if file == "" {
		opts.Token = token
		return nil
	}
	opened, err := openTokenFile(file, nil)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	opts.TokenSource = opened.now
	return nil
}

// readRoots reads the certificates of the authorities that vouch for servers.
func readRoots(path string) (*x509.CertPool, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(file) {
		return nil, errors.New("no certificate in it: want that of an authority, in PEM")
	}
	return roots, nil
}
