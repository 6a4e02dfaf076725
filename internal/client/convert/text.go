package convert

import (
	"strings"
	"unicode/utf8"
)

// CutText limits a text to limit bytes of valid UTF-8: protobuf rejects a whole frame for one bad byte.
func CutText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// MaxTaskOverhead is the room in a message for what is sent with a payload.
const MaxTaskOverhead = 1 << 20

func CheckText(field, s string) error {
	switch {
	case len(s) > MaxTaskOverhead/16:
		return Invalid(field, "%d bytes are too many", len(s))
	case !utf8.ValidString(s):
		return Invalid(field, "%q is not valid UTF-8", s)
	}
	return nil
}

const MaxProgressText = 1 << 10
