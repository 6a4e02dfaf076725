package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// emptyFlags are the flags that may be empty, and why.
var emptyFlags = map[string]string{
	"audit-events": "the only way to record none",
	"cursor":       "a loop over pages begins with it, and it selects nothing",
	"log-headers":  "the only way to log none",
	"reason":       "a text for people",
}

// TestEmptyFlagsAreRefused: a flag of any command, or an argument, that is given but empty, such as an unset variable
// of a script, is refused before anything is called.
func TestEmptyFlagsAreRefused(t *testing.T) {
	prepare := func(cmd *cobra.Command, line ...string) error {
		if err := cmd.ParseFlags(line); err != nil {
			return err
		}
		return cmd.Root().PersistentPreRunE(cmd, cmd.Flags().Args())
	}
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			each(c)
		}
		if cmd.HasSubCommands() || !cmd.Runnable() || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			return
		}
		if err := prepare(cmd, "a", ""); err == nil || !strings.Contains(err.Error(), "argument is empty") {
			t.Errorf("%s with an empty argument: %v", cmd.CommandPath(), err)
		}
		_ = prepare(cmd) // adds the flags of all commands
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			if emptyFlags[f.Name] != "" || strings.Contains(f.Usage, "''") {
				if err := prepare(cmd, "--"+f.Name, ""); err != nil && strings.Contains(err.Error(), "--"+f.Name+" is empty") {
					t.Errorf("%s --%s '', which its help or the list above allows: %v", cmd.CommandPath(), f.Name, err)
				}
				f.Changed = false
				return
			}
			values := []string{""}
			if f.Value.Type() == "stringSlice" {
				values = append(values, "a,", ",")
			}
			for _, value := range values {
				if err := prepare(cmd, "--"+f.Name, value); err == nil || !strings.Contains(err.Error(), "--"+f.Name) {
					t.Errorf("%s --%s %q: %v", cmd.CommandPath(), f.Name, value, err)
				}
				f.Changed = false
			}
		})
	}
	for _, root := range trees(t) {
		each(root)
	}
}
