package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
)

// rateForms are the forms that every --rate takes.
const rateForms = "50/s, 30/m, 1000/h, 100/10s; 50 alone is in a second"

// readTimes reads how many there are in which time.
func readTimes(flag, s string) (n float64, per time.Duration, err error) {
	number, unit, divided := strings.Cut(s, "/")
	if !divided {
		unit = "1s"
	} else if unit != "" && (unit[0] < '0' || unit[0] > '9') {
		unit = "1" + unit
	}
	n, err = strconv.ParseFloat(number, 64)
	per, perr := parsePeriod(unit)
	if err != nil || perr != nil || per <= 0 || !(n > 0) || math.IsInf(n, 0) {
		return 0, 0, usage("%s %q is not a rate: %s", flag, s, rateForms)
	}
	return n, per, nil
}

// readPace reads tasks a second.
func readPace(flag, s string) (float64, error) {
	n, per, err := readTimes(flag, s)
	if err != nil {
		return 0, err
	}
	return n / per.Seconds(), nil
}

// readRate reads the rate of a limit: whole tasks in a time, or none.
func readRate(s string) (pawl.Rate, error) {
	if s == "none" {
		return pawl.Rate{}, nil
	}
	n, per, err := readTimes("--rate", s)
	if err != nil {
		return pawl.Rate{}, err
	}
	if n != math.Trunc(n) || n > math.MaxInt32 {
		return pawl.Rate{}, usage("--rate %q: a limit is of whole tasks, in a longer time if they are few, such as 1/10s", s)
	}
	return pawl.Rate{Limit: int(n), Period: per}, nil
}
