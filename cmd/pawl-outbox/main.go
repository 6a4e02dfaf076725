// Command pawl-outbox relays the tasks in the tables of an outbox to a server. It is a program of its own because of
// the database drivers. The commands are in cmd/internal/relay.
package main

import (
	"os"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/relay"
)

func main() {
	a := &cli.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(a.Execute(relay.New(a), os.Args[1:]))
}
