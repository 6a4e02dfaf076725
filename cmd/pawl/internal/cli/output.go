package cli

import (
	"bytes"
	"io"

	"github.com/pawlq/pawl/cmd/pawl/internal/text"
)

// CheckFormat refuses a value of --output that is no format.
func (a *App) CheckFormat() error {
	switch a.Format {
	case "table", "json", "yaml":
		return nil
	}
	return Usage("--output %q is not one of table, json, yaml", a.Format)
}

// Print writes v as JSON or YAML, or what table writes.
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

// Progress makes a bar on standard error.
func (a *App) Progress(label string, total int) *text.ProgressBar {
	return text.NewProgressBar(a.Err, label, total)
}
