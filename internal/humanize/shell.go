package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@,"

// ShellWord quotes a text as one word of a shell. What terminals act on or don't show is escaped, so that a pasted line
// is what it looks like.
func ShellWord(s string) string {
	switch {
	case s != "" && strings.Trim(s, plain) == "":
		return s
	case !strings.ContainsFunc(s, hidden):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	// All shells read these escapes alike. \' is none of them: to a shell without $'…', it would end the word.
	word := []byte("$'")
	for len(s) > 0 {
		c, n := utf8.DecodeRuneInString(s)
		switch {
		case c == '\n':
			word = append(word, `\n`...)
		case c == '\t':
			word = append(word, `\t`...)
		case c == '\\':
			word = append(word, `\\`...)
		case c == '\'' || hidden(c):
			for i := range n {
				word = fmt.Appendf(word, `\%03o`, s[i])
			}
		default:
			word = append(word, s[:n]...)
		}
		s = s[n:]
	}
	return string(append(word, '\''))
}

// hidden reports whether a terminal acts on a character or doesn't show it. It is true of bytes that are not UTF-8.
func hidden(c rune) bool {
	return !strconv.IsPrint(c) || c == utf8.RuneError || unicode.In(c, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector)
}

// Command returns a command line of pawl that is safe to paste into a shell, whatever the arguments and the values of
// flags are. The verb, and flags up to their "=", are written as they are.
func Command(verb string, args []string, flags ...string) string {
	words := []string{"pawl " + verb}
	options := make([]string, len(flags))
	for i, f := range flags {
		options[i] = f
		if name, value, ok := strings.Cut(f, "="); ok {
			options[i] = name + "=" + ShellWord(value)
		}
	}
	quoted := make([]string, len(args))
	dashed := false // an argument looks like a flag
	for i, a := range args {
		quoted[i], dashed = ShellWord(a), dashed || strings.HasPrefix(a, "-")
	}
	if dashed {
		words = append(append(append(words, options...), "--"), quoted...)
	} else {
		words = append(append(words, quoted...), options...)
	}
	return strings.Join(words, " ")
}
