package pawl

import "github.com/pawlq/pawl/pawltype"

// Error is a refusal by the broker, or by the client on the broker's behalf.
type Error = pawltype.Error

// Reasons to refuse a call, and causes for which a handler's context ends (context.Cause). Test with errors.Is; pawltype describes each.
const (
	ErrInvalidArgument  = pawltype.ErrInvalidArgument
	ErrUnauthenticated  = pawltype.ErrUnauthenticated
	ErrPermissionDenied = pawltype.ErrPermissionDenied
	ErrNotFound         = pawltype.ErrNotFound
	ErrConflict         = pawltype.ErrConflict
	ErrStaleClaim       = pawltype.ErrStaleClaim
	ErrWrongState       = pawltype.ErrWrongState
	ErrPayloadTooLarge  = pawltype.ErrPayloadTooLarge
	ErrQueueFull        = pawltype.ErrQueueFull
	ErrRateLimited      = pawltype.ErrRateLimited
	ErrUnavailable      = pawltype.ErrUnavailable
	ErrInternal         = pawltype.ErrInternal
	ErrClosed           = pawltype.ErrClosed

	ErrLeaseLost = pawltype.ErrLeaseLost
	ErrCancelled = pawltype.ErrCancelled
	ErrDraining  = pawltype.ErrDraining
	ErrOnceHeld  = pawltype.ErrOnceHeld
)
