// Command pawl-bench measures a server. It is a program of its own because of the libraries that it needs, such as
// clients of Amazon SQS. The commands are in cmd/internal/bench.
package main

import (
	"os"

	"github.com/pawlq/pawl/cmd/internal/bench"
	"github.com/pawlq/pawl/cmd/internal/cli"
)

func main() {
	a := &cli.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(a.Execute(bench.New(a), os.Args[1:]))
}
