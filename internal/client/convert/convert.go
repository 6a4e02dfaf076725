// Package convert converts the messages of the API to the types of the SDK, and back. It makes no calls, and does not know who asks.
package convert

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Time returns the zero time for an absent timestamp.
func Time(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Text returns a text that is left out if it is empty.
func Text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func Duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func Int32(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

// Words maps PRIORITY_HIGH to "high", for example. The unspecified value is left out.
func Words[W ~string](names map[int32]string, prefix string) map[int32]W {
	out := make(map[int32]W, len(names))
	for value, name := range names {
		if value != 0 {
			out[value] = W(strings.ToLower(strings.TrimPrefix(name, prefix)))
		}
	}
	return out
}

// Number returns the number of a word in the protocol; for "" it is 0. Unknown words have none and are rejected here.
func Number[E ~int32, W ~string](field string, w W, words map[int32]W, are string) (E, error) {
	if w == "" {
		return 0, nil
	}
	for n, word := range words {
		if word == w {
			return E(n), nil
		}
	}
	return 0, Invalid(field, "%q is not %s", CutText(string(w), 64), are)
}
