package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty are the flags that may be given empty, and what that means.
var mayBeEmpty = map[string]string{
	"audit-events": "no event is recorded",
	"cursor":       "the first page",
	"log-headers":  "no header is logged",
	"reason":       "no reason is recorded",
}

// RefuseEmpty rejects flags and arguments that are given but empty. Most often, a variable of a script is not set: the
// command would then concern everything, not one key.
func RefuseEmpty(cmd *cobra.Command, args []string) error {
	var wrong error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err := CheckEmpty(f); err != nil && wrong == nil && f.Changed {
			wrong = Usage("--%s %w", f.Name, err)
		}
	})
	if wrong == nil && slices.Contains(args, "") && !strings.HasPrefix(cmd.Name(), cobra.ShellCompRequestCmd) {
		wrong = Usage("%s: an argument is empty", cmd.CommandPath())
	}
	return wrong
}

// MayBeEmpty reports whether a flag may be given empty.
func MayBeEmpty(f *pflag.Flag) bool { return mayBeEmpty[f.Name] != "" }

// CheckEmpty refuses a flag whose text, or one of whose texts, is empty. Values of other types can't be.
func CheckEmpty(f *pflag.Flag) error {
	empty := f.Value.Type() == "string" && f.Value.String() == ""
	if list, ok := f.Value.(pflag.SliceValue); ok {
		empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
	}
	if empty && !MayBeEmpty(f) {
		return errors.New("is empty: leave it out")
	}
	return nil
}
