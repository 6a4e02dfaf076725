package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/cmd/internal/text"
)

// BulkFlags are the flags of every command that changes many things at once.
type BulkFlags struct {
	DryRun, Yes bool
}

// Add adds --dry-run and --yes.
func (b *BulkFlags) Add(flags *pflag.FlagSet) {
	flags.BoolVar(&b.DryRun, "dry-run", false, "count, but change nothing")
	flags.BoolVarP(&b.Yes, "yes", "y", false, "don't ask for confirmation")
}

// CountView is the output of a bulk command.
type CountView struct {
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	DryRun  bool  `json:"dry_run"`
}

// Confirm shows what a bulk command is about to do and asks for confirmation.
func (a *App) Confirm(ctx context.Context, b *BulkFlags, what string) error {
	if b.Yes {
		return nil
	}
	return a.Ask(ctx, what, "add --yes, or --dry-run to count only")
}

// Ask shows what is about to happen and asks for confirmation. Without a terminal it fails.
func (a *App) Ask(ctx context.Context, what, cure string) error {
	if !text.IsTerminal(a.In) {
		return fmt.Errorf("%s: not confirmed: %s", what, cure)
	}
	fmt.Fprintf(a.Err, "%s. Continue? [y/N] ", what)
	answer := make(chan string, 1)
	go func() { // leaks until the process exits if nothing is typed
		line, _ := bufio.NewReader(a.In).ReadString('\n')
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
