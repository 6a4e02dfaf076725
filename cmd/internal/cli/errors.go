package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/pawltype"
)

// Exit statuses, the same for every command.
const (
	ExitDone    = 0
	ExitRefused = 1
	ExitUsage   = 2
)

// Usage returns a usage error.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// AsUsage marks an error as a usage error.
func AsUsage(err error) error { return UsageError{err} }

// ErrSilent makes a command exit with status 1 without a message, because its output has said everything.
var ErrSilent = errors.New("")

// Fail prints the error on one line and returns the exit status.
func (a *App) Fail(cmd *cobra.Command, err error) int {
	var wrong UsageError
	if !a.started || errors.As(err, &wrong) {
		fmt.Fprintf(a.Err, "%s: %s (see '%s --help')\n", cmd.Root().Name(), OneLine(err), cmd.CommandPath())
		return ExitUsage
	}
	if err != ErrSilent {
		msg := a.explain(err)
		if ctx := cmd.Context(); ctx != nil && ctx.Err() != nil {
			msg = strings.ReplaceAll(msg, context.Canceled.Error(), "interrupted")
		}
		fmt.Fprintf(a.Err, "%s: %s\n", cmd.Root().Name(), msg)
	}
	return ExitRefused
}

// Describe returns an error in a few words, for a screen that keeps being refreshed.
func (a *App) Describe(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "the server at " + a.Server + " takes too long"
	}
	if e := (*pawltype.Error)(nil); errors.As(err, &e) {
		err = e
	}
	msg := Plain(err)
	if what, _ := a.diagnose(err, msg); what != "" {
		return what
	}
	return msg
}

// Plain returns an error's message for people: without the code of a refusal if the message says the same, and without
// repetitions of what was attempted. `queue "mail": not_found: queue "mail": not found` becomes `queue "mail": not
// found`.
func Plain(err error) string {
	msg := OneLine(err)
	if all, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(all.Unwrap()...).Error() {
		var each []string
		for _, err := range all.Unwrap() {
			each = append(each, Plain(err))
		}
		return strings.Join(each, "; ")
	}
	e := (*pawltype.Error)(nil)
	if !errors.As(err, &e) || e.Message == "" {
		return msg
	}
	message := OneLine(errors.New(e.Message))
	before, after, found := strings.Cut(msg, string(e.Code)+": "+message)
	if !found {
		return msg
	}
	switch e.Code {
	case pawltype.ErrNotFound, pawltype.ErrInvalidArgument, pawltype.ErrWrongState, pawltype.ErrUnauthenticated:
	default:
		message = string(e.Code) + ": " + message
	}
	before = strings.TrimSuffix(before, ": ")
	for from := range before { // the longest suffix of what was attempted that is a prefix of the message
		if from == 0 || before[from-1] == ' ' {
			if rest, ok := cutUnquoted(message, before[from:]+": "); ok {
				return before + ": " + rest + after
			}
		}
	}
	if before != "" {
		before += ": "
	}
	return before + message + after
}

// cutUnquoted cuts a prefix, ignoring quotes in both.
func cutUnquoted(s, prefix string) (rest string, ok bool) {
	prefix = strings.ReplaceAll(prefix, `"`, "")
	for i := 0; i < len(s) && prefix != ""; i++ {
		if s[i] == '"' {
			continue
		}
		if s[i] != prefix[0] {
			return s, false
		}
		prefix, rest = prefix[1:], s[i+1:]
	}
	return rest, prefix == ""
}

// OneLine removes the SDK's prefix and line breaks from an error's message.
func OneLine(err error) string {
	msg := strings.TrimPrefix(strings.ReplaceAll(err.Error(), ": pawl: ", ": "), "pawl: ")
	return strings.Join(strings.FieldsFunc(msg, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// UsageError is an error in the use of flags, of arguments or of their combination.
type UsageError struct{ error }
