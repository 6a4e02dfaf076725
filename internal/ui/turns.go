package ui

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// isTurn tells of the characters that change the direction of the text behind them, and are not seen: with them a caller can have a name
// read as another one. They are what Unicode calls Bidi_Control.
func isTurn(c rune) bool { return unicode.Is(unicode.Bidi_Control, c) }

// showTurns makes the turns in the texts of a page visible, and ends what each does where it stands. The text stays as it is, for whoever
// copies it. Fields keep what is in them, as it is sent back.
//
// Pages come from html/template, which writes < and > for tags only.
func showTurns(page []byte) []byte {
	if !bytes.ContainsFunc(page, isTurn) {
		return page
	}
	var b bytes.Buffer
	mark := markTurn
	for len(page) > 0 {
		text, rest, _ := bytes.Cut(page, []byte("<"))
		writeTurns(&b, text, mark)
		if rest == nil {
			break
		}
		tag, after, _ := bytes.Cut(rest, []byte(">"))
		b.WriteByte('<')
		b.Write(tag)
		b.WriteByte('>')
		mark, page = markIn(tag), after
	}
	return b.Bytes()
}

// markIn is how turns are shown behind a tag. Some elements hold plain text alone.
func markIn(tag []byte) func(rune) string {
	name, _, _ := bytes.Cut(tag, []byte(" "))
	switch string(name) {
	case "textarea":
		return func(c rune) string { return string(c) }
	case "title", "option", "text": // the text of a drawing takes no HTML
		return func(c rune) string { return fmt.Sprintf("[U+%04X]", c) }
	}
	return markTurn
}

func markTurn(c rune) string { return fmt.Sprintf(`<i class="turn" data-c="U+%04X">%c</i>`, c, c) }

func writeTurns(b *bytes.Buffer, text []byte, mark func(rune) string) {
	for len(text) > 0 {
		at := bytes.IndexFunc(text, isTurn)
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
