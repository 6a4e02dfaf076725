// Command pawl is Pawl in one binary: "pawl serve" is the broker, "pawl work" runs any program as a handler, and the other commands are for
// operators. What needs more libraries is a program of its own: pawl-outbox and pawl-bench.
//
// It is thin: serve composes a node, and every other command uses the public SDK like any other program. This package
// is the list of commands; commands that take more than one call are in internal.
package main

import (
	"io"
	"os"

	"github.com/pawlq/pawl/cmd/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes a command line and returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{&cli.App{In: stdin, Out: stdout, Err: stderr}}
	return a.Execute(newRoot(a), args)
}
