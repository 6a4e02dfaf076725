package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
)

// periodValue is a flag value like time.Duration that also takes days: "14d".
type periodValue time.Duration

// PeriodVar adds a flag that takes a duration, also in days and weeks.
func PeriodVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, help string) {
	*d = value
	flags.Var((*periodValue)(d), name, help)
}

// String implements pflag.Value.
func (p *periodValue) String() string {
	if *p == 0 {
		return ""
	}
	return text.Period(time.Duration(*p))
}

// Set implements pflag.Value.
func (p *periodValue) Set(s string) error {
	d, err := humanize.Duration(s)
	*p = periodValue(d)
	return err
}

// Type implements pflag.Value.
func (p *periodValue) Type() string { return "duration" }

// positiveValue is a flag value of at least 1. 0 stands for a flag that is not given, and can't be given.
type positiveValue[N int | int64] struct{ n *N }

// PositiveVar adds a flag that takes a whole number above zero.
func PositiveVar[N int | int64](flags *pflag.FlagSet, n *N, name string, value N, help string) {
	*n = value
	flags.Var(positiveValue[N]{n}, name, help)
}

// String implements pflag.Value.
func (v positiveValue[N]) String() string {
	if v.n == nil || *v.n == 0 { // pflag calls it on a zero value
		return ""
	}
	return fmt.Sprint(*v.n)
}

// Set implements pflag.Value.
func (v positiveValue[N]) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || int64(N(n)) != n:
		return errors.New("it is not a whole number")
	case n < 1:
		return errors.New("it is less than 1")
	}
	*v.n = N(n)
	return nil
}

// Type implements pflag.Value.
func (v positiveValue[N]) Type() string { return "int" }

// SizeValue is a flag value in bytes: "4096", "256MiB", "1GiB".
type SizeValue int64

// String implements pflag.Value.
func (v *SizeValue) String() string {
	for _, u := range humanize.ByteUnits {
		if n := int64(*v); n >= u.Bytes && n%u.Bytes == 0 {
			return strconv.FormatInt(n/u.Bytes, 10) + u.Name
		}
	}
	return strconv.FormatInt(int64(*v), 10)
}

// Set implements pflag.Value.
func (v *SizeValue) Set(s string) error {
	factor, digits := int64(1), s
	for _, u := range humanize.ByteUnits {
		if head, ok := strings.CutSuffix(s, u.Name); ok {
			factor, digits = u.Bytes, strings.TrimSpace(head)
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return fmt.Errorf("%q is not a size such as 256MiB", s)
	}
	*v = SizeValue(n * factor)
	return nil
}

// Type implements pflag.Value.
func (v *SizeValue) Type() string { return "size" }
