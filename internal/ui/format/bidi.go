package format

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// IsBidiControl reports whether c is an invisible character that changes the direction of the text after it (Unicode's
// Bidi_Control). With such characters a caller can make one name look like another.
func IsBidiControl(c rune) bool { return unicode.Is(unicode.Bidi_Control, c) }

// ShowBidiControls makes bidirectional control characters in a page visible, and isolates the effect of each. The text
// itself stays the same for copying. Form fields are left alone, since their content is sent back.
//
// Pages come from html/template, which writes < and > only for tags.
func ShowBidiControls(page []byte) []byte {
	if !bytes.ContainsFunc(page, IsBidiControl) {
		return page
	}
	var b bytes.Buffer
	mark := markBidiControl
	for len(page) > 0 {
		text, rest, _ := bytes.Cut(page, []byte("<"))
		writeBidiControls(&b, text, mark)
		if rest == nil {
			break
		}
		tag, after, _ := bytes.Cut(rest, []byte(">"))
		b.WriteByte('<')
		b.Write(tag)
		b.WriteByte('>')
		mark, page = bidiMarkAfter(tag), after
	}
	return b.Bytes()
}

// bidiMarkAfter returns how such characters are shown after a tag. Some elements can contain only plain text.
func bidiMarkAfter(tag []byte) func(rune) string {
	name, _, _ := bytes.Cut(tag, []byte(" "))
	switch string(name) {
	case "textarea":
		return func(c rune) string { return string(c) }
	case "title", "option", "text": // SVG text can't contain HTML
		return func(c rune) string { return fmt.Sprintf("[U+%04X]", c) }
	}
	return markBidiControl
}

func markBidiControl(c rune) string {
	return fmt.Sprintf(`<i class="turn" data-c="U+%04X">%c</i>`, c, c)
}

func writeBidiControls(b *bytes.Buffer, text []byte, mark func(rune) string) {
	for len(text) > 0 {
		at := bytes.IndexFunc(text, IsBidiControl)
		if at < 0 {
			b.Write(text)
			return
		}
		c, size := utf8.DecodeRune(text[at:])
		b.Write(text[:at])
		b.WriteString(mark(c))
		text = text[at+size:]
	}
}
