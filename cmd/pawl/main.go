// Command pawl is the one binary of Pawl: "pawl serve" is the broker, "pawl work" runs any program as a handler, and the
// other verbs are the operator's.
//
// It is thin: serve composes a node, and everything else uses the public SDK like any other program. It knows no task,
// no store and no protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
)

// version is set by the linker in releases.
var version = pawl.Version

// The exit statuses, the same for every command.
const (
	exitDone    = 0
	exitRefused = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs one command line and returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the first signal asks, the second ends the process
	a := &app{in: stdin, out: stdout, err: stderr}
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	return a.fail(cmd, err)
}

// usageError is wrong use: of flags, arguments or their combination.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errSilent ends a command with status 1 whose output has said everything.
var errSilent = errors.New("")

// fail writes the error as one line and returns the exit status.
func (a *app) fail(cmd *cobra.Command, err error) int {
	var wrong usageError
	if !a.started || errors.As(err, &wrong) {
		fmt.Fprintf(a.err, "pawl: %s (see '%s --help')\n", oneLine(err), cmd.CommandPath())
		return exitUsage
	}
	if err != errSilent {
		fmt.Fprintf(a.err, "pawl: %s\n", a.explain(err))
	}
	return exitRefused
}

// explain adds the likely cure where it is known.
func (a *app) explain(err error) string {
	msg := oneLine(err)
	if errors.Is(err, pawl.ErrUnauthenticated) && strings.Contains(msg, "a token is needed") {
		return fmt.Sprintf("the server at %s wants a token: give one with --token-file or in PAWL_TOKEN (%s)", a.server, msg)
	}
	if !errors.Is(err, pawl.ErrUnavailable) {
		return msg
	}
	has := func(part string) bool { return strings.Contains(msg, part) }
	switch {
	case has("not speak HTTP/2 in plaintext"):
		return fmt.Sprintf("the server at %s does not speak plaintext: if it wants TLS, write https:// before its address, or name its authority with --tls-ca (%s)", a.server, msg)
	case has("first record does not look like a TLS handshake"):
		return fmt.Sprintf("the server at %s does not speak TLS: leave out https:// and --tls-ca, or have it serve with --tls-cert (%s)", a.server, msg)
	case has("signed by unknown authority"):
		return fmt.Sprintf("the server at %s is not certified by an authority that is trusted here: name its authority with --tls-ca (%s)", a.server, msg)
	case has("authentication handshake failed"):
		return fmt.Sprintf("no TLS connection with the server at %s (%s)", a.server, msg)
	case has("name resolver error"):
		return fmt.Sprintf("nobody knows the address of %s: name another server with --server (%s)", a.server, msg)
	case has("connection error: "):
		return fmt.Sprintf("no server at %s: start one with 'pawl serve', or name another with --server (%s)", a.server, msg)
	}
	if has("no leader") {
		return msg + ": pawl cluster status says how the cluster stands"
	}
	return msg
}

// oneLine drops the SDK's prefix from within, and line ends.
func oneLine(err error) string {
	msg := strings.TrimPrefix(strings.ReplaceAll(err.Error(), ": pawl: ", ": "), "pawl: ")
	return strings.Join(strings.FieldsFunc(msg, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
