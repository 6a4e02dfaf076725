package fingerprint

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/task"
)

// A fingerprint identifies failures of one task type with the same normalized message. It is computed when a task dies and stored in its row and in
// the index of the dead, so that dead letters can be counted by it without being read.

// Of returns the fingerprint of a task type's failures with a normalized message.
func Of(typ, message string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, s := range []string{typ, "\x00", message} {
		_, _ = d.WriteString(s)
	}
	return d.Sum64()
}

// Text returns a fingerprint as 16 hexadecimal digits.
func Text(print uint64) string { return fmt.Sprintf("%016x", print) }

// maxRead bounds how much of a message is read, maxNormalized the length of the result, in bytes.
const maxRead, maxNormalized = 2000, 300

// Normalize replaces what differs between failures of one kind with a star: quoted values, words that are ids, hexadecimal numbers or UUIDs, and
// numbers in other words. It is called at each death, on the leader's loop, so it does not use a regular expression, which took 7 us for a message of
// 100 bytes.
func Normalize(message string) string {
	n := normalizer{s: task.Cut(message, maxRead)}
	n.out.Grow(min(len(n.s), maxNormalized))
	for n.at < len(n.s) && n.out.Len() <= maxNormalized {
		n.next()
	}
	return task.Cut(n.out.String(), maxNormalized)
}

// normalizer passes over a message once.
type normalizer struct {
	s    string
	at   int
	out  strings.Builder
	open [2]bool // an unclosed double or single quote was found
}

// next consumes a quoted value, a word, or the characters between words.
func (n *normalizer) next() {
	rest := n.s[n.at:]
	switch c := rest[0]; {
	case c == '"' || c == '\'':
		n.quoted(rest, c)
	case isWord(c):
		n.word(rest)
	default:
		n.keep(span(rest, isBetween))
	}
}

// quoted replaces a quoted value with a star. An unclosed quote is kept; no other of its kind can follow.
func (n *normalizer) quoted(rest string, quote byte) {
	kind := 0
	if quote == '"' {
		kind = 1
	}
	if !n.open[kind] {
		if end := strings.IndexByte(rest[1:], quote); end >= 0 {
			n.star(end + 2)
			return
		}
		n.open[kind] = true
	}
	n.keep(1)
}

// word replaces a word, or the numbers in it, with stars.
func (n *normalizer) word(rest string) {
	if size := uuidAt(rest); size > 0 {
		n.star(size)
		return
	}
	word := rest[:span(rest, isWord)]
	switch {
	case len(word) > 2 && word[0] == '0' && word[1] == 'x' && span(word[2:], isHex) == len(word)-2, isID(word):
		n.star(len(word))
		return
	}
	for end := n.at + len(word); n.at < end; {
		if digits := span(n.s[n.at:end], isDigit); digits > 0 {
			n.star(digits)
		} else {
			n.keep(span(n.s[n.at:end], isLetter))
		}
	}
}

func (n *normalizer) star(size int) {
	n.out.WriteByte('*')
	n.at += size
}

func (n *normalizer) keep(size int) {
	n.out.WriteString(n.s[n.at : n.at+size])
	n.at += size
}

// uuidAt returns the length of the UUID at the beginning of s if it is a word of its own, else 0.
func uuidAt(s string) int {
	const size = 36
	if len(s) < size || len(s) > size && isWord(s[size]) {
		return 0
	}
	for i := range size {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return 0
			}
		} else if !isHex(s[i]) {
			return 0
		}
	}
	return size
}

// isID reports whether a word is hexadecimal, with at least eight digits from the first decimal one on: "deadbeef" may be a word.
func isID(word string) bool {
	digit := strings.IndexAny(word, "0123456789")
	return digit >= 0 && digit+8 <= len(word) && span(word, isHex) == len(word)
}

// span returns how many bytes at the beginning of s satisfy is.
func span(s string, is func(byte) bool) (n int) {
	for n < len(s) && is(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isWord(c byte) bool   { return isDigit(c) || isLetter(c) }
func isBetween(c byte) bool {
	return !isWord(c) && c != '"' && c != '\''
}
