package ui

import (
	"bytes"
	"strconv"
	"unicode"
	"unicode/utf16"
)

// readEscapes gives valid JSON with the letters that stand in it as \u escapes, as some languages write all but ASCII; false: there are none.
// What can't be seen stays escaped, and so do the letters that JSON needs.
func readEscapes(text []byte) ([]byte, bool) {
	if !bytes.Contains(text, []byte(`\u`)) {
		return text, false
	}
	out, read := make([]byte, 0, len(text)), false
	for i := 0; i < len(text); {
		c, size := escapeAt(text[i:])
		switch {
		case c != 0 && c != '"' && c != '\\' && unicode.IsPrint(c):
			out, read = append(out, string(c)...), true
		case size == 0 && text[i] == '\\' && i+1 < len(text): // another escape, whose second letter begins none
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

// escapeAt is the letter that a \u escape, or a pair of them, stands for at the beginning of a text, and how long that is; 0: there is none.
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
	return 0, 6 // half a pair is no letter
}

func unitAt(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
