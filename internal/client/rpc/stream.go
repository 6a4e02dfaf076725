package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// A stream that broke is reopened after a pause, which grows from FirstReconnect to MaxReconnect.
const (
	FirstReconnect = 50 * time.Millisecond
	MaxReconnect   = 5 * time.Second
	// Steady is how long a stream must last for the next pauses to be short again.
	Steady = 5 * time.Second
)

// AccessDenied reports whether the caller was not authenticated or not authorized.
func AccessDenied(err error) bool {
	return errors.Is(err, pawltype.ErrUnauthenticated) || errors.Is(err, pawltype.ErrPermissionDenied)
}

// Final reports whether reopening a stream can't help.
func Final(err error) bool {
	return AccessDenied(err) || errors.Is(err, pawltype.ErrInvalidArgument) || errors.Is(err, pawltype.ErrClosed)
}

// Sleep waits for d, unless ctx ends or closing is closed before. It reports whether it waited for all of d.
func Sleep(ctx context.Context, closing <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-closing:
		return false
	case <-ctx.Done():
		return false
	}
}
