package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// bulkFlags belong to every command that changes many things at once.
type bulkFlags struct {
	dryRun, yes bool
}

func (b *bulkFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&b.dryRun, "dry-run", false, "count only, change nothing")
	flags.BoolVarP(&b.yes, "yes", "y", false, "don't ask")
}

// countView is the answer of a bulk command.
type countView struct {
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	DryRun  bool  `json:"dry_run"`
}

// confirm shows what is about to happen to many things and waits for a yes.
func (a *app) confirm(ctx context.Context, b *bulkFlags, what string) error {
	if b.yes {
		return nil
	}
	return a.ask(ctx, what, "add --yes, or --dry-run to count only")
}

// ask shows what is about to happen and waits for a yes. Without a terminal there is nobody to ask.
func (a *app) ask(ctx context.Context, what, cure string) error {
	if !isTerminal(a.in) {
		return fmt.Errorf("%s: not confirmed: %s", what, cure)
	}
	fmt.Fprintf(a.err, "%s. Go on? [y/N] ", what)
	answer := make(chan string, 1)
	go func() { // ends with the process if the terminal stays silent
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answer:
		if word := strings.ToLower(strings.TrimSpace(line)); word != "y" && word != "yes" {
			return fmt.Errorf("%s: not confirmed", what)
		}
		return nil
	}
}
