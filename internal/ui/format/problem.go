package format

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pawlq/pawl/pawltype"
)

// Problem is an error as shown to people.
type Problem struct {
	Title, Code, Message, Field, Reason string
	Status                              int
}

// ProblemOf returns the problem of an error, without a title. An error that is none of the API's is internal, and its text is not shown.
func ProblemOf(err error) Problem {
	p := Problem{Status: StatusOf(err)}
	if e, ok := errors.AsType[*pawltype.Error](err); ok {
		p.Code, p.Message, p.Field, p.Reason = string(e.Code), e.Message, e.Field, e.Reason
		return p
	}
	if errors.Is(err, pawltype.ErrClosed) {
		p.Code, p.Message, p.Status = "unavailable", "this server is stopping", http.StatusServiceUnavailable
		return p
	}
	if errors.Is(err, context.DeadlineExceeded) {
		p.Code, p.Message = "unavailable", "the server took too long to answer"
		return p
	}
	p.Code, p.Message, p.Status = "internal", "the page could not be rendered; see the server's log", http.StatusInternalServerError
	return p
}

// StatusOf returns the HTTP status for an error.
func StatusOf(err error) int {
	switch {
	case errors.Is(err, pawltype.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, pawltype.ErrUnauthenticated):
		return http.StatusUnauthorized
	case errors.Is(err, pawltype.ErrPermissionDenied):
		return http.StatusForbidden
	case errors.Is(err, pawltype.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	case errors.Is(err, pawltype.ErrPayloadTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, pawltype.ErrInternal):
		return http.StatusInternalServerError
	}
	return http.StatusUnprocessableEntity
}

// OutcomeUnknown reports whether an error leaves open whether the action was done.
func OutcomeUnknown(err error) bool {
	return errors.Is(err, pawltype.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// EachError returns the errors that errors.Join has joined, or the single one.
func EachError(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// BadField returns the error of a field whose value is not acceptable.
func BadField(name, format string, args ...any) error {
	return &pawltype.Error{Code: "invalid_argument", Field: name, Message: name + ": " + fmt.Sprintf(format, args...)}
}
