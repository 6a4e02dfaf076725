package format

import (
	"bytes"
	"strconv"
	"unicode"
	"unicode/utf16"
)

// decodeEscapes decodes the \u escapes in valid JSON, which some languages write for everything but ASCII; false: there
// are none. Escapes of invisible characters stay, and so do those that JSON requires.
func decodeEscapes(text []byte) ([]byte, bool) {
	if !bytes.Contains(text, []byte(`\u`)) {
		return text, false
	}
	out, read := make([]byte, 0, len(text)), false
	for i := 0; i < len(text); {
		c, size := escapeAt(text[i:])
		switch {
		case c != 0 && c != '"' && c != '\\' && unicode.IsPrint(c):
			out, read = append(out, string(c)...), true
		case size == 0 && text[i] == '\\' && i+1 < len(text): // another escape; its second character starts none
			size = 2
			fallthrough
		default:
			size = max(size, 1)
			out = append(out, text[i:i+size]...)
		}
		i += size
	}
	return out, read
}

// escapeAt decodes the \u escape, or surrogate pair, at the start of text, and returns its length; 0: there is none.
func escapeAt(text []byte) (c rune, size int) {
	c, ok := unitAt(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(c) {
		return c, 6
	}
	if low, ok := unitAt(text[6:]); ok {
		if c = utf16.DecodeRune(c, low); c != unicode.ReplacementChar {
			return c, 12
		}
	}
	return 0, 6 // half a surrogate pair is no character
}

func unitAt(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
