package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNotSent means that the request certainly did not reach the peer's handler: it may be sent to another node.
var ErrNotSent = errors.New("not sent")

// ErrCertificate means that the sender of a request claims to be another node than its certificate says.
var ErrCertificate = errors.New("has the certificate of node")

var errClosed = fmt.Errorf("%w: this node is shutting down", ErrNotSent)

// RemoteError is an error of a peer's handler: the request was handled.
type RemoteError struct{ Message string }

func (e *RemoteError) Error() string { return e.Message }

const (
	// maxErrorText bounds the text of a handler's error.
	maxErrorText = 4 << 10
	// maxRefusalText bounds a refusal: it is sent as metadata, where a byte may take three.
	maxRefusalText = 1 << 10
)

// refusal returns the answer to a request that was not admitted. Nothing else uses this code: handlers' errors are sent in
// frames, and gRPC itself uses other codes.
func refusal(reason string) error {
	return status.Error(codes.PermissionDenied, cut(reason, maxRefusalText))
}

// refusedError is a refusal as its recipient gets it.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return ErrNotSent.Error() + ": refused: " + e.reason }

func (e *refusedError) Unwrap() error { return ErrNotSent }

// noteRefusal reports whether a request to a peer ended with a refusal. A refusal is due to a configuration error that only
// an operator can correct, so it is logged on this side too.
func (t *Transport) noteRefusal(err error, number uint32, at Address) bool {
	var no *refusedError
	if !errors.As(err, &no) {
		return false
	}
	if t.logLimit.allow("refused by " + at.Name + " " + at.Address) {
		t.cfg.Logger.Warn("a peer refused us", "peer", at.Name, "number", number, "address", at.Address, "reason", no.reason)
	}
	return true
}

// cut shortens a text to at most n bytes of whole characters.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// outcome converts gRPC's error to one that tells the caller whether the request may have run. left is true if any byte of the
// request may have left this node. gRPC's codes don't say that: it returns Unavailable in both cases.
func outcome(ctx context.Context, err error, left bool) error {
	reason := plain(status.Convert(err).Message())
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return &refusedError{reason: reason}
	case !left && ctx.Err() != nil:
		return fmt.Errorf("%w: no connection in time: %w", ErrNotSent, ctx.Err())
	case !left:
		return fmt.Errorf("%w: %s", ErrNotSent, reason)
	case ctx.Err() != nil:
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	default:
		return fmt.Errorf("no answer: %s", reason)
	}
}

// plain removes what gRPC wraps around a connection error.
func plain(reason string) string {
	quoted, ok := strings.CutPrefix(reason, "connection error: desc = ")
	if inner, err := strconv.Unquote(quoted); ok && err == nil {
		return strings.TrimPrefix(inner, "transport: ")
	}
	return reason
}
