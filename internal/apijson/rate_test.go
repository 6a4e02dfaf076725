package apijson

import (
	"strconv"
	"strings"
	"testing"
)

// An invalid rate is refused with its field, its value and the rule.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		text, says string
		want       float64
	}{
		{"50/s", "", 50}, {"30/m", "", 0.5}, {"900/h", "", 0.25}, {"0.5/s", "", 0.5}, {"1000000/s", "", 1e6}, {"60000000/m", "", 1e6},
		{"1000001/s", `rate: "1000001/s" is more than 1000000/s`, 0},
		{"Inf/s", `rate: "Inf/s" is more than 1000000/s`, 0},
		{"100/10s", `rate: "100/10s" is not a rate such as "50/s", "30/m" or "1000/h": a number above 0, in a second, a minute or an hour`,
			0},
		{"50", "is not a rate", 0}, {"50/", "is not a rate", 0}, {"/s", "is not a rate", 0}, {"", "is not a rate", 0},
		{"0/s", "is not a rate", 0}, {"-1/s", "is not a rate", 0}, {"NaN/s", "is not a rate", 0}, {"5/d", "is not a rate", 0},
		{"many/s", "is not a rate", 0},
	} {
		r := newReader([]byte(strconv.Quote(c.text)), &Budget{Left: 1 << 10})
		got, err := r.rate("rate")
		if c.says == "" && (err != nil || got != c.want) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("rate %q = %v, %v, want %v %s", c.text, got, err, c.want, c.says)
		}
	}
}
