package main

import (
	"regexp"
	"strings"
)

// prose is a line of a comment that may be filled together with those around it.
var prose = regexp.MustCompile(`^(\t*)// ([^\s#|*+-].*)$`)

// item is the beginning of a line that stays by itself: of a list, or what a tool looks for.
var item = regexp.MustCompile(`^([0-9]+[.)]|nolint|Output:|Unordered output:)`)

// fillComments fills those paragraphs of comments again of which a line is too long.
func fillComments(src []byte) []byte {
	data := dataLines(src)
	lines := strings.Split(string(src), "\n")
	var out []string
	for i := 0; i < len(lines); {
		indent, words, long := "", []string(nil), false
		from := i
		for ; i < len(lines) && !data[i+1]; i++ {
			m := prose.FindStringSubmatch(lines[i])
			if m == nil || item.MatchString(m[2]) || words != nil && m[1] != indent {
				break
			}
			indent, words, long = m[1], append(words, m[2]), long || tooLong(lines[i])
		}
		switch {
		case long:
			out = append(out, fill(indent, strings.Join(words, " "), commentWidth))
		case i > from:
			out = append(out, lines[from:i]...)
		default:
			out = append(out, lines[i])
			i++
		}
	}
	return []byte(strings.Join(out, "\n"))
}

// fill writes a text as a comment of lines of a width.
func fill(indent, text string, width int) string {
	var out strings.Builder
	column := width
	for word := range strings.FieldsSeq(text) {
		if n := columns(word); column+1+n > width {
			if out.Len() > 0 {
				out.WriteString("\n")
			}
			out.WriteString(indent + "// " + word)
			column = columns(indent+"// ") + n
		} else {
			out.WriteString(" " + word)
			column += 1 + n
		}
	}
	return out.String()
}
