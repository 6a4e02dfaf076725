package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RateForms are examples of what Rate accepts.
const RateForms = "50/s, 30/m, 1000/h or 100/10s"

// maxRate bounds a number to integers that a float64 holds exactly.
const maxRate = 1e15

// Rate parses a rate, both parts more than 0: 50/s, 100/1m, 0.5/s, 1,000/h. A number alone is per second.
func Rate(s string) (n float64, per time.Duration, err error) {
	number, unit, divided := strings.Cut(strings.ReplaceAll(s, " ", ""), "/")
	if !divided {
		unit = "s"
	}
	if unit != "" && (unit[0] < '0' || unit[0] > '9') {
		unit = "1" + unit
	}
	n, err = strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if err == nil {
		per, err = Duration(unit)
	}
	if err != nil || per <= 0 || !(n > 0 && n <= maxRate) {
		return 0, 0, fmt.Errorf("%s is not a rate such as %s", quote(s), RateForms)
	}
	return n, per, nil
}
