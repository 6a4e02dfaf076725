package format

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pawlq/pawl/keyring"
)

// Document is a payload, result or checkpoint as a page shows it.
type Document struct {
	Text string // indented if it is JSON, with \u escapes decoded
	Raw  string // the original text if escapes were decoded; "": they were not
	Size int64
	Kind string
	Cut  bool // it was truncated
}

// maxShown is how much of a document a page shows: the whole has a URL of its own.
const maxShown = 8 << 10

// DocumentOf returns a document of a content type, which is JSON if kind is ""; nil if data is empty.
func DocumentOf(data []byte, kind string) *Document {
	if len(data) == 0 {
		return nil
	}
	d := &Document{Size: int64(len(data)), Kind: kind}
	if key, ok := keyring.EncryptedWith(kind); ok {
		d.Kind, d.Text = "encrypted", "Encrypted with key "+key+". Only programs that have the key can read it."
		return d
	}
	text := data
	if kind == "" || kind == "application/json" {
		d.Kind = "application/json"
		if long, ok := Indent(data); ok {
			var read bool
			if text, read = decodeEscapes(long); read {
				d.Raw = shownOf(data)
			}
		}
	}
	d.Cut = len(text) > maxShown
	d.Text = shownOf(text)
	return d
}

// maxIndented bounds indented JSON, in bytes: with deep nesting, indentation takes thousands of times the space of the rest.
const maxIndented = 4 << 20

// Indent returns JSON with indentation, and false if data is not JSON or would become too long.
func Indent(data []byte) (indented []byte, ok bool) {
	size, depth, quoted := len(data), 0, false
	for i := 0; i < len(data) && size <= maxIndented; i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		}
	}
	var b bytes.Buffer
	if size > maxIndented || json.Indent(&b, data, "", "  ") != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// shownOf returns as much of a document as a page shows.
func shownOf(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), maxShown)]), "\ufffd")
}
