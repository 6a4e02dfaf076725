// Command pawl is the one binary of Pawl: "pawl serve" is the broker, "pawl work" runs any program as a handler, and the
// other verbs are the operator's.
//
// It is thin: serve composes a node, and everything else uses the public SDK like any other program. It knows no task,
// no store and no protocol.
package main

import (
	release "github.com/pawlq/pawl/internal/version"

	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

// version is set by the linker in releases.
var version = release.Version

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

// trouble is an error in a few words, for a screen that goes on.
func (a *app) trouble(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the server at " + a.server + " takes too long"
	}
	if e := (*pawltype.Error)(nil); errors.As(err, &e) {
		err = e
	}
	msg := oneLine(err)
	if what, _ := a.plight(err, msg); what != "" {
		return what
	}
	return msg
}

// plight says what is wrong with the server and what may cure it, as far as either is known.
func (a *app) plight(err error, msg string) (what, cure string) {
	has := func(part string) bool { return strings.Contains(msg, part) }
	if errors.Is(err, pawltype.ErrUnauthenticated) && has("a token is needed") {
		return "the server at " + a.server + " wants a token", "give one with --token-file or in PAWL_TOKEN"
	}
	if !errors.Is(err, pawltype.ErrUnavailable) {
		return "", ""
	}
	switch {
	case has("not speak HTTP/2 in plaintext"):
		return "the server at " + a.server + " does not speak plaintext", "if it wants TLS, write https:// before its address, or name its authority with --tls-ca"
	case has("first record does not look like a TLS handshake"):
		return "the server at " + a.server + " does not speak TLS", "leave out https:// and --tls-ca, or have it serve with --tls-cert"
	case has("signed by unknown authority"):
		return "the server at " + a.server + " is not certified by an authority that is trusted here", "name its authority with --tls-ca"
	case has("authentication handshake failed"):
		return "no TLS connection with the server at " + a.server, ""
	case has("name resolver error"):
		return "nobody knows the address of " + a.server, "name another server with --server"
	case has("connection error: "):
		return "no server at " + a.server, "start one with 'pawl serve', or name another with --server"
	case has("no leader"):
		return "", "pawl cluster status says how the cluster stands"
	}
	return "", ""
}

// oneLine drops the SDK's prefix from within, and line ends.
func oneLine(err error) string {
	msg := strings.TrimPrefix(strings.ReplaceAll(err.Error(), ": pawl: ", ": "), "pawl: ")
	return strings.Join(strings.FieldsFunc(msg, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
