package cli

import (
	"io"
	"log/slog"
)

// NewLogger returns a logger configured by --log-format and --log-level.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usage("--log-level %q is not one of debug, info, warn, error", level)
	}
	opts.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		opts.ReplaceAttr = wordedDuration
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, Usage("--log-format %q is neither text nor json", format)
}

// wordedDuration writes durations as the API and the text format do, such as "25s": by default JSON has them as nanoseconds.
func wordedDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
