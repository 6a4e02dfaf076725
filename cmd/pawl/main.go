// Command pawl is Pawl's only binary: "pawl serve" is the broker, "pawl work" runs any program as a handler, and the other commands are for
// operators.
//
// It is thin: serve composes a node, and every other command uses the public SDK like any other program. This package is the list of commands;
// commands that take more than one call are in internal.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pawlq/pawl/cmd/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes a command line and returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the first signal cancels ctx, the second ends the process
	a := &app{&cli.App{In: stdin, Out: stdout, Err: stderr}}
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitDone
	}
	return a.Fail(cmd, err)
}
