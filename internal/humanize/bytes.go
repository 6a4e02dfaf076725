package humanize

import (
	"math"
	"strconv"
	"strings"
)

// ByteUnits are the units of sizes, largest first.
var ByteUnits = []struct {
	Name  string
	Bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Bytes formats a size in its largest unit, with one decimal that is never rounded up: "1.5GiB", "256MiB".
func Bytes(n int64) string {
	for _, u := range ByteUnits {
		if n >= u.Bytes {
			return strings.TrimSuffix(strconv.FormatFloat(math.Floor(10*float64(n)/float64(u.Bytes))/10, 'f', 1, 64), ".0") + u.Name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
