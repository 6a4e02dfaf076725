package cli

import (
	"bytes"
	"io"

	"github.com/pawlq/pawl/cmd/internal/text"
)

// CheckFormat rejects an unknown value of --output.
func (a *App) CheckFormat() error {
	switch a.Format {
	case "table", "json", "yaml":
		return nil
	}
	return Usage("--output %q is not one of table, json, yaml", a.Format)
}

// Print writes v as JSON or YAML, or calls table for people.
func (a *App) Print(v any, table func(w io.Writer)) error {
	switch a.Format {
	case "json":
		return text.JSON(a.Out, v)
	case "yaml":
		return text.YAML(a.Out, v)
	}
	var b bytes.Buffer
	table(&b)
	_, err := a.Out.Write(b.Bytes())
	return err
}

// Progress returns a progress bar on standard error.
func (a *App) Progress(label string, total int) *text.ProgressBar {
	return text.NewProgressBar(a.Err, label, total)
}
