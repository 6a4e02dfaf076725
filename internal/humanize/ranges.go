package humanize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ranges formats numbers in order, with consecutive ones as ranges: "0-3,7".
func Ranges(numbers []uint32) string { return strings.Join(Runs(numbers), ",") }

// Runs returns the parts of Ranges.
func Runs(numbers []uint32) (parts []string) {
	sorted := slices.Sorted(slices.Values(numbers))
	for i := 0; i < len(sorted); {
		end := i
		for end+1 < len(sorted) && sorted[end+1] == sorted[end]+1 {
			end++
		}
		part := strconv.FormatUint(uint64(sorted[i]), 10)
		if end > i {
			part += "-" + strconv.FormatUint(uint64(sorted[end]), 10)
		}
		parts = append(parts, part)
		i = end + 1
	}
	return parts
}

// Counted formats how many numbers there are, and which: "5 (0-3,7)"; "0" for none.
func Counted(numbers []uint32) string {
	if len(numbers) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", len(numbers), Ranges(numbers))
}
