package humanize

import "fmt"

// Count formats a number of things, such as "1 task" or "3 tasks".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// One returns the first word for one thing, otherwise the second: One(n, "is", "are").
func One(n int64, single, several string) string {
	if n == 1 {
		return single
	}
	return several
}
