package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// pingView is the answer to a ping.
type pingView struct {
	Server  string  `json:"server"`
	Node    string  `json:"node,omitempty"`
	Version string  `json:"version,omitempty"`
	Seconds float64 `json:"seconds"`
}

func newPing(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "ping", Short: "Check that a server answers and is ready", Args: cli.NoArgs,
		Long: `Check that a server answers and is ready to serve, and print which node answered and how long that took,
including the connection. The check needs no token, but only a caller
with a valid token or a client certificate sees the name of the node.

The exit status is 0 if the server is ready, and 1 if it is not, or has not answered within --timeout, so a
container's health check can use the command.`,
		Example: "  pawl ping --timeout 2s\n  pawl ping --server https://n1.example.com:7295 --tls-ca ca.crt -o json",
	}
	cli.PeriodVar(cmd.Flags(), &timeout, "timeout", 5*time.Second, "maximum time to wait for the answer")
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return cli.Usage("--timeout %s is not above 0s", timeout)
		}
		client, err := a.Dial(pawl.DialOptions{NoRouting: true, RetryFor: -1})
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		began := time.Now()
		err = a.Admin(client).Cluster().Ping(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no answer from the server at %s within %s", a.Server, text.Period(timeout))
		}
		if err != nil {
			return err
		}
		took := time.Since(began)
		v := pingView{Server: a.Server, Seconds: took.Seconds()}
		if a.HasCredential() { // a server that requires tokens would count the call as refused
			if s, err := a.Admin(client).Cluster().Server(ctx); err == nil {
				v.Node, v.Version = s.Node, s.Version
			}
		}
		return a.Print(v, func(w io.Writer) {
			who := "the server"
			if v.Node != "" {
				who = fmt.Sprintf("node %s (pawl %s)", v.Node, v.Version)
			}
			fmt.Fprintf(w, "%s at %s is ready: answered in %s\n", who, v.Server, text.Span(took))
		})
	})
	return cmd
}
