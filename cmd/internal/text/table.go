// Package text formats figures, times, tables and progress bars for people, and JSON and YAML for programs.
package text

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/pawlq/pawl/keyring"
)

// names is a writer on which only the names of what is listed appear.
type names struct{ to io.Writer }

// Names returns a writer for a table of which only the names appear, one per line: the first column, unless that says
// where or when something is.
func Names(to io.Writer) io.Writer { return names{to} }

// Write implements io.Writer.
func (names) Write(p []byte) (int, error) { return len(p), nil }

func (n names) columns(head string, rows [][]string) {
	heads, name := strings.Split(head, "|"), map[string]string{"NAMESPACE": "NAME", "AT": "ID", "TIME": "ID"}
	at := max(slices.Index(heads, name[heads[0]]), 0)
	for _, row := range rows {
		fmt.Fprintln(n.to, Printable(row[at]))
	}
}

// Columns writes rows below a header, aligned.
func Columns(w io.Writer, head string, rows [][]string) {
	if n, ok := w.(names); ok {
		n.columns(head, rows)
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(head, "|", "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = Printable(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush()
}

// Fields writes one name and value per line, without empty values.
func Fields(w io.Writer, pairs ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", pairs[i], Printable(pairs[i+1]))
		}
	}
	_ = t.Flush()
}

// Printable replaces what is not printable in the content of tasks with spaces, so that it can neither move the cursor nor break a row.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// Short cuts a text to at most n characters.
func Short(s string, n int) string {
	r := []rune(Printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// PreviewTyped is Preview for data that may be encrypted.
func PreviewTyped(data []byte, contentType string) string {
	if key, ok := keyring.EncryptedWith(contentType); ok && len(data) > 0 {
		return fmt.Sprintf("%s, encrypted with key %s (--payload-keys)", Count(int64(len(data)), "byte"), key)
	}
	return Preview(data)
}

// Preview returns the beginning of data if it is text, and its size otherwise.
func Preview(data []byte) string {
	s := string(data)
	if strings.ContainsRune(strings.ToValidUTF8(s, "\x00"), 0) {
		return Count(int64(len(data)), "byte")
	}
	return Short(strings.TrimSpace(s), 500)
}

// MaxCell is the maximum length of a cell in a list, in characters.
const MaxCell = 60
