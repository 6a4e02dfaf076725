package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
)

// rateHint says how rates are written, in all forms.
const rateHint = "Such as 50/s or 100/1m."

// parsePace reads how many there are in which time: 50/s, 100/1m, 0.5/s.
func parsePace(s string) (n float64, period time.Duration, err error) {
	bad := fmt.Errorf("%q is not a rate such as 50/s or 100/1m", clip(strings.TrimSpace(s), 60))
	number, per, _ := strings.Cut(strings.ReplaceAll(s, " ", ""), "/")
	if per == "s" || per == "m" || per == "h" {
		per = "1" + per
	}
	if n, err = strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64); err != nil || !(n > 0 && n <= 1e15) {
		return 0, 0, bad
	}
	if period, err = parseSpan(per); err != nil || period <= 0 {
		return 0, 0, bad
	}
	return n, period, nil
}

// pace reads how many a second there are at most, also from a number alone; 0: as many as goes.
func (r *reader) pace(name string) float64 {
	s := r.text(name)
	if s == "" {
		return 0
	}
	per := s
	if !strings.Contains(s, "/") {
		per += "/s"
	}
	n, period, err := parsePace(per)
	if err != nil {
		r.fail(badField(name, "%q is not a rate such as 50/s or 100/1m", clip(s, 60)))
		return 0
	}
	return n / period.Seconds()
}

// rate reads the rate of a limit, which may have a burst: 100/1m burst 20.
func (r *reader) rate(name string) pawl.Rate {
	s := r.text(name)
	if s == "" {
		return pawl.Rate{}
	}
	rate, err := parseRate(s)
	if err != nil {
		r.fail(badField(name, "%v", err))
	}
	return rate
}

func parseRate(s string) (rate pawl.Rate, err error) {
	pace, burst, has := strings.Cut(s, "burst")
	n, period, err := parsePace(pace)
	if err != nil {
		return rate, err
	}
	rate = pawl.Rate{Limit: int(n), Period: period}
	if float64(rate.Limit) != n {
		return rate, fmt.Errorf("%q: a rate is of whole tasks, in a longer time if they are few, such as 1/10s", clip(s, 60))
	}
	if has {
		if rate.Burst, err = strconv.Atoi(strings.TrimSpace(burst)); err != nil {
			return rate, fmt.Errorf("%q: behind burst stands no number", clip(s, 60))
		}
	}
	return rate, nil
}

func rateText(r pawl.Rate) string {
	if r.Limit == 0 {
		return ""
	}
	text := fmt.Sprintf("%d/%s", r.Limit, fieldSpan(r.Period))
	if r.Burst > 0 && r.Burst != r.Limit {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}
