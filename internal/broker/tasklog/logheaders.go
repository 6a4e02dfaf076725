// Package tasklog forms the attributes of log lines about tasks, and says which of their headers may be logged. It does not
// know what else a line says.
package tasklog

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// Limits on the headers in a dead letter's log line: about 4 KiB in all.
const (
	maxNames = 16
	maxName  = 64  // bytes
	MaxValue = 200 // bytes
)

// Default returns the headers included in a dead letter's log line unless the operator configures others: those by which
// requests are found in the logs of other services.
func Default() []string {
	return []string{"correlation-id", "x-request-id", task.HeaderTraceParent}
}

// headerName matches a token as HTTP defines it, without the characters that would have to be quoted in a log line.
var headerName = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// credentials are headers that must never be logged, even if configured.
var credentials = map[string]bool{"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true}

// Parse parses the names of headers to log. The result is not nil, and contains each name once, in lower case.
func Parse(texts []string) ([]string, error) {
	if len(texts) > maxNames {
		return nil, fmt.Errorf("%d names, at most %d are allowed", len(texts), maxNames)
	}
	names := make([]string, 0, len(texts))
	for _, text := range texts {
		text = strings.TrimSpace(text)
		name := strings.ToLower(text)
		switch {
		case len(text) > maxName:
			return nil, fmt.Errorf("%q has %d bytes, at most %d are allowed", task.Cut(text, maxName), len(text), maxName)
		case !headerName.MatchString(text):
			return nil, fmt.Errorf("%q is not the name of a header: a name has letters, digits and . _ ~ -", text)
		case credentials[name]:
			return nil, fmt.Errorf("%q holds credentials, which are never logged", text)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// headerAttrs returns the attributes for the named headers of a task, each cut to MaxValue.
func headerAttrs(names []string, headers map[string]string) []any {
	var found []any
	for _, name := range names {
		if value, ok := headerOf(headers, name); ok {
			found = append(found, slog.String(name, task.Cut(value, MaxValue)))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []any{slog.Group("headers", found...)}
}

// headerOf looks up a header by its lower-case name. Among headers whose names differ only in case it prefers the one in lower case,
// then the one that sorts first.
func headerOf(headers map[string]string, name string) (string, bool) {
	if value, ok := headers[name]; ok {
		return value, true
	}
	for _, other := range slices.Sorted(maps.Keys(headers)) {
		if strings.EqualFold(other, name) {
			return headers[other], true
		}
	}
	return "", false
}
