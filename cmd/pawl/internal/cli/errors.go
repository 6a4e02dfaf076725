package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

// The exit statuses, the same for every command.
const (
	ExitDone    = 0
	ExitRefused = 1
	ExitUsage   = 2
)

// Usage makes an error of wrong use.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage makes an error one of wrong use.
func AsUsage(err error) error { return UsageError{err} }

// ErrSilent ends a command with status 1 whose output has said everything.
var ErrSilent = errors.New("")

// Fail writes the error as one line and returns the exit status.
func (a *App) Fail(cmd *cobra.Command, err error) int {
	var wrong UsageError
	if !a.started || errors.As(err, &wrong) {
		fmt.Fprintf(a.Err, "pawl: %s (see '%s --help')\n", OneLine(err), cmd.CommandPath())
		return ExitUsage
	}
	if err != ErrSilent {
		fmt.Fprintf(a.Err, "pawl: %s\n", a.explain(err))
	}
	return ExitRefused
}

// Describe is an error in a few words, for a screen that goes on.
func (a *App) Describe(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the server at " + a.Server + " takes too long"
	}
	if e := (*pawltype.Error)(nil); errors.As(err, &e) {
		err = e
	}
	msg := OneLine(err)
	if what, _ := a.plight(err, msg); what != "" {
		return what
	}
	return msg
}

// OneLine drops the SDK's prefix from within, and line ends.
func OneLine(err error) string {
	msg := strings.TrimPrefix(strings.ReplaceAll(err.Error(), ": pawl: ", ": "), "pawl: ")
	return strings.Join(strings.FieldsFunc(msg, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// UsageError is wrong use: of flags, arguments or their combination.
type UsageError struct{ error }
