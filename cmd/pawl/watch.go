package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
)

// watchEvery is how often --watch looks again.
const watchEvery = 2 * time.Second

// lists is the RunE of a command that lists: once, or again and again with --watch until it is interrupted.
func (a *app) lists(cmd *cobra.Command, show func(ctx context.Context, client *pawl.Client, args []string) error) {
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again every "+period(watchEvery)+" until interrupted")
	cmd.Aliases = append(cmd.Aliases, "list")
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx := cmd.Context()
		if !*watch {
			return show(ctx, client, args)
		}
		return a.watch(ctx, func() error { return show(ctx, client, args) })
	})
}

// watchHead tells on a terminal when it was asked and how often it is, so that one that hangs does not look alive.
func watchHead(now time.Time) string {
	return now.Local().Format("15:04:05") + ", every " + period(watchEvery) + "\n\n"
}

func (a *app) watch(ctx context.Context, show func() error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if isTerminal(a.out) {
			fmt.Fprint(a.out, "\x1b[H\x1b[2J"+watchHead(time.Now())) // to the corner, and clear
		}
		if err := show(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
