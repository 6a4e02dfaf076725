package format

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/pawlq/pawl/pawltype"
)

// Errors of the API are shown as they are. Others are internal, and their text is not shown.
func TestOf(t *testing.T) {
	odd := errors.New("disk /var/lib on fire")
	refusal := func(code pawltype.ErrorCode) error {
		return fmt.Errorf("queue: %w", &pawltype.Error{Code: code, Message: "the message", Field: "name", Reason: "why"})
	}
	shown := func(code string, status int) Problem {
		return Problem{Code: code, Message: "the message", Field: "name", Reason: "why", Status: status}
	}
	for _, c := range []struct {
		err     error
		want    Problem
		unknown bool // it is not known whether the action was done
	}{
		{refusal("not_found"), shown("not_found", http.StatusNotFound), false},
		{refusal("unauthenticated"), shown("unauthenticated", http.StatusUnauthorized), false},
		{refusal("permission_denied"), shown("permission_denied", http.StatusForbidden), false},
		{refusal("unavailable"), shown("unavailable", http.StatusServiceUnavailable), true},
		{refusal("payload_too_large"), shown("payload_too_large", http.StatusRequestEntityTooLarge), false},
		{refusal("internal"), shown("internal", http.StatusInternalServerError), false},
		{refusal("invalid_argument"), shown("invalid_argument", http.StatusUnprocessableEntity), false},
		{refusal("wrong_state"), shown("wrong_state", http.StatusUnprocessableEntity), false},
		{fmt.Errorf("stats: %w", pawltype.ErrClosed), Problem{Code: "unavailable", Message: "this server is stopping",
			Status: http.StatusServiceUnavailable}, false},
		{fmt.Errorf("stats: %w", context.DeadlineExceeded), Problem{Code: "unavailable", Message: "the server took too long to answer",
			Status: http.StatusServiceUnavailable}, true},
		{odd, Problem{Code: "internal", Message: "the page could not be rendered; see the server's log",
			Status: http.StatusInternalServerError},
			false},
	} {
		if got := ProblemOf(c.err); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
		if got := OutcomeUnknown(c.err); got != c.unknown {
			t.Errorf("%v: the outcome is unknown: %v, want %v", c.err, got, c.unknown)
		}
	}
}

func TestEach(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for _, c := range []struct {
		err  error
		want []error
	}{{a, []error{a}}, {errors.Join(a, b), []error{a, b}}, {fmt.Errorf("in: %w", a), nil}} {
		want := c.want
		if want == nil {
			want = []error{c.err}
		}
		if got := EachError(c.err); !slices.Equal(got, want) {
			t.Errorf("%v consists of %v, want %v", c.err, got, want)
		}
	}
}

func TestBadField(t *testing.T) {
	got := ProblemOf(BadField("rate", "%d is too high", 7))
	if want := (Problem{Code: "invalid_argument", Message: "rate: 7 is too high", Field: "rate",
		Status: http.StatusUnprocessableEntity}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
