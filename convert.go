package pawl

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// timeOf gives the zero time for an absent timestamp.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func timestampOrNil(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func durationOrNil(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func clampInt32(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

func (p Priority) proto() (pawlv1.Priority, error) {
	return numberOf[pawlv1.Priority]("priority", p, priorityWords, "high, normal or low")
}

// The words of the enums, as in REST. Read only.
var (
	priorityWords = words[Priority](pawlv1.Priority_name, "PRIORITY_")
	stateWords    = words[State](pawlv1.State_name, "STATE_")
	statusWords   = words[Status](pawlv1.Status_name, "STATUS_")
	outcomeWords  = words[Outcome](pawlv1.Outcome_name, "OUTCOME_")
)

// words turns PRIORITY_HIGH into "high", and the unspecified value into "".
func words[W ~string](names map[int32]string, prefix string) map[int32]W {
	out := make(map[int32]W, len(names))
	for value, name := range names {
		if value != 0 {
			out[value] = W(strings.ToLower(strings.TrimPrefix(name, prefix)))
		}
	}
	return out
}

// numberOf is the number of a word in the protocol; "" is 0. Other words have none, so they are refused here.
func numberOf[E ~int32, W ~string](field string, w W, words map[int32]W, are string) (E, error) {
	if w == "" {
		return 0, nil
	}
	for n, word := range words {
		if word == w {
			return E(n), nil
		}
	}
	return 0, invalid(field, "%q is not %s", cutText(string(w), 64), are)
}

func priorityOf(p pawlv1.Priority) Priority { return priorityWords[int32(p)] }
func stateOf(s pawlv1.State) State          { return stateWords[int32(s)] }
func statusOf(s pawlv1.Status) Status       { return statusWords[int32(s)] }
func outcomeOf(o pawlv1.Outcome) Outcome    { return outcomeWords[int32(o)] }

// statesProto are the states of a field.
func statesProto(field string, states []State) (out []pawlv1.State, err error) {
	for _, s := range states {
		p, err := numberOf[pawlv1.State](field, s, stateWords, "a state")
		if err == nil && p == pawlv1.State_STATE_UNSPECIFIED {
			err = invalid(field, "%q is not a state", s)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// cutText bounds a text to limit bytes of valid UTF-8: protobuf refuses a whole frame for one bad byte.
func cutText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
