package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/text"
)

// CheckFormat rejects a value of --output that a command does not have: wide and name are for lists.
func (a *App) CheckFormat(cmd *cobra.Command) error {
	formats := words["output"][:3]
	if isList(cmd) {
		formats = words["output"]
	}
	if slices.Contains(formats, a.Format) {
		return nil
	}
	return Usage("--output %q is not one of %s", a.Format, strings.Join(formats, ", "))
}

// isList reports whether a command prints a list, which has pages.
func isList(cmd *cobra.Command) bool {
	return cmd.Flags().Lookup("limit") != nil && cmd.Flags().Lookup("watch") != nil
}

// ForPeople reports whether the output is text rather than JSON or YAML.
func (a *App) ForPeople() bool { return a.Format != "json" && a.Format != "yaml" }

// Print writes v as JSON or YAML, or calls table for people; with -o name only the names in the table are written.
func (a *App) Print(v any, table func(w io.Writer)) error {
	switch a.Format {
	case "json":
		return text.JSON(a.Out, v)
	case "yaml":
		return text.YAML(a.Out, v)
	}
	var b bytes.Buffer
	if a.Format == "name" {
		table(text.Names(&b))
	} else {
		table(&b)
	}
	_, err := a.Out.Write(b.Bytes())
	return err
}

// Progress returns a progress bar on standard error.
func (a *App) Progress(label string, total int) *text.ProgressBar {
	return text.NewProgressBar(a.Err, label, total)
}
